//! Reads the chunks of a chat, or a complete response as a single chunk: text, tool call deltas, finish reason and
//! usage. The assembler reads the tool calls, which makes translated streams and translated responses agree.

use std::borrow::Cow;

use serde_json::{Map, Value};

use crate::assembler::calls::{CallDelta, CallTable, arguments_text, calls_in};
use crate::damaged::{CALLS_MAX, Damaged};

/// The error that a client receives when an engine calls more tools than a response may contain.
pub(crate) fn too_many_calls() -> Value {
    serde_json::json!({"message": Damaged::TooManyCalls.to_string(), "type": "server_error"})
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chunk {
    pub text: String,
    /// The model's reasoning before the response, if the engine reports it separately.
    pub reasoning: String,
    /// Tool calls. Contains one more than a response may have if the engine sent too many.
    pub calls: Vec<CallPiece>,
    /// OpenAI's `finish_reason`.
    pub finish: Option<String>,
    /// The matched stop sequence, if the engine reports it.
    pub(crate) stopped_by: Option<String>,
    pub usage: Option<Tokens>,
    /// Log probabilities of this chunk's tokens in OpenAI's chat form.
    pub logprobs: Vec<Value>,
    pub(crate) timings: Option<Timings>,
    /// OpenAI's `service_tier`.
    pub(crate) tier: Option<String>,
}

/// Durations measured by the engine, in milliseconds (llama-server).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Timings {
    pub(crate) prompt_ms: f64,
    pub(crate) predicted_ms: f64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallPiece {
    pub index: u64,
    pub id: Option<String>,
    pub name: Option<String>,
    pub arguments: String,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    pub prompt: u64,
    pub completion: u64,
    /// Prompt tokens read from the cache.
    pub cached: u64,
    /// Completion tokens used for reasoning.
    pub reasoning: u64,
}

/// Reads the chunks of one stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChunkReader {
    calls: CallTable,
    /// Number of calls that have begun.
    begun: usize,
    /// The last call, while its name is missing or its id has not arrived before its arguments.
    held: Option<CallPiece>,
    /// The field that holds the reasoning. Some engines send it in two fields.
    reasoning: Option<usize>,
    /// True once a part of a message has arrived.
    has_message: bool,
    /// Usage so far. Some engines count the prompt at the beginning and the rest at the end.
    usage: Option<Tokens>,
}

/// Message fields that may hold the reasoning.
const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_details"];

impl Chunk {
    /// Reads a complete response.
    pub(crate) fn of_response(response: &Value) -> Chunk {
        let mut reader = ChunkReader::default();
        let mut chunk = reader.read(response);
        chunk.calls.extend(reader.end().calls);
        chunk
    }

    #[cfg(test)]
    pub fn of_event(event: &Value) -> Chunk {
        let calls = event.pointer("/choices/0/delta/tool_calls");
        let calls = calls.map(calls_in).unwrap_or_default();
        let read = |(position, call)| {
            let delta = CallDelta::read(call, position);
            CallPiece {
                index: delta.label,
                id: delta.id.map(str::to_owned),
                name: delta.name.map(str::to_owned),
                arguments: delta.arguments.into_owned(),
            }
        };
        Chunk {
            calls: calls.iter().enumerate().map(read).collect(),
            ..ChunkReader::default().read(event)
        }
    }
}

impl ChunkReader {
    /// Reads the next chunk.
    pub fn read(&mut self, chunk: &Value) -> Chunk {
        let choice = chunk.pointer("/choices/0").and_then(Value::as_object);
        let usage = chunk.get("usage");
        let usage = usage.and_then(|usage| Tokens::read(usage, self.usage.unwrap_or_default()));
        self.usage = usage.or(self.usage);
        let mut read = Chunk {
            usage,
            timings: chunk.get("timings").and_then(Timings::read),
            tier: chunk
                .as_object()
                .and_then(|chunk| text_in(chunk, "service_tier")),
            ..Chunk::default()
        };
        let Some(choice) = choice else {
            return read;
        };
        let object = |name: &str| choice.get(name).and_then(Value::as_object);
        // A message instead of deltas counts once, as in the assembler.
        let message = object("delta").or_else(|| object("message").filter(|_| !self.has_message));
        if let Some(message) = message {
            self.has_message = true;
            self.message(message, &mut read);
        }
        // A text completion has no enclosing message.
        let completed = choice.get("text").and_then(Value::as_str);
        read.text.push_str(completed.unwrap_or_default());
        read.finish = text_in(choice, "finish_reason");
        read.stopped_by = text_in(choice, "stop_reason");
        let logprobs = choice
            .get("logprobs")
            .and_then(|logprobs| logprobs.get("content"));
        read.logprobs = logprobs
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default();
        read
    }

