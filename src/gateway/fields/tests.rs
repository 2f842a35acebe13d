//! Tests of `fields.rs`.

use super::*;

/// A request with fields of every type.
#[derive(Debug, PartialEq)]
struct All(
    Option<String>,
    Option<u32>,
    Option<Span>,
    Option<bool>,
    Option<Option<Span>>,
);

impl Strict for All {
    fn read(fields: &mut Fields) -> Result<All, Failure> {
        Ok(All(
            fields.text("model")?,
            fields.integer("replicas", 1..=64)?,
            fields.length("keep_hot")?,
            fields.flag("wait")?,
            fields.clearable("lease", OrderFields::length)?,
        ))
    }
}

fn parse(json: &str) -> Result<All, Failure> {
    read(Fields::parse(json.as_bytes())?)
}

/// The field and the message of the error.
fn refusal(json: &str) -> (String, String) {
    let failure = parse(json).expect_err("is refused");
    assert_eq!(failure.status().as_u16(), 400, "{json}");
    let error = failure.body.error;
    (error.param.unwrap_or_default(), error.message)
}

#[test]
fn all_fields_are_read() {
    let all = parse(r#"{"model":"m","replicas":64,"keep_hot":"365d","wait":false,"lease":"1s"}"#)
        .unwrap();
    let year = Span::from_secs(365 * 24 * 3600);
    let expected = All(
        Some("m".to_owned()),
        Some(64),
        Some(year),
        Some(false),
        Some(Some(Span::from_secs(1))),
    );
    assert_eq!(all, expected);
}

#[test]
fn null_equals_absent_except_where_it_clears() {
    assert_eq!(parse("{}").unwrap(), All(None, None, None, None, None));
    let nulls = r#"{"model":null,"replicas":null,"keep_hot":null,"wait":null,"lease":null}"#;
    assert_eq!(
        parse(nulls).unwrap(),
        All(None, None, None, None, Some(None))
    );
}

#[test]
fn every_invalid_value_is_refused_by_field_with_the_allowed_range() {
    for (json, field, allowed) in [
        (r#"{"replicas":0}"#, "replicas", "from 1 to 64"),
        (r#"{"replicas":65}"#, "replicas", "from 1 to 64"),
        (r#"{"replicas":-1}"#, "replicas", "-1 is not allowed"),
        (r#"{"replicas":1.5}"#, "replicas", "a whole number"),
        (r#"{"replicas":1e300}"#, "replicas", "a whole number"),
        (
            r#"{"replicas":99999999999999999999}"#,
            "replicas",
            "a whole number",
        ),
        (r#"{"replicas":"2"}"#, "replicas", "a whole number"),
        (r#"{"keep_hot":10}"#, "keep_hot", "from 1s to 365d"),
        (r#"{"keep_hot":"10"}"#, "keep_hot", "1s to 365d"),
        (r#"{"keep_hot":"-10m"}"#, "keep_hot", "1s to 365d"),
        (r#"{"keep_hot":"999ms"}"#, "keep_hot", "from 1s to 365d"),
        (r#"{"keep_hot":"366d"}"#, "keep_hot", "from 1s to 365d"),
        (r#"{"keep_hot":"99999999999y"}"#, "keep_hot", "1s to 365d"),
        (r#"{"lease":{}}"#, "lease", "from 1s to 365d"),
        (r#"{"wait":"true"}"#, "wait", "true or false"),
        (r#"{"model":""}"#, "model", "is empty"),
        (r#"{"model":[1]}"#, "model", "a text"),
        (r#"{"keephot":"10m"}"#, "keephot", "did you mean keep_hot?"),
        (r#"{"keephot":null}"#, "keephot", "did you mean keep_hot?"),
    ] {
        let (blamed, message) = refusal(json);
        assert_eq!(blamed, field, "{json}");
        assert!(message.contains(allowed), "{json}: {message}");
    }
}

#[test]
fn a_body_that_is_not_a_json_object_is_refused_with_its_position() {
    for (json, words) in [
        ("", "the body is empty"),
        (" \n", "the body is empty"),
        ("{\"model\":\n x}", "at line 2 column 2"),
        ("[]", "expected an object"),
        ("\"text\"", "expected an object"),
        ("{}{}", "trailing characters"),
        (
            r#"{"model":"a","model":"b"}"#,
            "the key `model` is given twice",
        ),
    ] {
        assert!(
            refusal(json).1.contains(words),
            "{json}: {}",
            refusal(json).1
        );
    }
    let deep = format!("{{\"model\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(refusal(&deep).1.contains("nested deeper than 64 levels"));
    assert!(String::from_utf8(vec![0xff]).is_err() && Fields::parse(&[0xff]).is_err());
}

#[test]
fn a_long_invalid_value_is_quoted_only_in_part() {
    let json = format!(r#"{{"replicas":"{}"}}"#, "ü".repeat(100_000));
    assert!(refusal(&json).1.len() < 300);
}

#[test]
fn numbers_and_booleans_in_a_query_are_parsed_from_text() {
    let entry = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let entries = vec![entry("replicas", "7"), entry("wait", "true")];
    let all: All = read(query_fields(entries).unwrap()).unwrap();
    assert_eq!(all, All(None, Some(7), None, Some(true), None));
    let twice = vec![entry("wait", "true"), entry("wait", "false")];
    assert!(query_fields(twice).is_err());
}
