//! The text or conversation to tokenize, and the engine's request for it.

use axum::body::Bytes;
use serde_json::{Map, Value, json};

use api_types::error::{ErrorKind, Failure};
use catalog::{Prompt, TokenApi};
use dialect::{Reading, RequestFields, anthropic};

/// The text or conversation to tokenize.
#[derive(Debug, Default)]
pub(super) struct TokenInput {
    prompt: Option<String>,
    messages: Vec<Value>,
    tools: Vec<Value>,
    special: Option<bool>,
    generation: Option<bool>,
    strings: bool,
}

impl TokenInput {
    pub fn read(body: &Bytes) -> Result<TokenInput, Failure> {
        let mut received = RequestFields::parse(body)?;
        received.need_text("model")?;
        let input = TokenInput {
            prompt: received.text("prompt")?,
            messages: received.list("messages")?.unwrap_or_default(),
            tools: received.list("tools")?.unwrap_or_default(),
            special: received.flag("add_special_tokens")?,
            generation: received.flag("add_generation_prompt")?,
            strings: received.flag("return_token_strs")?.unwrap_or(false),
        };
        received.finish()?;
        if input.prompt.is_some() != input.messages.is_empty() {
            let message = "exactly one of `prompt` and `messages` is required";
            return Err(Failure::invalid("prompt".to_owned(), message));
        }
        only_data(&input.messages)?;
        Ok(input)
    }

    pub fn of_message(body: &Bytes, reading: &Reading) -> Result<TokenInput, Failure> {
        Ok(TokenInput::of_chat(anthropic::counted(body, reading)?))
    }

    pub fn of_chat(mut chat: Map<String, Value>) -> TokenInput {
        let mut list = |name: &str| match chat.shift_remove(name) {
            Some(Value::Array(list)) => list,
            _ => Vec::new(),
        };
        TokenInput {
            messages: list("messages"),
            tools: list("tools"),
            ..TokenInput::default()
        }
    }

    /// Renders the conversation as text if the model file has a prompt format.
    pub fn written(mut self, prompt: &Prompt) -> Result<TokenInput, Failure> {
        if self.prompt.is_some() {
            return Ok(self);
        }
        match prompt {
            Prompt::ChatTemplate => Ok(self),
            Prompt::Disabled => Err(Failure::invalid(
                "messages".to_owned(),
                "this model only completes text; send a `prompt`",
            )),
            Prompt::Format(format) => {
                let rendered = format.render(&self.messages);
                let text =
                    rendered.map_err(|error| Failure::invalid(error.field, error.message))?;
                self.prompt = Some(text);
                self.messages.clear();
                Ok(self)
            }
        }
    }

    /// Refuses what the engine does not support, before anything is loaded for it.
    pub fn check(&self, model: &str, api: TokenApi) -> Result<(), Failure> {
        let cannot = |what: &str| cannot(model, what);
        if self.strings && api != TokenApi::Vllm {
            return Err(cannot(
                "cannot return tokens as text; remove `return_token_strs`",
            ));
        }
        let is_written_by_engine = self.prompt.is_none();
        match api {
            TokenApi::Sglang if is_written_by_engine => {
                Err(cannot("can tokenize a `prompt`, but not a conversation"))
            }
            TokenApi::LlamaCpp if is_written_by_engine && self.generation == Some(false) => Err(
                cannot("always adds the generation prompt; remove `add_generation_prompt`"),
            ),
            _ => Ok(()),
        }
    }

    /// The `/tokenize` request for vLLM and SGLang.
    pub fn body(&self, name: &str) -> Bytes {
        let mut body = Map::new();
        body.insert("model".to_owned(), json!(name));
        let mut add = |name: &str, value: Option<Value>| {
            body.extend(value.map(|value| (name.to_owned(), value)));
        };
        add("prompt", self.prompt.as_ref().map(|text| json!(text)));
        if self.prompt.is_none() {
            add("messages", Some(json!(self.messages)));
            add("tools", (!self.tools.is_empty()).then(|| json!(self.tools)));
            add("add_generation_prompt", self.generation.map(Value::Bool));
        }
        add("add_special_tokens", self.special.map(Value::Bool));
        add("return_token_strs", self.strings.then_some(json!(true)));
        Value::Object(body).to_string().into()
    }
}

pub(super) fn cannot(model: &str, what: &str) -> Failure {
    Failure::new(
        ErrorKind::NotImplemented,
        "not_implemented",
        format!("the engine of {model} {what}"),
    )
}

/// Requires images to be in the request itself; engines must not fetch anything.
fn only_data(messages: &[Value]) -> Result<(), Failure> {
    for (nth, message) in messages.iter().enumerate() {
        let parts = message.get("content").and_then(Value::as_array);
        for (at, part) in parts.into_iter().flatten().enumerate() {
            let url = part.pointer("/image_url/url").and_then(Value::as_str);
            let is_data = url.is_some_and(|url| url.starts_with("data:"));
            if part["type"] != "text" && !(part["type"] == "image_url" && is_data) {
                let field = format!("messages[{nth}].content[{at}]");
                let message = format!("`{field}` must be a text, or an image_url with a data: URL");
                return Err(Failure::invalid(field, message));
            }
        }
    }
    Ok(())
}

/// The first request to the engine.
pub(super) struct Sent {
    pub body: Bytes,
    pub is_text: bool,
    pub special: Option<bool>,
}

impl Sent {
    pub fn new(input: &TokenInput, api: TokenApi, name: &str) -> Sent {
        let body = match (api, &input.prompt) {
            (TokenApi::LlamaCpp, Some(prompt)) => content(prompt, input.special),
            (TokenApi::LlamaCpp, None) => {
                let mut body = json!({"messages": input.messages});
                if !input.tools.is_empty() {
                    body["tools"] = json!(input.tools);
                }
                body.to_string().into()
            }
            _ => input.body(name),
        };
        Sent {
            body,
            is_text: input.prompt.is_some(),
            special: input.special,
        }
    }
}

/// The `/tokenize` request for llama-server. Special tokens in the text are parsed, and the first one is added as the server does
/// before generation.
pub(super) fn content(prompt: &str, special: Option<bool>) -> Bytes {
    let special = special.unwrap_or(true);
    json!({"content": prompt, "add_special": special, "parse_special": true})
        .to_string()
        .into()
}
