//! Translates an engine's error into the response for the client: OpenAI's error object as JSON, regardless of the engine's format.
//! Status, headers and retry time of a peer are validated before they are passed on (B3).

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Map, Value, json};

use api_types::error::ErrorKind;
use dialect::error_in;

/// Longest `Retry-After` accepted from an engine: a day.
const RETRY_AFTER_MAX_SECONDS: u64 = 86_400;
const MESSAGE_CHARS_MAX: usize = 1000;

/// `head` and `body` are the engine's.
pub fn response(status: StatusCode, head: &HeaderMap, body: Bytes) -> Response {
    let is_error = status.is_client_error() || status.is_server_error();
    let status = if is_error {
        status
    } else {
        ErrorKind::Upstream.status()
    };
    let mut response = Response::new(Body::from(in_form(status, body)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    if let Some(seconds) = retry_after(head) {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn retry_after(head: &HeaderMap) -> Option<u64> {
    let text = head.get(header::RETRY_AFTER)?.to_str().ok()?;
    let seconds: u64 = text.trim().parse().ok()?;
    (seconds <= RETRY_AFTER_MAX_SECONDS).then_some(seconds)
}

/// Returns the bytes unchanged if they are an error object already.
fn in_form(status: StatusCode, body: Bytes) -> Bytes {
    let read: Option<Map<String, Value>> = serde_json::from_slice(&body).ok();
    let error = read.as_ref().and_then(|read| read.get("error"));
    let is_text = |value: &Value| value.is_string();
    if error
        .and_then(|error| error.get("message"))
        .is_some_and(is_text)
    {
        return body;
    }
    let text = String::from_utf8_lossy(&body);
    let mut error = match error_in(&text) {
        Value::Object(error) => error,
        _ => Map::new(),
    };
    // FastAPI's format.
    let detail = read.as_ref().and_then(|read| read.get("detail"));
    let message = detail
        .or(error.get("message"))
        .map(|message| match message {
            Value::String(message) => plain(message),
            other => plain(&other.to_string()),
        });
    let message = message.filter(|message| !message.is_empty());
    let message = message
        .unwrap_or_else(|| format!("the engine returned {} without a reason", status.as_u16()));
    error.insert("message".to_owned(), message.into());
    let kind = if status.is_client_error() {
        "invalid_request_error"
    } else {
        "server_error"
    };
    for (name, default) in [
        ("type", json!(kind)),
        ("param", Value::Null),
        ("code", json!("engine_error")),
    ] {
        error.entry(name).or_insert(default);
    }
    json!({ "error": error }).to_string().into()
}

/// Joins the text into one line without control characters.
fn plain(text: &str) -> String {
    let words = text.split(|letter: char| letter.is_whitespace() || letter.is_control());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ").chars().take(MESSAGE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    fn passed_on(
        status: u16,
        headers: &[(&'static str, &'static str)],
        body: &[u8],
    ) -> (Response, Value) {
        let head = headers.iter().map(|(name, value)| {
            (
                header::HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        });
        let status = StatusCode::from_u16(status).unwrap();
        let body = Bytes::copy_from_slice(body);
        let response = response(status, &head.collect(), body);
        let (head, body) = response.into_parts();
        let body = futures_util::FutureExt::now_or_never(body.collect());
        let body = body.unwrap().unwrap().to_bytes();
        let value = serde_json::from_slice(&body).expect("JSON");
        (Response::from_parts(head, Body::empty()), value)
    }

    #[test]
    fn any_engine_error_is_returned_as_an_error_object() {
        for (status, body, message) in [
            (
                400,
                &b"<script>alert(1)</script>"[..],
                "<script>alert(1)</script>",
            ),
            (
                400,
                b"\x1b]0;owned\x07\x1b[31mRED\r\nnext",
                "]0;owned [31mRED next",
            ),
            (
                422,
                br#"{"detail": [{"loc": ["body"], "msg": "bad"}]}"#,
                r#"[{"loc":["body"],"msg":"bad"}]"#,
            ),
            (404, br#"{"detail": "Not Found"}"#, "Not Found"),
            (
                400,
                br#"{"object": "error", "message": "too hot", "code": 40001}"#,
                "too hot",
            ),
            (500, br#"{"error": "broken"}"#, "broken"),
            (
                500,
                br#"{"error": {"code": 7}}"#,
                "the engine returned 500 without a reason",
            ),
            (503, b"", "the engine returned 503 without a reason"),
            (500, b"\xff\xfe", "\u{fffd}\u{fffd}"),
            (400, br#""text""#, "\"text\""),
        ] {
            let (response, value) = passed_on(status, &[("content-type", "text/html")], body);
            let error = &value["error"];
            assert_eq!(error["message"], message, "{value}");
            assert!(
                error["type"].is_string() && error.get("param").is_some(),
                "{value}"
            );
            assert!(!error["code"].is_null(), "{value}");
            assert_eq!(response.status().as_u16(), status);
            assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        }
    }

    #[test]
    fn an_error_object_stays_as_it_is() {
        let own = br#"{"error": {"message": "no\nsuch tool", "type": "x", "more": [1]}}"#;
        let (_, value) = passed_on(400, &[], own);
        assert_eq!(value, serde_json::from_slice::<Value>(own).unwrap());
    }

    #[test]
    fn only_a_plausible_retry_after_header_of_an_engine_is_passed_on() {
        for (sent, kept) in [
            ("5", Some("5")),
            (" 86400 ", Some("86400")),
            ("86401", None),
            ("999999999999", None),
            ("99999999999999999999999", None),
            ("-1", None),
            ("soon", None),
        ] {
            let headers = [
                ("retry-after", sent),
                ("set-cookie", "model-pool-session=stolen"),
                ("location", "http://evil/"),
                ("access-control-allow-origin", "*"),
            ];
            let (response, _) = passed_on(429, &headers, b"busy");
            let found = response.headers().get(header::RETRY_AFTER);
            assert_eq!(found.map(|value| value.to_str().unwrap()), kept, "{sent}");
            let others = 1 + usize::from(kept.is_some());
            assert_eq!(response.headers().len(), others, "{:?}", response.headers());
        }
        assert_eq!(
            passed_on(307, &[], b"").0.status(),
            ErrorKind::Upstream.status()
        );
    }
}
