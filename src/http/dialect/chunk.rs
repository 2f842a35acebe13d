//! Reads one chunk of a chat, or a complete answer as if it were one: text, pieces of tool calls, why it ended, its
//! usage. It keeps nothing from one chunk to the next.

use serde_json::{Map, Value};

use crate::inference::answer::damaged::{CALLS_MAX, Damaged};

/// What a client hears where an engine calls more tools than an answer has.
pub fn too_many_calls() -> Value {
    serde_json::json!({"message": Damaged::TooManyCalls.to_string(), "type": "server_error"})
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chunk {
    pub text: String,
    /// What the model thought before it answered, where the engine tells it apart.
    pub reasoning: String,
    /// One more than an answer has where there are too many.
    pub calls: Vec<CallPiece>,
    /// OpenAI's `finish_reason`.
    pub finish: Option<String>,
    /// The stop sequence that was met, where the engine says so.
    pub stopped_by: Option<String>,
    pub usage: Option<Tokens>,
    /// Of the tokens of this chunk, as OpenAI's chat has them.
    pub logprobs: Vec<Value>,
    pub timings: Option<Timings>,
}

/// What the engine itself measured, in milliseconds (llama-server).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timings {
    pub prompt_ms: f64,
    pub predicted_ms: f64,
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
    /// Of the prompt's.
    pub cached: u64,
    /// Of the completion's.
    pub reasoning: u64,
}

impl Chunk {
    pub fn of_event(event: &Value) -> Chunk {
        Chunk::read(event, "delta")
    }

    pub fn of_answer(answer: &Value) -> Chunk {
        Chunk::read(answer, "message")
    }

    fn read(chunk: &Value, key: &str) -> Chunk {
        let choice = chunk.pointer("/choices/0").and_then(Value::as_object);
        let choice = choice.cloned().unwrap_or_default();
        let message = choice.get(key).and_then(Value::as_object);
        let empty = Map::new();
        let message = message.unwrap_or(&empty);
        let text = |name: &str| message.get(name).and_then(Value::as_str);
        let calls = message.get("tool_calls").and_then(Value::as_array);
        let calls = calls.into_iter().flatten().take(CALLS_MAX + 1).zip(0..);
        // A completed text has no message around it.
        let completed = choice.get("text").and_then(Value::as_str);
        let logprobs = choice.get("logprobs").and_then(|it| it.get("content"));
        Chunk {
            // A refusal is a text of the model, too.
            text: [text("content"), text("refusal"), completed]
                .into_iter()
                .flatten()
                .collect(),
            // Engines have two names for it, and some send both.
            reasoning: text("reasoning_content")
                .or(text("reasoning"))
                .unwrap_or_default()
                .to_owned(),
            calls: calls
                .map(|(call, nth)| CallPiece::read(call, nth))
                .collect(),
            finish: text_in(&choice, "finish_reason"),
            stopped_by: text_in(&choice, "stop_reason"),
            usage: chunk.get("usage").and_then(Tokens::read),
            logprobs: logprobs
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
            timings: chunk.get("timings").and_then(Timings::read),
        }
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
    fn read(call: &Value, nth: u64) -> CallPiece {
        let text = |path: &str| call.pointer(path).and_then(Value::as_str);
        let filled = |path: &str| text(path).filter(|it| !it.is_empty()).map(str::to_owned);
        CallPiece {
            index: call.get("index").and_then(Value::as_u64).unwrap_or(nth),
            id: filled("/id"),
            name: filled("/function/name"),
            arguments: text("/function/arguments").unwrap_or_default().to_owned(),
        }
    }
}

impl Tokens {
    fn read(usage: &Value) -> Option<Tokens> {
        let count = |path: &str| usage.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        usage.is_object().then(|| Tokens {
            prompt: count("/prompt_tokens"),
            completion: count("/completion_tokens"),
            cached: count("/prompt_tokens_details/cached_tokens"),
            reasoning: count("/completion_tokens_details/reasoning_tokens"),
        })
    }
}

fn text_in(fields: &Map<String, Value>, name: &str) -> Option<String> {
    fields.get(name).and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_chunk_and_a_whole_answer_are_read_alike() {
        let calls =
            json!([{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]);
        let answer = json!({"choices": [{"message": {"content": "hi", "tool_calls": calls}, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}});
        let read = Chunk::of_answer(&answer);
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
    fn thoughts_log_probabilities_and_measured_times_are_read_where_they_are() {
        let event = json!({"choices": [{"delta": {"reasoning_content": "hm", "reasoning": "hm"},
            "logprobs": {"content": [{"token": "a", "logprob": -1.0}]}}],
            "timings": {"prompt_ms": 1.5, "predicted_ms": 2.0}});
        let read = Chunk::of_event(&event);
        assert_eq!((read.reasoning.as_str(), read.logprobs.len()), ("hm", 1));
        assert_eq!(read.timings.unwrap().prompt_ms, 1.5);
        let text =
            json!({"choices": [{"text": "b", "logprobs": null}], "timings": {"prompt_ms": -1}});
        let read = Chunk::of_answer(&text);
        assert_eq!((read.text.as_str(), read.timings), ("b", None));
    }
}
