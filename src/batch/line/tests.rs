//! Tests of request lines: accepted shapes, and the message of every refused shape.

use super::*;

const CHAT: &str = "/v1/chat/completions";

fn line(body: &str) -> String {
    format!(r#"{{"custom_id":"a","method":"POST","url":"{CHAT}","body":{body}}}"#)
}

fn refused(line: &str) -> (String, Option<&'static str>) {
    let error = RequestLine::parse(line).expect_err(line);
    (error.message, error.field)
}

#[test]
fn a_line_keeps_its_body_as_it_is() {
    let body =
        r#"{ "n": 1.0, "model":"m\u002d1", "messages": [{"content":"\"{[é"}], "stream": false }"#;
    let text = line(body);
    let read = RequestLine::parse(&text).expect("a request");
    assert_eq!(read.custom_id, "a");
    assert_eq!(read.endpoint, Endpoint::ChatCompletions);
    assert_eq!(read.model, "m-1");
    assert_eq!(read.body.get(), body);
}

#[test]
fn texts_without_escapes_are_borrowed_and_the_method_is_optional() {
    for endpoint in Endpoint::ALL {
        let text = format!(
            r#" {{"url":"{}","body":{{"model":"m","stream":null}},"custom_id":"é"}} "#,
            endpoint.path()
        );
        let read = RequestLine::parse(&text).expect("a request");
        assert_eq!(read.endpoint, endpoint);
        assert!(matches!(read.custom_id, Cow::Borrowed("é")));
        assert!(matches!(read.model, Cow::Borrowed("m")));
    }
}

#[test]
fn limits_count_decoded_bytes() {
    let request = |id: &str, model: &str| {
        format!(r#"{{"custom_id":"{id}","url":"{CHAT}","body":{{"model":"{model}"}}}}"#)
    };
    for text in [
        request(&"\\u0061".repeat(512), "m"),
        request("a", &"\\u006d".repeat(256)),
    ] {
        RequestLine::parse(&text).expect("at the limit");
    }
    let (message, field) = refused(&request(&"é".repeat(257), "m"));
    assert_eq!(
        message,
        "`custom_id` has 514 bytes, and at most 512 are allowed"
    );
    assert_eq!(field, Some("custom_id"));
    let (message, field) = refused(&request("a", &"m".repeat(257)));
    assert_eq!(
        message,
        "`body.model` has 257 bytes, and at most 256 are allowed"
    );
    assert_eq!(field, Some("body.model"));
}

#[test]
fn each_wrong_field_is_named() {
    let cases: &[(&str, &str, Option<&str>)] = &[
        (
            r#"{"url":"/v1/messages","body":{"model":"m"}}"#,
            "`custom_id` is missing",
            Some("custom_id"),
        ),
        (
            r#"{"custom_id":"","url":"/v1/messages","body":{"model":"m"}}"#,
            "`custom_id` must not be empty",
            Some("custom_id"),
        ),
        (
            r#"{"custom_id":7,"url":"/v1/messages","body":{"model":"m"}}"#,
            "`custom_id` must be a string",
            Some("custom_id"),
        ),
        (
            r#"{"custom_id":null,"url":"/v1/messages","body":{"model":"m"}}"#,
            "`custom_id` must be a string",
            Some("custom_id"),
        ),
        (
            r#"{"custom_id":"\ud800","url":"/v1/messages","body":{"model":"m"}}"#,
            "`custom_id` has an escape that stands for half a character",
            Some("custom_id"),
        ),
        (
            r#"{"custom_id":"a","custom_id":"b"}"#,
            "`custom_id` is there twice",
            Some("custom_id"),
        ),
        (
            r#"{"custom_id":"a","method":"GET","url":"/v1/messages","body":{"model":"m"}}"#,
            "`method` must be `POST`",
            Some("method"),
        ),
        (
            r#"{"custom_id":"a","method":null,"url":"/v1/messages","body":{"model":"m"}}"#,
            "`method` must be a string",
            Some("method"),
        ),
        (
            r#"{"custom_id":"a","body":{"model":"m"}}"#,
            "`url` is missing",
            Some("url"),
        ),
        (
            r#"{"custom_id":"a","url":["/v1/messages"],"body":{"model":"m"}}"#,
            "`url` must be a string",
            Some("url"),
        ),
        (
            r#"{"custom_id":"a","url":"/v1/audio","body":{"model":"m"}}"#,
            "`url` must be one of /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/responses, /v1/messages",
            Some("url"),
        ),
        (
            r#"{"custom_id":"a","url":"/v1/messages"}"#,
            "`body` is missing",
            Some("body"),
        ),
        (
            r#"{"custom_id":"a","url":"/v1/messages","body":null}"#,
            "`body` must be an object",
            Some("body"),
        ),
        (
            r#"{"custom_id":"a","url":"/v1/messages","body":[{"model":"m"}]}"#,
            "`body` must be an object",
            Some("body"),
        ),
        (
            r#"{"custom_id":"a","url":"/v1/messages","body":{}}"#,
            "`body.model` is missing",
            Some("body.model"),
        ),
        (
            r#"{"custom_id":"a","url":"/v1/messages","body":{"model":""}}"#,
            "`body.model` must not be empty",
            Some("body.model"),
        ),
        (
            r#"{"custom_id":"a","url":"/v1/messages","body":{"model":{}}}"#,
            "`body.model` must be a string",
            Some("body.model"),
        ),
        (
            r#"{"custom_id":"a","url":"/v1/messages","body":{"model":"m","\u006dodel":"n"}}"#,
            "`body.model` is there twice",
            Some("body.model"),
        ),
        (
            r#"{"custom_id":"a","url":"/v1/messages","body":{"model":"m","stream":true}}"#,
            "`body.stream` must be false or absent",
            Some("body.stream"),
        ),
        (
            r#"{"custom_id":"a","url":"/v1/messages","body":{"model":"m","stream":"no"}}"#,
            "`body.stream` must be false or absent",
            Some("body.stream"),
        ),
        (
            r#"{"custom_id":"a","params":{}}"#,
            "`params` is an unknown field",
            None,
        ),
        (
            r#"[{"custom_id":"a"}]"#,
            "the line must be a JSON object",
            None,
        ),
        ("7", "the line must be a JSON object", None),
        (
            r#"{"custom_id":"a""#,
            "the line is not valid JSON: EOF while parsing an object at column 16",
            None,
        ),
        (
            r#"{"custom_id":"a","url":"/v1/messages","body":{"model":"m"}} {}"#,
            "the line is not valid JSON: trailing characters at column 61",
            None,
        ),
        (
            r#"{"custom_id":"a","url":"/v1/messages","body":{"model":"m","x":"\ud800"}}"#,
            "the line is not valid JSON: unexpected end of hex escape at column 70",
            Some("body"),
        ),
    ];
    for (text, message, field) in cases {
        assert_eq!(refused(text), ((*message).to_owned(), *field), "{text}");
    }
}

#[test]
fn a_long_unknown_name_is_cut_in_the_message() {
    let (message, _) = refused(&format!(r#"{{"{}":1}}"#, "x\\n".repeat(1000)));
    assert!(
        message.ends_with("` is an unknown field") && message.len() < 200,
        "{message}"
    );
}

#[test]
fn a_deep_body_is_refused_with_its_column() {
    let nested = |depth: usize| {
        line(&format!(
            r#"{{"model":"m","x":{}1{}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        ))
    };
    RequestLine::parse(&nested(100)).expect("deep enough for any request");
    for depth in [128, 100_000] {
        let (message, field) = refused(&nested(depth));
        let expected = "the line is not valid JSON: recursion limit exceeded at column ";
        assert!(message.starts_with(expected), "{message}");
        let column: usize = message[expected.len()..].parse().expect("a number");
        assert!((190..250).contains(&column), "{column}");
        assert_eq!(field, Some("body"));
    }
}
