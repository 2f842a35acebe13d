//! Types shared by all dialects: a request in OpenAI's form, and the writer of its response.

use std::sync::Arc;

use axum::body::Bytes;
use serde_json::{Map, Value, json};

use super::chunk::Chunk;
use super::reasoning::ReasoningRequest;
use super::seal::Sealer;
use crate::background_run::BackgroundRun;
use crate::stored::Desk;
use api_types::error::Failure;
use controller::KeepHotOverride;

/// Context for reading a request.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The Unix time, for responses that contain it.
    pub now_seconds: u64,
    pub sealer: Sealer,
    /// Storage for responses, if enabled, with the items that the request refers to.
    pub desk: Option<Desk>,
    /// The run, if the response is a background response.
    pub background: Option<Arc<BackgroundRun>>,
}

/// Request properties that apply once the model's engine is known.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    pub reasoning: ReasoningRequest,
    /// Top-level fields that the client's API does not have.
    pub unknown: Vec<String>,
    /// Chat fields and the client's names for them.
    pub names: Vec<(&'static str, &'static str)>,
}

/// A request in OpenAI's form, and the writer of its response.
#[derive(Clone, Debug)]
pub struct TranslatedRequest<T> {
    pub body: Bytes,
    pub teller: T,
    /// Fields without effect.
    pub ignored: Vec<String>,
    /// Boxed because the request's futures are moved several times.
    pub hints: Box<Hints>,
    /// Time that the request asks its replica to stay.
    pub keep: Option<KeepHotOverride>,
}

impl<T> TranslatedRequest<T> {
    /// A request that is already in OpenAI's form.
    pub fn plain(body: Bytes, teller: T) -> TranslatedRequest<T> {
        TranslatedRequest {
            body,
            teller,
            ignored: Vec::new(),
            hints: Box::default(),
            keep: None,
        }
    }

    pub fn with<U>(self, teller: impl FnOnce(T) -> U) -> TranslatedRequest<U> {
        TranslatedRequest {
            body: self.body,
            teller: teller(self.teller),
            ignored: self.ignored,
            hints: self.hints,
            keep: self.keep,
        }
    }
}

/// Writes a chat's response in the client's form.
pub trait Tell {
    fn chunk(&mut self, chunk: Chunk, output: &mut String);
    /// Ends the response.
    fn end(&mut self, output: &mut String);
    /// Ends the response with an error, given as OpenAI's error object.
    fn failed(&mut self, error: &Value, output: &mut String);
    /// Returns true if the client's stream format allows comments.
    fn has_comments(&self) -> bool {
        true
    }
}

/// The arguments of an earlier call in a chat's form. Text that is not a JSON object stays text.
pub(crate) fn arguments_of(written: Option<Value>) -> String {
    match written {
        None => "{}".to_owned(),
        Some(Value::String(text)) => text,
        Some(value) => value.to_string(),
    }
}

/// The error object of an engine's error body. A body in any other form becomes the message.
pub fn error_in(text: &str) -> Value {
    let body: Option<Map<String, Value>> = serde_json::from_str(text).ok();
    let body = body.unwrap_or_default();
    match body.get("error") {
        Some(Value::Object(error)) => json!(error),
        Some(Value::String(message)) => json!({"message": message}),
        // vLLM's form before it adopted OpenAI's.
        _ if body.contains_key("message") => json!(body),
        _ => json!({"message": text.chars().take(1000).collect::<String>()}),
    }
}

/// Writes a named event.
pub(crate) fn write_event(output: &mut String, name: &str, data: &Value) {
    output.push_str(&format!("event: {name}\ndata: {data}\n\n"));
}

/// Checks for an image embedded in the request; the pool does not fetch images.
pub(crate) fn data_url(url: String, field: &str) -> Result<String, Failure> {
    if url.starts_with("data:") {
        Ok(url)
    } else {
        Err(Failure::invalid(
            field.to_owned(),
            format!(
                "`{field}` must be a data: URL (data:image/png;base64,…); other addresses are not fetched"
            ),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engines_error_is_extracted_from_every_known_form() {
        assert_eq!(error_in(r#"{"error":{"message":"a"}}"#)["message"], "a");
        assert_eq!(error_in(r#"{"error":"b"}"#)["message"], "b");
        assert_eq!(error_in(r#"{"message":"c"}"#)["message"], "c");
        assert_eq!(error_in("no JSON")["message"], "no JSON");
    }

    #[test]
    fn images_are_accepted_inline_and_never_fetched() {
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
