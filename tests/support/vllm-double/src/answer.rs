//! vLLM's JSON answers, complete and streamed, for chats and plain completions. The text is always `Hello from NAME
//! and goodbye`.

use serde_json::{Value, json};

const CREATED: u64 = 1_700_000_000;
const WORDS: [&str; 5] = ["Hello", " from", " vLLM", " and", " goodbye"];
const PROMPT_TOKENS: u64 = 3;

pub struct Answer {
    pub is_chat: bool,
    pub model: String,
    pub is_stream: bool,
    pub with_usage: bool,
    pub tokens: u64,
    is_cut: bool,
}

impl Answer {
    /// Fails with the field that the request lacks.
    pub fn to(is_chat: bool, request: &Value, most: u64) -> Result<Answer, String> {
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
        Ok(Answer {
            is_chat,
            model: request["model"].as_str().unwrap_or_default().to_owned(),
            is_stream: request["stream"] == json!(true),
            with_usage: request["stream_options"]["include_usage"] == json!(true),
            tokens,
            is_cut: tokens < most,
        })
    }

    pub fn word(token: u64) -> &'static str {
        WORDS[usize::try_from(token).unwrap_or(0) % WORDS.len()]
    }

    fn finish(&self) -> &'static str {
        if self.is_cut { "length" } else { "stop" }
    }

    pub fn usage(&self) -> Value {
        json!({"prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS + self.tokens, "completion_tokens": self.tokens})
    }

    pub fn prompt_tokens(&self) -> u64 {
        PROMPT_TOKENS
    }

    pub fn whole(&self) -> Value {
        let text: String = (0..self.tokens).map(Answer::word).collect();
        let choice = match self.is_chat {
            true => {
                json!({"index": 0, "message": {"role": "assistant", "content": text, "refusal": null}, "logprobs": null, "finish_reason": self.finish(), "stop_reason": null})
            }
            false => {
                json!({"index": 0, "text": text, "logprobs": null, "finish_reason": self.finish(), "stop_reason": null})
            }
        };
        let mut whole = self.frame(json!([choice]));
        whole["usage"] = self.usage();
        whole
    }

    /// The data of each event after the tokens: the finish reason, the usage if requested, `[DONE]`.
    pub fn ending(&self) -> Vec<String> {
        let choice = match self.is_chat {
            true => {
                json!({"index": 0, "delta": {"content": ""}, "logprobs": null, "finish_reason": self.finish(), "stop_reason": null})
            }
            false => {
                json!({"index": 0, "text": "", "logprobs": null, "finish_reason": self.finish(), "stop_reason": null})
            }
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
        let word = Answer::word(token);
        let choice = match (self.is_chat, token) {
            (true, 0) => {
                json!({"index": 0, "delta": {"role": "assistant", "content": word}, "logprobs": null, "finish_reason": null})
            }
            (true, _) => {
                json!({"index": 0, "delta": {"content": word}, "logprobs": null, "finish_reason": null})
            }
            (false, _) => {
                json!({"index": 0, "text": word, "logprobs": null, "finish_reason": null})
            }
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