    /// Returns the remaining calls at the end of the stream.
    pub fn end(&mut self) -> Chunk {
        Chunk {
            calls: self.held.take().into_iter().collect(),
            ..Chunk::default()
        }
    }

    fn message(&mut self, message: &Map<String, Value>, read: &mut Chunk) {
        if let Some(content) = message.get("content") {
            add_content(content, read);
        }
        // A refusal is also text of the model.
        let refusal = message.get("refusal").and_then(Value::as_str);
        read.text.push_str(refusal.unwrap_or_default());
        let fields = match self.reasoning {
            Some(field) => field..field + 1,
            None => 0..REASONING.len(),
        };
        for field in fields {
            let reasoning = message
                .get(REASONING[field])
                .map(reasoning_in)
                .unwrap_or_default();
            if !reasoning.is_empty() {
                self.reasoning = Some(field);
                read.reasoning.push_str(&reasoning);
                break;
            }
        }
        let calls = message.get("tool_calls").map(calls_in).unwrap_or_default();
        for (position, call) in calls.iter().enumerate() {
            if call.is_object() {
                self.call(&CallDelta::read(call, position), read);
            }
        }
        // The older form for a single call.
        if let Some(function) = message.get("function_call").filter(|call| call.is_object()) {
            let name = function.get("name").and_then(Value::as_str);
            let delta = CallDelta {
                label: u64::MAX,
                id: None,
                name: name.filter(|name| !name.is_empty()),
                arguments: arguments_text(function.get("arguments")),
            };
            self.call(&delta, read);
        }
    }

    fn call(&mut self, delta: &CallDelta<'_>, read: &mut Chunk) {
        let Ok(placed) = self.calls.place(delta) else {
            // Every translation refuses one call more than a response may have.
            read.calls.push(CallPiece {
                index: CALLS_MAX as u64,
                ..CallPiece::default()
            });
            return;
        };
        let index = placed.position as u64;
        let piece = CallPiece {
            index,
            id: delta.id.filter(|_| placed.sets_id).map(str::to_owned),
            name: delta.name.filter(|_| placed.sets_name).map(str::to_owned),
            arguments: delta.arguments.clone().into_owned(),
        };
        // Calls begin in order, including those without a name.
        if self.held.as_ref().is_some_and(|held| held.index != index) {
            read.calls.extend(self.held.take());
        }
        let piece = match self.held.take() {
            Some(held) => held.with(piece),
            None if placed.position < self.begun => {
                read.calls.push(piece);
                return;
            }
            None => piece,
        };
        self.begun = placed.position + 1;
        let is_known = piece.id.is_some() || !piece.arguments.is_empty();
        if piece.name.is_some() && is_known {
            read.calls.push(piece);
        } else {
            self.held = Some(piece);
        }
    }
}

/// Adds a string, or a list of text and reasoning parts (Mistral).
fn add_content(content: &Value, read: &mut Chunk) {
    match content {
        Value::String(text) => read.text.push_str(text),
        Value::Array(parts) => {
            for part in parts {
                let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
                match kind {
                    "thinking" | "reasoning" => read.reasoning.push_str(&reasoning_in(part)),
                    _ => {
                        let text = part.get("text").or_else(|| part.get("refusal"));
                        read.text
                            .push_str(text.and_then(Value::as_str).unwrap_or_default());
                    }
                }
            }
        }
        _ => {}
    }
}

