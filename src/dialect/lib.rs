//! Translates other chat APIs: a request becomes an OpenAI request, and the chat's response is translated back, complete or event
//! by event. Routing and sending are done by the callers.

pub mod anthropic;
pub mod as_chat;
pub mod as_stream;
pub mod assembler;
mod background_run;
pub mod body;
mod chat;
mod chunk;
mod custom;
pub mod damaged;
pub mod events;
mod fields;
mod grammar;
mod ids;
pub mod ollama;
pub mod overflow;
mod reasoning;
pub mod repeated;
pub mod responses;
mod seal;
pub mod shape;
pub mod stored;
mod translation;
pub mod usage;

use axum::body::Bytes;
use serde_json::{Value, json};

use self::chunk::{Chunk, ChunkReader};
pub use self::fields::{RequestFields, parse_some, refuse_unknown};
pub use self::reasoning::ReasoningRequest;
pub use self::seal::Sealer;
pub use self::seal::{Seal, SealError};
use self::translation::Tell;
pub use self::translation::{Hints, Reading, TranslatedRequest, error_in};
use crate::as_chat::AsChat;
use crate::events::data_of;
use crate::stored::Unwritten;
use api_types::error::Failure;

pub const CHAT: &str = "/v1/chat/completions";
pub const COMPLETIONS: &str = "/v1/completions";

/// The API that a client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    OpenAi,
    Anthropic,
    Responses,
}

impl Dialect {
    /// Returns true if [`Dialect::read`] reads the entire body, which takes time and memory.
    pub fn reads(self, body: &[u8]) -> bool {
        match self {
            Dialect::OpenAi => chat::may_be_custom(body),
            Dialect::Anthropic | Dialect::Responses => true,
        }
    }

    pub fn read(
        self,
        body: Bytes,
        reading: &Reading,
    ) -> Result<TranslatedRequest<Teller>, Failure> {
        match self {
            Dialect::OpenAi => {
                let read = chat::read(body)?;
                let teller = |calls: Option<chat::CustomCalls>| match calls {
                    None => Teller::Plain,
                    Some(calls) => Teller::Custom(Box::new(calls)),
                };
                Ok(read.with(teller))
            }
            Dialect::Anthropic => {
                let read = anthropic::read(&body, reading)?;
                Ok(read.with(|message| Teller::Anthropic(Box::new(message))))
            }
            Dialect::Responses => {
                let read = responses::read(&body, reading)?;
                Ok(read.with(|response| Teller::Responses(Box::new(response))))
            }
        }
    }
}

/// Translates one response.
#[derive(Clone, Debug)]
pub enum Teller {
    /// An OpenAI chat, unchanged.
    Plain,
    /// An OpenAI chat with functions for custom tools.
    Custom(Box<chat::CustomCalls>),
    Anthropic(Box<anthropic::Message>),
    Responses(Box<responses::Response>),
    Compaction(Box<responses::Compaction>),
    Ollama(Box<ollama::Answer>),
}

impl Teller {
    /// Translates a complete chat response.
    pub fn respond(self, reply: Value) -> Result<Value, Failure> {
        match self {
            Teller::Plain => Ok(reply),
            Teller::Custom(calls) => Ok(calls.respond(reply)),
            Teller::Anthropic(message) => message.respond(Chunk::of_response(&reply)),
            Teller::Responses(response) => response.respond(Chunk::of_response(&reply)),
            Teller::Compaction(summary) => summary.respond(Chunk::of_response(&reply)),
            Teller::Ollama(output) => output.respond(Chunk::of_response(&reply)),
        }
    }

    /// Resolves when the response may be sent: after it is on disk, if the client requires it. Fails if it could not be written.
    pub async fn stored(&self) -> Result<(), Unwritten> {
        match self {
            Teller::Responses(response) => response.stored().await,
            _ => Ok(()),
        }
    }

    /// Notes the tier of the request for APIs that always name one. `follows_engine`: a tier that the engine names replaces it.
    pub fn set_tier(&mut self, tier: &'static str, follows_engine: bool) {
        if let Teller::Responses(response) = self {
            response.set_tier(tier, follows_engine);
        }
    }

    /// Sets the model's name in the response of an API that repeats the name of the request.
    pub fn set_model(&mut self, name: &str) {
        match self {
            Teller::Plain | Teller::Custom(_) | Teller::Compaction(_) => {}
            Teller::Anthropic(message) => message.set_model(name),
            Teller::Responses(response) => response.set_model(name),
            Teller::Ollama(output) => output.set_model(name),
        }
    }

    /// Notes that the request has its seat.
    #[inline]
    pub fn seated(&self) {
        if let Teller::Ollama(output) = self {
            output.seated();
        }
    }

    /// Notes that the engine has started its response.
    #[inline]
    pub fn begun(&self) {
        if let Teller::Ollama(output) = self {
            output.begun();
        }
    }

    /// Writes a comment of the pool that keeps a waiting stream alive.
    pub fn comment(&self, comment: String) -> String {
        match self {
            Teller::Ollama(_) => ollama::PAUSE.to_owned(),
            // Anthropic's clients expect pings, and some treat comments as silence.
            Teller::Anthropic(_) => comment + anthropic::PING,
            _ => comment,
        }
    }

