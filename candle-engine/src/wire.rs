//! Owns the JSON of answers, in OpenAI's exact shapes. Never decides what is in them.

use serde_json::{Value, json};

/// Which of the two routes answers.
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
    fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        })
    }
}

/// What all answers to one request have in common.
#[derive(Debug, Clone)]
pub(crate) struct Envelope {
    pub route: Route,
    pub id: String,
    pub created_unix_seconds: u64,
    pub model: String,
    /// Chunks carry `usage: null` where the last one carries the figures.
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

    /// The whole answer; `choices` are texts with their finish reasons.
    pub fn answer(&self, choices: &[(String, &str)], usage: Usage) -> Value {
        let choices: Vec<Value> = choices
            .iter()
            .enumerate()
            .map(|(index, (text, reason))| match self.route {
                Route::Chat => json!({
                    "index": index, "message": {"role": "assistant", "content": text, "refusal": null}, "logprobs": null, "finish_reason": reason,
                }),
                Route::Completion => json!({"index": index, "text": text, "logprobs": null, "finish_reason": reason}),
            })
            .collect();
        let object = if self.route == Route::Chat {
            "chat.completion"
        } else {
            "text_completion"
        };
        let mut answer = self.head(object, json!(choices));
        answer["usage"] = usage.json();
        answer
    }

    /// The first chunk of a choice; completions have none.
    pub fn role_chunk(&self, index: usize) -> Option<Value> {
        (self.route == Route::Chat)
            .then(|| self.chunk(index, json!({"role": "assistant", "content": ""}), "", None))
    }

    pub fn text_chunk(&self, index: usize, text: &str) -> Value {
        self.chunk(index, json!({"content": text}), text, None)
    }

    pub fn finish_chunk(&self, index: usize, reason: &str) -> Value {
        self.chunk(index, json!({}), "", Some(reason))
    }

    pub fn usage_chunk(&self, usage: Usage) -> Value {
        let mut chunk = self.head(self.chunk_object(), json!([]));
        chunk["usage"] = usage.json();
        chunk
    }

    fn chunk(&self, index: usize, delta: Value, text: &str, reason: Option<&str>) -> Value {
        let choice = match self.route {
            Route::Chat => {
                json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": reason})
            }
            Route::Completion => {
                json!({"index": index, "text": text, "logprobs": null, "finish_reason": reason})
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