/// The text of a reasoning field, of its parts, or of its details.
fn reasoning_in(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Array(parts) => parts.iter().map(reasoning_in).collect::<String>().into(),
        Value::Object(part) => {
            let names = ["text", "thinking", "reasoning", "summary"];
            let text = names.into_iter().find_map(|name| part.get(name));
            text.map(reasoning_in).unwrap_or_default()
        }
        _ => Cow::Borrowed(""),
    }
}

impl Timings {
    fn read(timings: &Value) -> Option<Timings> {
        let milliseconds = |name: &str| {
            let number = timings.get(name).and_then(Value::as_f64)?;
            (number.is_finite() && number >= 0.0).then_some(number)
        };
        Some(Timings {
            prompt_ms: milliseconds("prompt_ms")?,
            predicted_ms: milliseconds("predicted_ms")?,
        })
    }
}

impl CallPiece {
    /// Appends the next piece of the same call.
    fn with(self, more: CallPiece) -> CallPiece {
        CallPiece {
            index: self.index,
            id: self.id.or(more.id),
            name: self.name.or(more.name),
            arguments: self.arguments + &more.arguments,
        }
    }
}

impl Tokens {
    /// Reads a usage object. Counts that are missing keep their value in `before`.
    fn read(usage: &Value, before: Tokens) -> Option<Tokens> {
        let count = |path: &str, before: u64| {
            usage
                .pointer(path)
                .and_then(Value::as_u64)
                .unwrap_or(before)
        };
        usage.is_object().then(|| Tokens {
            prompt: count("/prompt_tokens", before.prompt),
            completion: count("/completion_tokens", before.completion),
            cached: count("/prompt_tokens_details/cached_tokens", before.cached),
            reasoning: count(
                "/completion_tokens_details/reasoning_tokens",
                before.reasoning,
            ),
        })
    }
}

fn text_in(fields: &Map<String, Value>, name: &str) -> Option<String> {
    let text = fields.get(name).and_then(Value::as_str);
    text.filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_chunk_and_a_complete_response_are_parsed_alike() {
        let calls =
            json!([{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
        let response = json!({"choices": [{"message": {"content": "hi", "tool_calls": calls}, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}});
        let read = Chunk::of_response(&response);
        assert_eq!(
            (read.text.as_str(), read.finish.as_deref()),
            ("hi", Some("tool_calls"))
        );
        assert_eq!(read.calls[0].name.as_deref(), Some("f"));
        let tokens = Tokens {
            prompt: 3,
            completion: 2,
            cached: 1,
            reasoning: 0,
        };
        assert_eq!(read.usage, Some(tokens));
        let event = json!({"choices": [{"delta": {"tool_calls": [{"index": 1, "function": {"arguments": "{"}}]}, "stop_reason": 2}]});
        let read = Chunk::of_event(&event);
        assert_eq!(
            (read.calls[0].index, read.calls[0].arguments.as_str()),
            (1, "{")
        );
        assert_eq!((read.stopped_by, read.usage), (None, None));
        assert_eq!(
            Chunk::of_event(&json!({"choices": [], "usage": null})),
            Chunk::default()
        );
    }

    #[test]
    fn reasoning_logprobs_and_timings_are_read_from_a_chunk() {
        let event = json!({"choices": [{"delta": {"reasoning_content": "hm", "reasoning": "hm"},
            "logprobs": {"content": [{"token": "a", "logprob": -1.0}]}}],
            "timings": {"prompt_ms": 1.5, "predicted_ms": 2.0}});
        let read = Chunk::of_event(&event);
        assert_eq!((read.reasoning.as_str(), read.logprobs.len()), ("hm", 1));
        assert_eq!(read.timings.unwrap().prompt_ms, 1.5);
        let text =
            json!({"choices": [{"text": "b", "logprobs": null}], "timings": {"prompt_ms": -1}});
        let read = Chunk::of_response(&text);
        assert_eq!((read.text.as_str(), read.timings), ("b", None));
    }
}
