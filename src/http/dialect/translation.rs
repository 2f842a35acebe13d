//! What all dialects need: a request in OpenAI's form, and how its answer is written in the client's.

use axum::body::Bytes;
use serde_json::{Map, Value, json};

use super::chunk::Chunk;
use super::reasoning::ReasoningRequest;
use super::seal::Sealer;
use crate::error::Failure;
use crate::stored::Desk;
use controller::Keep;

/// What a dialect needs beside the request itself.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// The Unix time, for answers that have one.
    pub now_seconds: u64,
    pub sealer: Sealer,
    /// Where responses are stored, if they are, and what of them the request refers to.
    pub desk: Option<Desk>,
}

/// What a request says that its chat does not, as the model's engine must be known for it.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    pub reasoning: ReasoningRequest,
    /// Top-level fields that the client's API does not have.
    pub unknown: Vec<String>,
    /// Fields of the chat, and what the client calls them.
    pub names: Vec<(&'static str, &'static str)>,
}

/// Further names are left out: a client can send any number of them.
const IGNORED_MAX: usize = 64;

/// Names of what has no effect, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ignored(Vec<String>);

impl Ignored {
    pub fn add(&mut self, name: impl AsRef<str> + Into<String>) {
        if self.0.len() < IGNORED_MAX && !self.0.iter().any(|known| known == name.as_ref()) {
            self.0.push(name.into());
        }
    }

    pub fn names(self) -> Vec<String> {
        self.0
    }
}

/// A request in OpenAI's form, and what writes its answer.
#[derive(Debug)]
pub struct TranslatedRequest<T> {
    pub body: Bytes,
    pub teller: T,
    /// Fields that were sent and have no effect.
    pub ignored: Vec<String>,
    /// Boxed, because the futures of a request move it several times.
    pub hints: Box<Hints>,
    /// How long the request keeps its replica, if it says so.
    pub keep: Option<Keep>,
}

impl<T> TranslatedRequest<T> {
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

/// What each dialect does with an answer.
pub trait Tell {
    fn chunk(&mut self, chunk: Chunk, output: &mut String);
    /// The engine's answer has ended.
    fn end(&mut self, output: &mut String);
    /// Nothing more comes, and why. The error is OpenAI's object.
    fn failed(&mut self, error: &Value, output: &mut String);
    /// Whether the client's stream has a form for comments.
    fn has_comments(&self) -> bool {
        true
    }
}

/// The arguments of an earlier call as a chat has them. A model may have written no JSON object: then they stay the text that
/// they are.
pub fn arguments_of(written: Option<Value>) -> String {
    match written {
        None => "{}".to_owned(),
        Some(Value::String(text)) => text,
        Some(value) => value.to_string(),
    }
}

/// The error object of a body that an engine answered; a body in any other form becomes its message.
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
pub fn write_event(output: &mut String, name: &str, data: &Value) {
    output.push_str(&format!("event: {name}\ndata: {data}\n\n"));
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
