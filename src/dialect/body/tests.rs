//! Tests of `body.rs`.

use super::*;

fn read(text: &str) -> Result<Scanned, Failure> {
    Scanned::read(Bytes::copy_from_slice(text.as_bytes()))
}

fn message(text: &str) -> String {
    read(text).unwrap_err().body.error.message
}

#[test]
fn only_routing_fields_are_parsed_and_the_body_is_unchanged() {
    let scanned =
        read(r#"{"model":"a/b","messages":[{"content":"{\"x\": \u00e9}"}],"seed": 1e3}"#).unwrap();
    assert_eq!((scanned.model.as_str(), scanned.stream), ("a/b", false));
    let fields = Fields::read(&scanned.body).unwrap();
    assert_eq!(
        fields.get("messages").unwrap().get(),
        r#"[{"content":"{\"x\": \u00e9}"}]"#
    );
}

#[test]
fn a_duplicate_field_is_sent_to_the_engine_and_the_last_value_counts() {
    let scanned = read(r#"{"model":"a","n":1,"n":2}"#).unwrap();
    let fields = Fields::read(&scanned.body).unwrap();
    assert_eq!(fields.all().count(), 2);
    assert_eq!(fields.get("n").unwrap().get(), "2");
}

#[test]
fn field_names_are_unescaped_and_the_last_duplicate_keeps_its_position() {
    let fields = Fields::read(br#"{"a":1,"\u0062":2,"a":3,"c":4,"b":5}"#).unwrap();
    let all: Vec<(&str, &str)> = fields
        .all()
        .map(|(name, value)| (name, value.get()))
        .collect();
    assert_eq!(all, [("a", "3"), ("c", "4"), ("b", "5")]);
    assert!(fields.get("\\u0062").is_none());
}

#[test]
fn many_fields_are_found_in_constant_time() {
    let many: String = (0..19_000)
        .map(|nth| format!("\"f{}\":{nth},", nth % 18_000))
        .collect();
    let body = format!("{{{many}\"model\":\"a\"}}");
    let fields = Fields::read(body.as_bytes()).unwrap();
    assert_eq!(fields.all().count(), 18_001);
    let names: Vec<&str> = fields.all().map(|(name, _)| name).collect();
    assert_eq!(
        (names[0], names[16_999], names[17_000]),
        ("f1000", "f17999", "f0")
    );
    for (name, value) in [
        ("f0", "18000"),
        ("f999", "18999"),
        ("f1000", "1000"),
        ("model", "\"a\""),
    ] {
        assert_eq!(fields.get(name).map(RawValue::get), Some(value), "{name}");
    }
    assert!(fields.get("f18000").is_none());
}

#[test]
fn an_invalid_model_name_is_refused_and_not_retained() {
    let list = format!("[{}0]", "0,".repeat(100_000));
    let body = format!(r#"{{"model": {list}, "stream": {list}}}"#);
    assert!(message(&body).contains("`model` must be a string"));
    let long = "x".repeat(1 << 20);
    assert!(message(&format!(r#"{{"model": "{long}"}}"#)).contains("longer than 256 bytes"));
    let options = format!(r#"{{"model": "a", "stream_options": {list}}}"#);
    assert!(message(&options).contains("stream_options"));
    let null = read(r#"{"model": "a", "stream": null, "stream_options": null}"#).unwrap();
    assert!(!null.stream && !null.include_usage);
    let alone = r#"{"model": "a", "stream_options": {"include_usage": true}}"#;
    assert!(message(alone).contains("requires `stream` to be true"));
    let both = r#"{"model": "a", "stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": false}}"#;
    assert!(read(both).unwrap().include_usage);
    let wrong = r#"{"model": "a", "stream": true, "stream_options": {"include_usage": 1}}"#;
    assert!(message(wrong).contains("include_obfuscation"));
    let unknown = r#"{"model": "a", "stream": true, "stream_options": {"colour": true}}"#;
    assert!(!read(unknown).unwrap().include_usage);
    let routed = r#"{"model": "a", "stream": true, "usage": {"include": true}}"#;
    assert!(read(routed).unwrap().include_usage);
    let other = r#"{"model": "a", "stream": true, "usage": "all"}"#;
    assert!(!read(other).unwrap().include_usage);
}

#[test]
fn invalid_routing_fields_are_refused_by_name() {
    assert!(message("{}").contains("`model` is missing"));
    assert!(message(r#"{"model": 3}"#).contains("must be a string"));
    assert!(message(r#"{"model": "a", "stream": "yes"}"#).contains("`stream`"));
    assert!(message(r#"{"model": "a", "stream_options": 1}"#).contains("stream_options"));
    assert!(message("not json").contains("line 1"));
    assert!(message("[1]").contains("JSON object"));
}

#[test]
fn invalid_utf_8_is_reported_with_its_byte_offset() {
    let body = b"{\"model\":\"a\",\"x\":\"\xff\"}";
    let failure = Scanned::read(Bytes::from_static(body)).unwrap_err();
    assert!(
        failure.body.error.message.contains("byte 18"),
        "{failure:?}"
    );
}

#[test]
fn a_deeply_nested_or_huge_body_is_refused_in_one_pass() {
    assert!(message(&"[".repeat(100_000)).contains("nested deeper"));
    let keys: String = (0..30_000).map(|nth| format!("\"k{nth}\":1,")).collect();
    assert!(message(&format!("{{{keys}\"model\":\"a\"}}")).contains("more than 20000 keys"));
    assert!(
        read(r#"{"model":"a","x":"[[[[ :::: \" [[["}"#).is_ok(),
        "brackets in strings are text"
    );
}
