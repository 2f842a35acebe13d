//! Tests of `key_requests.rs`.

use super::*;

#[test]
fn a_key_needs_a_name_and_a_role() {
    let read = |json: &str| NewKeyRequest::read(&mut Fields::parse(json.as_bytes()).unwrap());
    assert!(read(r#"{"name":"a","role":"admin","expires":"30d"}"#).is_ok());
    for (json, field) in [
        (r#"{"role":"admin"}"#, "name"),
        (r#"{"name":"a"}"#, "role"),
        (r#"{"name":"a","role":"root"}"#, "role"),
        (r#"{"name":"a\u0000","role":"user"}"#, "name"),
        (r#"{"name":"a","role":"user","expires":"3000d"}"#, "expires"),
        (r#"{"name":"a","role":"user","models":"tiny"}"#, "models"),
        (r#"{"name":"a","role":"user","models":[""]}"#, "models"),
        (r#"{"name":"a","role":"user","models":["m"," "]}"#, "models"),
        (r#"{"name":"a","role":"user","routes":["chat"]}"#, "routes"),
        (
            r#"{"name":"a","role":"user","limits":{"requests_per_minute":0}}"#,
            "limits",
        ),
        (
            r#"{"name":"a","role":"user","limits":{"requests":5}}"#,
            "limits",
        ),
    ] {
        assert_eq!(
            read(json).expect_err(json).body.error.param.as_deref(),
            Some(field),
            "{json}"
        );
    }
}
