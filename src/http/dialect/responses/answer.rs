//! The `response` object: what the request had, what was said, how it ended. Its events are in `events`.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::chunk::{Chunk, Tokens};
use super::super::translation::new_id;
use crate::error::Failure;

/// One answer as far as it has been told.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    id: String,
    model: String,
    created_seconds: u64,
    /// Fields of the request that the answer repeats, as JSON: as values they would take many times that memory for as long
    /// as the request waits.
    echo: Arc<str>,
    pub(super) output: Vec<Item>,
    pub(super) finish: Option<String>,
    usage: Option<Tokens>,
    pub(super) sequence: u64,
    pub(super) has_begun: bool,
    pub(super) is_over: bool,
}

/// One item of the output, in its order.
#[derive(Clone, Debug)]
pub(super) enum Item {
    Said {
        id: String,
        text: String,
        is_done: bool,
    },
    Call {
        id: String,
        /// The chat's index of the call.
        index: u64,
        call_id: String,
        name: String,
        arguments: String,
    },
}

/// How an item or a response stands.
pub(super) const IN_PROGRESS: &str = "in_progress";
pub(super) const COMPLETED: &str = "completed";
pub(super) const INCOMPLETE: &str = "incomplete";

impl Response {
    pub fn of(model: String, echo: &Map<String, Value>, created_seconds: u64) -> Response {
        Response {
            id: new_id("resp"),
            model,
            created_seconds,
            echo: serde_json::to_string(echo).unwrap_or_default().into(),
            output: Vec::new(),
            finish: None,
            usage: None,
            sequence: 0,
            has_begun: false,
            is_over: false,
        }
    }

    pub(crate) fn whole(mut self, chunk: Chunk) -> Result<Value, Failure> {
        self.note(&chunk);
        if !chunk.text.is_empty() || chunk.calls.is_empty() {
            let text = chunk.text;
            self.output.push(Item::said(text));
        }
        for piece in chunk.calls {
            self.output.push(Item::Call {
                id: new_id("fc"),
                index: piece.index,
                call_id: piece.id.unwrap_or_else(|| new_id("call")),
                name: piece.name.unwrap_or_default(),
                arguments: piece.arguments,
            });
        }
        let status = self.status();
        Ok(self.told(status, None))
    }

    pub(super) fn note(&mut self, chunk: &Chunk) {
        if chunk.finish.is_some() {
            self.finish.clone_from(&chunk.finish);
        }
        self.usage = chunk.usage.or(self.usage);
    }

    /// What it is at its end.
    pub(super) fn status(&self) -> &'static str {
        match self.finish.as_deref() {
            Some("length" | "content_filter") => INCOMPLETE,
            _ => COMPLETED,
        }
    }

    /// The object as it stands. `error`: `code` and `message`, where it failed.
    pub(super) fn told(&self, status: &str, error: Option<Value>) -> Value {
        let has_ended = status != IN_PROGRESS;
        let reason = match self.finish.as_deref() {
            Some("content_filter") => "content_filter",
            _ => "max_output_tokens",
        };
        let details = (status == INCOMPLETE).then(|| json!({"reason": reason}));
        let output = match has_ended {
            true => self.output.iter().map(|item| item.told(status)).collect(),
            false => Vec::new(),
        };
        let mut all = json!({
            "id": self.id, "object": "response", "created_at": self.created_seconds,
            "status": status, "background": false, "error": error,
            "incomplete_details": details, "model": self.model, "output": output,
            "previous_response_id": null, "reasoning": {"effort": null, "summary": null},
            "service_tier": "default", "top_logprobs": 0, "truncation": "disabled",
        });
        if let Value::Object(all) = &mut all {
            let echo: Map<String, Value> = serde_json::from_str(&self.echo).unwrap_or_default();
            all.extend(echo);
        }
        if let Some(usage) = self.usage.filter(|_| has_ended) {
            all["usage"] = json!({
                "input_tokens": usage.prompt,
                "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
                "output_tokens": usage.completion,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning},
                "total_tokens": usage.prompt + usage.completion,
            });
        }
        all
    }
}

impl Item {
    pub fn said(text: String) -> Item {
        Item::Said {
            id: new_id("msg"),
            text,
            is_done: false,
        }
    }

    pub fn id(&self) -> &str {
        match self {
            Item::Said { id, .. } | Item::Call { id, .. } => id,
        }
    }

    /// The item in a response that stands so. What was done before the response broke off stays done.
    pub fn told(&self, status: &str) -> Value {
        let status = match status {
            COMPLETED | IN_PROGRESS => status,
            _ => INCOMPLETE,
        };
        match self {
            Item::Said { id, text, is_done } => {
                let status = if *is_done { COMPLETED } else { status };
                let content = match status {
                    IN_PROGRESS => json!([]),
                    _ => json!([part(text)]),
                };
                json!({"type": "message", "id": id, "status": status, "role": "assistant", "content": content})
            }
            Item::Call {
                id,
                call_id,
                name,
                arguments,
                ..
            } => {
                json!({"type": "function_call", "id": id, "call_id": call_id, "name": name,
                    "arguments": arguments, "status": status})
            }
        }
    }
}

pub(super) fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(answer: &Value) -> Value {
        let echo = json!({"instructions": null, "tools": [], "metadata": {"a": "b"}});
        let echo = echo.as_object().unwrap().clone();
        let response = Response::of("m".to_owned(), &echo, 7);
        response.whole(Chunk::of_answer(answer)).unwrap()
    }

    #[test]
    fn a_whole_answer_has_its_items_its_usage_and_what_was_asked() {
        let told = whole(
            &json!({"choices": [{"message": {"content": "Hi", "tool_calls": [
                {"id": "c", "function": {"name": "f", "arguments": "{}"}}]}, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}}),
        );
        assert_eq!(
            (&told["object"], &told["status"]),
            (&json!("response"), &json!("completed"))
        );
        assert_eq!(
            (&told["created_at"], &told["metadata"]),
            (&json!(7), &json!({"a": "b"}))
        );
        assert_eq!(told["output"][0]["content"][0], part("Hi"));
        assert_eq!(told["output"][0]["status"], "completed");
        assert_eq!(told["output"][1]["call_id"], "c");
        assert_eq!(told["usage"]["input_tokens_details"]["cached_tokens"], 4);
        assert_eq!(told["usage"]["total_tokens"], 10);
        assert_eq!(told["incomplete_details"], Value::Null);
    }

    #[test]
    fn an_answer_that_was_cut_short_is_incomplete_and_says_why() {
        for (finish, reason) in [
            ("length", "max_output_tokens"),
            ("content_filter", "content_filter"),
        ] {
            let told = whole(
                &json!({"choices": [{"message": {"content": "Hi"}, "finish_reason": finish}]}),
            );
            assert_eq!(told["status"], "incomplete");
            assert_eq!(told["incomplete_details"]["reason"], reason);
            assert_eq!(told["output"][0]["status"], "incomplete");
        }
    }
}
