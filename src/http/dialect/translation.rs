//! What both dialects need: a request in OpenAI's form, and how its answer is written in the client's.

use axum::body::Bytes;
use serde_json::{Map, Value, json};

use super::chunk::Chunk;
use crate::error::Failure;

/// A request in OpenAI's form, and what writes its answer.
#[derive(Debug)]
pub struct TranslatedRequest<T> {
    pub body: Bytes,
    pub teller: T,
    /// Fields that were sent and have no effect.
    pub ignored: Vec<String>,
}

impl<T> TranslatedRequest<T> {
    pub fn with<U>(self, teller: impl FnOnce(T) -> U) -> TranslatedRequest<U> {
        TranslatedRequest {
            body: self.body,
            teller: teller(self.teller),
            ignored: self.ignored,
        }
    }
}

/// What each dialect does with an answer.
pub trait Tell {
    fn chunk(&mut self, chunk: Chunk, told: &mut String);
    /// The engine has said all.
    fn end(&mut self, told: &mut String);
    /// Nothing more comes, and why. The error is OpenAI's object.
    fn failed(&mut self, error: &Value, told: &mut String);
}

/// The error object of a body that an engine answered; whatever else it said becomes its message.
pub fn error_in(text: &str) -> Value {
    let body: Option<Map<String, Value>> = serde_json::from_str(text).ok();
    let body = body.unwrap_or_default();
    match body.get("error") {
        Some(Value::Object(error)) => json!(error),
        Some(Value::String(message)) => json!({"message": message}),
        // As vLLM had it before it had OpenAI's form.
        _ if body.contains_key("message") => json!(body),
        _ => json!({"message": text.chars().take(1000).collect::<String>()}),
    }
}

/// One named event.
pub fn write_event(told: &mut String, name: &str, data: &Value) {
    told.push_str(&format!("event: {name}\ndata: {data}\n\n"));
}

/// `msg_0198…`, another each time.
pub fn new_id(prefix: &str) -> String {
    format!("{prefix}_{}", uuid::Uuid::now_v7().simple())
}

/// A picture that stands in the request itself; the pool fetches none.
pub fn data_url(url: String, field: &str) -> Result<String, Failure> {
    match url.starts_with("data:") {
        true => Ok(url),
        false => Err(Failure::invalid(
            field.to_owned(),
            format!(
                "`{field}` must be a data: URL (data:image/png;base64,…); nothing is fetched from other addresses"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engines_error_is_found_in_whatever_form_it_has() {
        assert_eq!(error_in(r#"{"error":{"message":"a"}}"#)["message"], "a");
        assert_eq!(error_in(r#"{"error":"b"}"#)["message"], "b");
        assert_eq!(error_in(r#"{"message":"c"}"#)["message"], "c");
        assert_eq!(error_in("no JSON")["message"], "no JSON");
    }

    #[test]
    fn pictures_stand_in_the_request_and_are_not_fetched() {
        assert!(data_url("data:image/png;base64,AA==".to_owned(), "x").is_ok());
        for url in ["https://example.org/a.png", "file:///etc/passwd", ""] {
            let failure = data_url(url.to_owned(), "input[0].content[0].image_url").unwrap_err();
            assert_eq!(
                failure.body.error.param.as_deref(),
                Some("input[0].content[0].image_url")
            );
        }
    }
}
