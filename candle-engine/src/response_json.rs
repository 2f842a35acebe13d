//! The JSON of responses, exactly as in OpenAI's API.

use crate::tools::ToolCall;
use serde_json::{Value, json};

/// The route of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    Chat,
    Completion,
}

/// Token counts of one request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub prompt_tokens: usize,
    pub completion_tokens: usize,
}

impl Usage {
    pub fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        })
    }
}

/// A complete choice.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choice {
    pub text: String,
    /// The model's reasoning.
    pub reasoning: String,
    /// `null` unless requested.
    pub logprobs: Value,
    pub calls: Vec<Value>,
    pub reason: &'static str,
    /// The client's stop string or token that ended it, as in vLLM; `null` if none did.
    pub stop: Value,
}

/// The content that a chunk adds to a choice.
#[derive(Debug, Clone, Default)]
pub(crate) struct Delta {
    pub text: String,
    pub reasoning: String,
    pub logprobs: Value,
    pub calls: Vec<Value>,
}

/// The fields that all parts of a response share.
#[derive(Debug, Clone)]
pub(crate) struct Envelope {
    pub route: Route,
    pub id: String,
    pub created_unix_seconds: u64,
    pub model: String,
    /// The last chunk carries the usage, and the others `usage: null`.
    pub include_usage: bool,
}

impl Envelope {
    pub fn new(route: Route, model: &str, include_usage: bool) -> Self {
        let prefix = if route == Route::Chat {
            "chatcmpl"
        } else {
            "cmpl"
        };
        Self {
            route,
            id: format!("{prefix}-{:032x}", rand::random::<u128>()),
            created_unix_seconds: crate::calendar::unix_seconds(),
            model: model.to_owned(),
            include_usage,
        }
    }

    /// The complete response.
    pub fn response_body(&self, choices: Vec<Choice>, usage: Usage) -> Value {
        let choices: Vec<Value> = choices
            .into_iter()
            .enumerate()
            .map(|(index, choice)| match self.route {
                Route::Chat => with_stop(json!({
                    "index": index, "message": message(choice.text, choice.reasoning, choice.calls), "logprobs": choice.logprobs, "finish_reason": choice.reason,
                }), choice.stop),
                Route::Completion => with_stop(json!({
                    "index": index, "text": choice.text, "logprobs": choice.logprobs, "finish_reason": choice.reason,
                }), choice.stop),
            })
            .collect();
        let object = if self.route == Route::Chat {
            "chat.completion"
        } else {
            "text_completion"
        };
        let mut response = self.head(object, json!(choices));
        response["usage"] = usage.json();
        response
    }

    /// The first chunk of a chat choice; completions have none. Has no content if the choice may consist only of calls.
    pub fn role_chunk(&self, index: usize, may_call: bool) -> Option<Value> {
        let content = if may_call { Value::Null } else { json!("") };
        let delta = json!({"role": "assistant", "content": content});
        (self.route == Route::Chat).then(|| self.chunk(index, delta, "", Value::Null, None))
    }

    pub fn delta_chunk(&self, index: usize, delta: Delta) -> Value {
        let mut content = json!({});
        let is_else = !delta.calls.is_empty() || !delta.reasoning.is_empty();
        if !delta.text.is_empty() || !is_else {
            content["content"] = json!(delta.text);
        }
        if !delta.reasoning.is_empty() {
            content["reasoning_content"] = json!(delta.reasoning);
        }
        if !delta.calls.is_empty() {
            content["tool_calls"] = json!(delta.calls);
        }
        self.chunk(index, content, &delta.text, delta.logprobs, None)
    }

    pub fn finish_chunk(&self, index: usize, reason: &str, stop: Value) -> Value {
        let mut chunk = self.chunk(index, json!({}), "", Value::Null, Some(reason));
        let choice = chunk["choices"][0].take();
        chunk["choices"][0] = with_stop(choice, stop);
        chunk
    }

    pub fn usage_chunk(&self, usage: Usage) -> Value {
        let mut chunk = self.head(self.chunk_object(), json!([]));
        chunk["usage"] = usage.json();
        chunk
    }

    fn chunk(
        &self,
        index: usize,
        delta: Value,
        text: &str,
        logprobs: Value,
        reason: Option<&str>,
    ) -> Value {
        let choice = match self.route {
            Route::Chat => {
                json!({"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason})
            }
            Route::Completion => {
                json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason})
            }
        };
        let mut chunk = self.head(self.chunk_object(), json!([choice]));
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn chunk_object(&self) -> &'static str {
        if self.route == Route::Chat {
            "chat.completion.chunk"
        } else {
            "text_completion"
        }
    }

    fn head(&self, object: &str, choices: Value) -> Value {
        json!({"id": self.id, "object": object, "created": self.created_unix_seconds, "model": self.model, "choices": choices})
    }
}

/// A call with a new id. `index` is its position among the calls of a streamed choice.
pub(crate) fn tool_call(call: &ToolCall, index: Option<usize>) -> Value {
    let id = format!("call_{:024x}", rand::random::<u128>() >> 32);
    let mut json = json!({
        "id": id, "type": "function", "function": {"name": call.name, "arguments": call.arguments},
    });
    if let Some(index) = index {
        json["index"] = json!(index);
    }
    json
}

/// Adds `stop_reason` only if there is one: OpenAI's schema of a choice does not have this field.
fn with_stop(mut choice: Value, stop: Value) -> Value {
    if !stop.is_null() {
        choice["stop_reason"] = stop;
    }
    choice
}

/// The content of a message with only calls is null.
fn message(text: String, reasoning: String, calls: Vec<Value>) -> Value {
    let content = if text.is_empty() && !calls.is_empty() {
        Value::Null
    } else {
        Value::from(text)
    };
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if !reasoning.is_empty() {
        message["reasoning_content"] = json!(reasoning);
    }
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    message
}
