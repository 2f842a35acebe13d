//! The stub's responses in OpenAI's format, complete and streamed. It reads only `model`, `stream`, `stream_options.include_usage`,
//! `max_tokens` (or `max_completion_tokens`) and `tools`: it calls the first tool until the last message is a tool result. A script
//! may override this. Independent of HTTP and time.

use serde_json::{Value, json};

use crate::script::{Script, Turn};

/// A fixed time in the past, which keeps responses reproducible.
const CREATED: u64 = 1_700_000_000;
const PROMPT_TOKENS: usize = 3;

/// The called route.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Chat,
    Text,
}

/// The response to a request.
pub struct StubResponse {
    form: Form,
    /// The name in the request.
    model: String,
    pub is_stream: bool,
    with_usage: bool,
    pub tokens: usize,
    /// True if the request allows fewer tokens than the response has.
    is_cut: bool,
    /// The tool to call instead of responding with text.
    tool: Option<String>,
    /// The arguments of the call.
    call: Vec<String>,
    /// Reasoning before the response.
    thoughts: Vec<String>,
    /// Replaces the usual text.
    echo: Option<String>,
    error: Option<Value>,
    /// Reasons without end and never responds.
    pub is_endless: bool,
}

impl StubResponse {
    /// `most` is the number of tokens of a response that is not cut. Fails if the request lacks a required field.
    pub fn to(
        form: Form,
        request: &Value,
        most: usize,
        script: &Script,
    ) -> Result<StubResponse, String> {
        let model = request["model"].as_str();
        let (name, is_there) = match form {
            Form::Chat => ("messages", request["messages"].is_array()),
            Form::Text => ("prompt", !request["prompt"].is_null()),
        };
        if !is_there {
            return Err(format!("`{name}` is missing"));
        }
        let wanted = ["max_completion_tokens", "max_tokens"]
            .iter()
            .find_map(|name| request[*name].as_u64());
        let tokens = wanted
            .and_then(|wanted| usize::try_from(wanted).ok())
            .map_or(most, |wanted| wanted.min(most));
        let tool = tool_of(request).filter(|_| form == Form::Chat);
        let call = script.call_pieces(None);
        let echo = script.echo.then(|| request.to_string());
        let (tool, call, echo) = match script.turn(request)? {
            Some(Turn::Call(tool, arguments)) => {
                (Some(tool), script.call_pieces(Some(&arguments)), None)
            }
            Some(Turn::Say(text)) => (None, call, Some(text)),
            None => (tool.filter(|_| echo.is_none()), call, echo),
        };
        let (tokens, most) = match (&tool, &echo) {
            (Some(_), _) => (call.len(), call.len()),
            (None, Some(_)) => (1, 1),
            (None, None) => (tokens, most),
        };
        Ok(StubResponse {
            form,
            model: model.ok_or("`model` is missing")?.to_owned(),
            is_stream: request["stream"] == json!(true),
            with_usage: request["stream_options"]["include_usage"] == json!(true),
            tokens,
            is_cut: tokens < most,
            tool,
            call,
            thoughts: match form {
                Form::Chat => script.thoughts(),
                Form::Text => Vec::new(),
            },
            echo,
            error: script.error_event.clone(),
            is_endless: script.is_endless && form == Form::Chat,
        })
    }

    /// The complete response.
    pub fn whole(&self) -> Value {
        let text: String = (0..self.tokens).map(|number| self.word(number)).collect();
        let choice = match self.form {
            Form::Chat => json!({
                "index": 0,
                "message": self.message(&text),
                "logprobs": null,
                "finish_reason": self.finish(),
            }),
            Form::Text => self.text_choice(&text, Some(self.finish())),
        };
        let mut whole = self.frame(json!([choice]));
        whole["usage"] = self.usage();
        whole
    }

    /// The token of a stream step, if it has one.
    pub fn token_of_step(&self, step: usize) -> Option<usize> {
        let token = step.checked_sub(self.steps_before())?;
        (token < self.tokens).then_some(token)
    }

    /// The data of a stream event: the role (chats only), the tokens, the finish reason, the usage if requested, `[DONE]`. `None`
    /// after that.
    pub fn event(&self, step: usize) -> Option<String> {
        if let Some(error) = &self.error {
            return (step == 0).then(|| error.to_string());
        }
        let thought = step.checked_sub(1).and_then(|nth| {
            if self.is_endless {
                self.thoughts.get(nth % self.thoughts.len().max(1))
            } else {
                self.thoughts.get(nth)
            }
        });
        if let Some(thought) = thought {
            let choice = self.chunk_choice(json!({"reasoning_content": thought}), None);
            return Some(self.chunk(json!([choice])));
        }
        if step < self.steps_before() {
            let choice = self.chunk_choice(json!({"role": "assistant", "content": ""}), None);
            return Some(self.chunk(json!([choice])));
        }
        if let Some(token) = self.token_of_step(step) {
            let choice = match &self.tool {
                Some(tool) => self.chunk_choice(call_piece(tool, token, &self.call), None),
                None => self.choice(&self.word(token), None),
            };
            return Some(self.chunk(json!([choice])));
        }
        let step = step - self.steps_before() - self.tokens;
        match (step, self.with_usage) {
            (0, _) => Some(self.chunk(json!([self.choice("", Some(self.finish()))]))),
            (1, true) => {
                let mut last = self.frame(json!([]));
                last["usage"] = self.usage();
                Some(last.to_string())
            }
            (1, false) | (2, true) => Some("[DONE]".to_owned()),
            _ => None,
        }
    }

