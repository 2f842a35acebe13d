//! vLLM's JSON responses, complete and streamed, for chats and plain completions. The text is always `Hello from NAME and goodbye`,
//! unless the request determines another.

use serde_json::{Value, json};

use crate::tools::SpecialOutput;

const CREATED: u64 = 1_700_000_000;
const WORDS: [&str; 5] = ["Hello", " from", " vLLM", " and", " goodbye"];
const PROMPT_TOKENS: u64 = 3;

pub struct DoubleResponse {
    pub is_chat: bool,
    pub model: String,
    pub is_stream: bool,
    pub with_usage: bool,
    pub tokens: u64,
    is_cut: bool,
    special: Option<SpecialOutput>,
}

impl DoubleResponse {
    /// Fails with the name of the missing field.
    pub fn to(is_chat: bool, request: &Value, most: u64) -> Result<DoubleResponse, String> {
        let needs = if is_chat { "messages" } else { "prompt" };
        if request[needs].is_null() {
            return Err(format!(
                "[{{'type': 'missing', 'loc': ('body', '{needs}'), 'msg': 'Field required'}}]"
            ));
        }
        let wanted = ["max_completion_tokens", "max_tokens"]
            .iter()
            .find_map(|name| request[*name].as_u64());
        let tokens = wanted.map_or(most, |wanted| wanted.min(most));
        Ok(DoubleResponse {
            is_chat,
            model: request["model"].as_str().unwrap_or_default().to_owned(),
            is_stream: request["stream"] == json!(true),
            with_usage: request["stream_options"]["include_usage"] == json!(true),
            tokens,
            is_cut: tokens < most,
            special: None,
        })
    }

    /// Sets the output that the request determines.
    pub fn with(mut self, special: Option<SpecialOutput>) -> DoubleResponse {
        if let Some(special) = &special {
            self.tokens = special.tokens();
            self.is_cut = false;
        }
        self.special = special;
        self
    }

    fn word(&self, token: u64) -> &str {
        match &self.special {
            Some(SpecialOutput::Text(text)) => text,
            _ => WORDS[usize::try_from(token).unwrap_or(0) % WORDS.len()],
        }
    }

    fn finish(&self) -> &'static str {
        match &self.special {
            Some(SpecialOutput::Call(call)) => call.finish(),
            _ if self.is_cut => "length",
            _ => "stop",
        }
    }

    pub fn usage(&self) -> Value {
        json!({"prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS + self.tokens, "completion_tokens": self.tokens})
    }

    pub fn prompt_tokens(&self) -> u64 {
        PROMPT_TOKENS
    }

    pub fn whole(&self) -> Value {
        let text: String = (0..self.tokens).map(|token| self.word(token)).collect();
        let choice = if self.is_chat {
            let message = match &self.special {
                Some(SpecialOutput::Call(call)) => call.message(),
                _ => json!({"role": "assistant", "content": text, "refusal": null}),
            };
            json!({"index": 0, "message": message, "logprobs": null, "finish_reason": self.finish(), "stop_reason": null})
        } else {
            json!({"index": 0, "text": text, "logprobs": null, "finish_reason": self.finish(), "stop_reason": null})
        };
        let mut whole = self.frame(json!([choice]));
        whole["usage"] = self.usage();
        whole
    }

    /// The data of each event after the tokens: the finish reason, the usage if requested, `[DONE]`.
    pub fn ending(&self) -> Vec<String> {
        let choice = if self.is_chat {
            json!({"index": 0, "delta": {"content": ""}, "logprobs": null, "finish_reason": self.finish(), "stop_reason": null})
        } else {
            json!({"index": 0, "text": "", "logprobs": null, "finish_reason": self.finish(), "stop_reason": null})
        };
        let mut events = vec![self.frame(json!([choice])).to_string()];
        if self.with_usage {
            let mut last = self.frame(json!([]));
            last["usage"] = self.usage();
            events.push(last.to_string());
        }
        events.push("[DONE]".to_owned());
        events
    }

    pub fn piece(&self, token: u64) -> String {
        let choice = if self.is_chat {
            let mut delta = match &self.special {
                Some(SpecialOutput::Call(call)) => call.piece(token),
                _ => json!({"content": self.word(token)}),
            };
            if token == 0 {
                delta["role"] = json!("assistant");
            }
            json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": null})
        } else {
            json!({"index": 0, "text": self.word(token), "logprobs": null, "finish_reason": null})
        };
        self.frame(json!([choice])).to_string()
    }

    fn frame(&self, choices: Value) -> Value {
        let (id, object) = match (self.is_chat, self.is_stream) {
            (true, true) => ("chatcmpl-double", "chat.completion.chunk"),
            (true, false) => ("chatcmpl-double", "chat.completion"),
            (false, _) => ("cmpl-double", "text_completion"),
        };
        json!({"id": id, "object": object, "created": CREATED, "model": self.model, "choices": choices})
    }
}