    /// The keep-alive to send while the model is silent. `None` if the client would read it as a response, or receives the engine's
    /// own keep-alive.
    #[inline]
    pub fn pause(&self) -> Option<&'static str> {
        match self {
            Teller::Anthropic(_) => Some(anthropic::PING),
            Teller::Responses(_) => Some(": waiting for the model\n\n"),
            Teller::Plain | Teller::Custom(_) | Teller::Ollama(_) | Teller::Compaction(_) => None,
        }
    }

    /// The `Content-Type` of streams.
    pub fn stream_type(&self) -> &'static str {
        match self {
            Teller::Ollama(_) => ollama::STREAM_TYPE,
            _ => "text/event-stream",
        }
    }

    fn translator(&mut self) -> Option<&mut dyn Tell> {
        match self {
            Teller::Plain | Teller::Custom(_) | Teller::Compaction(_) => None,
            Teller::Anthropic(message) => Some(message.as_mut()),
            Teller::Responses(response) => Some(response.as_mut()),
            Teller::Ollama(output) => Some(output.as_mut()),
        }
    }
}

fn retold(teller: &mut dyn Tell, reader: &mut ChunkReader, event: Vec<u8>) -> Vec<u8> {
    let Some(data) = data_of(&event) else {
        return if teller.has_comments() {
            event
        } else {
            Vec::new()
        };
    };
    let mut output = String::new();
    if *data == *b"[DONE]" {
        let rest = reader.end();
        if !rest.calls.is_empty() {
            teller.chunk(rest, &mut output);
        }
        teller.end(&mut output);
    } else if let Ok(value) = serde_json::from_slice::<Value>(&data) {
        match value.get("error").filter(|error| !error.is_null()) {
            Some(error) => teller.failed(error, &mut output),
            None => teller.chunk(reader.read(&value), &mut output),
        }
    }
    output.into_bytes()
}

fn refused(teller: &mut dyn Tell, error: &Value) -> String {
    let mut output = String::new();
    teller.failed(error, &mut output);
    output
}

/// Translates the stream of one response.
#[derive(Debug)]
pub struct Telling {
    as_chat: Option<AsChat>,
    reader: ChunkReader,
    teller: Teller,
}

impl Telling {
    pub fn new(as_chat: Option<AsChat>, teller: Teller) -> Telling {
        Telling {
            as_chat,
            reader: ChunkReader::default(),
            teller,
        }
    }

    /// Translates one event of the engine. The result is empty if the client's API has no such event.
    pub fn event(&mut self, event: Vec<u8>) -> Vec<u8> {
        let event = match &mut self.as_chat {
            Some(chat) => chat.event(event),
            None => event,
        };
        if let Teller::Custom(calls) = &mut self.teller {
            return calls.event(event);
        }
        match self.teller.translator() {
            Some(teller) => retold(teller, &mut self.reader, event),
            None => event,
        }
    }

    /// Returns true if the engine's response has ended and the last event waits for [`Telling::closed`].
    #[inline]
    pub fn is_held(&self) -> bool {
        matches!(&self.teller, Teller::Responses(response) if response.is_held())
    }

    /// Waits until the response is on disk (for a bounded time) and returns the last event.
    pub async fn closed(&mut self) -> String {
        match &mut self.teller {
            Teller::Responses(response) => response.closed().await,
            _ => String::new(),
        }
    }

    /// The keep-alive to send while the model is silent.
    pub fn pause(&self) -> Option<&'static str> {
        self.teller.pause()
    }

    /// Returns true if the client receives OpenAI's chunks.
    #[inline]
    pub fn is_chat(&self) -> bool {
        matches!(self.teller, Teller::Plain | Teller::Custom(_))
    }

    /// Returns true if [`Telling::event`] changes events.
    #[inline]
    pub fn changes(&self) -> bool {
        self.as_chat.is_some() || !matches!(self.teller, Teller::Plain)
    }

    /// Reports an error of the pool as the last event.
    pub fn failed(&mut self, failure: &Failure) -> String {
        match self.teller.translator() {
            Some(teller) => refused(teller, &json!(failure.body.error)),
            None => failure.sse(),
        }
    }

    /// Reports an engine's refusal as the last event of a stream that has begun.
    pub fn engine_refused(&mut self, body: &[u8]) -> String {
        let text = String::from_utf8_lossy(body);
        match self.teller.translator() {
            Some(teller) => refused(teller, &error_in(&text)),
            None => format!("data: {}\n\n", text.replace(['\n', '\r'], " ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_stream_passes_unchanged_and_errors_use_openais_format() {
        let mut plain = Telling::new(None, Teller::Plain);
        let event = b"data: {\"choices\":[]}\n\n".to_vec();
        assert_eq!(plain.event(event.clone()), event);
        let failure = Failure::ending("m");
        assert_eq!(plain.failed(&failure), failure.sse());
        assert_eq!(plain.engine_refused(b"a\nb"), "data: a b\n\n");
    }
}
