//! Other APIs' words for a chat: a request in them becomes OpenAI's, and the chat's answer, whole or event by
//! event, is told in them again. What is here converts; it finds no model and sends nothing.

pub(super) mod anthropic;
mod chunk;
pub(super) mod responses;
mod taken;

use axum::body::Bytes;
use serde_json::{Map, Value, json};

use self::chunk::Chunk;
pub(super) use self::taken::Taken;
use super::as_chat::AsChat;
use super::error::Failure;
use super::events::data_of;

/// How a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    OpenAi,
    Anthropic,
    Responses,
}

/// A request in OpenAI's words, and who tells its answer.
#[derive(Debug)]
pub(super) struct Asked {
    pub body: Bytes,
    pub teller: Teller,
    /// What was asked for and has no effect.
    pub ignored: Vec<String>,
}

impl Dialect {
    /// `now_seconds`: the Unix time, for answers that tell it.
    pub fn read(self, body: Bytes, now_seconds: u64) -> Result<Asked, Failure> {
        match self {
            Dialect::OpenAi => Ok(Asked {
                body,
                teller: Teller::Plain,
                ignored: Vec::new(),
            }),
            Dialect::Anthropic => anthropic::read(&body),
            Dialect::Responses => responses::read(&body, now_seconds),
        }
    }
}

/// Tells one answer. As it was made by the request, nothing is told yet.
#[derive(Clone, Debug)]
pub(super) enum Teller {
    /// OpenAI's chat, as it is.
    Plain,
    Anthropic(Box<anthropic::Message>),
    Responses(Box<responses::Response>),
}

/// What each dialect does with an answer.
trait Tell {
    fn chunk(&mut self, chunk: Chunk, told: &mut String);
    /// The engine has said all.
    fn end(&mut self, told: &mut String);
    /// Nothing more comes, and why. The error is OpenAI's object.
    fn failed(&mut self, error: &Value, told: &mut String);
}

impl Teller {
    /// The chat's whole answer in the client's words.
    pub fn whole(self, answer: Value) -> Result<Value, Failure> {
        match self {
            Teller::Plain => Ok(answer),
            Teller::Anthropic(message) => message.whole(Chunk::of_answer(&answer)),
            Teller::Responses(response) => response.whole(Chunk::of_answer(&answer)),
        }
    }

    fn told(&mut self) -> Option<&mut dyn Tell> {
        match self {
            Teller::Plain => None,
            Teller::Anthropic(message) => Some(message.as_mut()),
            Teller::Responses(response) => Some(response.as_mut()),
        }
    }
}

fn retold(teller: &mut dyn Tell, event: Vec<u8>) -> Vec<u8> {
    let Some(data) = data_of(&event) else {
        return event;
    };
    let mut told = String::new();
    if data == b"[DONE]" {
        teller.end(&mut told);
    } else if let Ok(value) = serde_json::from_slice::<Value>(data) {
        match value.get("error").filter(|error| !error.is_null()) {
            Some(error) => teller.failed(error, &mut told),
            None => teller.chunk(Chunk::of_event(&value), &mut told),
        }
    }
    told.into_bytes()
}

fn refused(teller: &mut dyn Tell, error: &Value) -> String {
    let mut told = String::new();
    teller.failed(error, &mut told);
    told
}

/// A stream on its way from an engine to a client.
#[derive(Debug)]
pub(super) struct Telling {
    as_chat: Option<AsChat>,
    teller: Teller,
}

impl Telling {
    pub fn new(as_chat: Option<AsChat>, teller: Teller) -> Telling {
        Telling { as_chat, teller }
    }

    /// One event of the engine in the client's words; nothing where they have none for it.
    pub fn event(&mut self, event: Vec<u8>) -> Vec<u8> {
        let event = match &mut self.as_chat {
            Some(chat) => chat.event(event),
            None => event,
        };
        match self.teller.told() {
            Some(teller) => retold(teller, event),
            None => event,
        }
    }

    /// Whether [`Telling::event`] does anything.
    pub fn changes(&self) -> bool {
        self.as_chat.is_some() || !matches!(self.teller, Teller::Plain)
    }

    /// The pool's own error as the last event.
    pub fn failed(&mut self, failure: &Failure) -> String {
        match self.teller.told() {
            Some(teller) => refused(teller, &json!(failure.body.error)),
            None => failure.sse(),
        }
    }

    /// What an engine refused, as the last event of a stream that had begun.
    pub fn engine_refused(&mut self, body: &[u8]) -> String {
        let text = String::from_utf8_lossy(body);
        match self.teller.told() {
            Some(teller) => refused(teller, &error_in(&text)),
            None => format!("data: {}\n\n", text.replace(['\n', '\r'], " ")),
        }
    }
}

/// The error object of a body that an engine answered; whatever else it said becomes its message.
fn error_in(text: &str) -> Value {
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
fn write_event(told: &mut String, name: &str, data: &Value) {
    told.push_str(&format!("event: {name}\ndata: {data}\n\n"));
}

/// `msg_0198…`, another each time.
fn new_id(prefix: &str) -> String {
    format!("{prefix}_{}", uuid::Uuid::now_v7().simple())
}

/// A picture that stands in the request itself; the pool fetches none.
fn data_url(url: String, field: &str) -> Result<String, Failure> {
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
    fn a_plain_stream_passes_as_it_is_and_ends_with_openais_error() {
        let mut plain = Telling::new(None, Teller::Plain);
        let event = b"data: {\"choices\":[]}\n\n".to_vec();
        assert_eq!(plain.event(event.clone()), event);
        let failure = Failure::ending("m");
        assert_eq!(plain.failed(&failure), failure.sse());
        assert_eq!(plain.engine_refused(b"a\nb"), "data: a b\n\n");
    }

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