    fn steps_before(&self) -> usize {
        usize::from(self.form == Form::Chat) + self.thoughts.len()
    }

    fn word(&self, number: usize) -> String {
        if let Some(echo) = &self.echo {
            return echo.clone();
        }
        match number % 5 {
            0 if number == 0 => "Hello".to_owned(),
            0 => " hello".to_owned(),
            1 => " from".to_owned(),
            2 => format!(" {}", self.model),
            3 => " and".to_owned(),
            _ => " goodbye".to_owned(),
        }
    }

    fn message(&self, text: &str) -> Value {
        let mut message = match &self.tool {
            None => json!({"role": "assistant", "content": text}),
            Some(tool) => {
                let function = json!({"name": tool, "arguments": self.call.concat()});
                let call = json!({"id": "call_stub", "type": "function", "function": function});
                json!({"role": "assistant", "content": null, "tool_calls": [call]})
            }
        };
        if !self.thoughts.is_empty() {
            message["reasoning_content"] = json!(self.thoughts.concat());
        }
        message
    }

    fn finish(&self) -> &'static str {
        if !self.is_cut && self.tool.is_some() {
            "tool_calls"
        } else if self.is_cut {
            "length"
        } else {
            "stop"
        }
    }

    fn usage(&self) -> Value {
        json!({
            "prompt_tokens": PROMPT_TOKENS,
            "completion_tokens": self.tokens,
            "total_tokens": PROMPT_TOKENS + self.tokens,
        })
    }

    fn choice(&self, text: &str, finish: Option<&str>) -> Value {
        match self.form {
            Form::Chat if finish.is_some() => self.chunk_choice(json!({}), finish),
            Form::Chat => self.chunk_choice(json!({"content": text}), None),
            Form::Text => self.text_choice(text, finish),
        }
    }

    fn chunk_choice(&self, delta: Value, finish: Option<&str>) -> Value {
        json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish})
    }

    fn text_choice(&self, text: &str, finish: Option<&str>) -> Value {
        json!({"index": 0, "text": text, "logprobs": null, "finish_reason": finish})
    }

    fn chunk(&self, choices: Value) -> String {
        let mut chunk = self.frame(choices);
        if self.with_usage {
            chunk["usage"] = Value::Null;
        }
        chunk.to_string()
    }

    fn frame(&self, choices: Value) -> Value {
        let (id, object) = match (self.form, self.is_stream) {
            (Form::Chat, true) => ("chatcmpl-stub", "chat.completion.chunk"),
            (Form::Chat, false) => ("chatcmpl-stub", "chat.completion"),
            (Form::Text, _) => ("cmpl-stub", "text_completion"),
        };
        json!({
            "id": id,
            "object": object,
            "created": CREATED,
            "model": self.model,
            "choices": choices,
        })
    }
}

/// The first tool, unless tools are disabled or its result is present.
fn tool_of(request: &Value) -> Option<String> {
    let has_result = request["messages"]
        .as_array()
        .and_then(|messages| messages.last())
        .is_some_and(|last| last["role"] == "tool");
    let name = request.pointer("/tools/0/function/name")?.as_str()?;
    (request["tool_choice"] != "none" && !has_result).then(|| name.to_owned())
}

fn call_piece(tool: &str, piece: usize, call: &[String]) -> Value {
    let mut function = json!({"arguments": call[piece]});
    let mut call = json!({"index": 0});
    if piece == 0 {
        function["name"] = json!(tool);
        call["id"] = json!("call_stub");
        call["type"] = json!("function");
    }
    call["function"] = function;
    json!({"tool_calls": [call]})
}

/// The response of `/v1/models`.
pub fn models(name: &str) -> Value {
    let model = json!({"id": name, "object": "model", "created": CREATED, "owned_by": "stub"});
    json!({"object": "list", "data": [model]})
}

/// An OpenAI error object.
pub fn error(message: &str) -> Value {
    json!({"error": {
        "message": message,
        "type": "invalid_request_error",
        "param": null,
        "code": null,
    }})
}
