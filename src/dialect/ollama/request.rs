//! Reads a request of `/api/generate` or `/api/chat`: the operation, and the body in OpenAI's form. Fields that cannot be honoured
//! are refused by name; ignored fields are reported.

use std::sync::Arc;

use axum::body::Bytes;
use serde_json::{Map, Value, json};

use super::super::reasoning::ReasoningRequest;
use super::keep_alive::{self, KeepAlive};
use super::messages::{content, messages, pictures};
use super::names::bare_name;
use super::options;
use super::response::Ask;
use crate::fields::RequestFields;
use crate::{CHAT, COMPLETIONS};
use api_types::error::Failure;
use catalog::{Entry, Recipe};

/// A parsed request.
#[derive(Debug)]
pub struct OllamaRequest {
    /// Name as the client wrote it, repeated in the response.
    pub named: String,
    /// Name for the catalogue lookup.
    pub model: String,
    pub keep_alive: Option<KeepAlive>,
    pub work: Work,
    /// IgnoredFields fields.
    pub ignored: Vec<String>,
    pub reasoning: ReasoningRequest,
}

#[derive(Debug)]
pub enum Work {
    /// An empty request: loads the model.
    Load,
    /// An empty request with `keep_alive: 0`: unloads the model.
    Unload,
    /// An OpenAI body for the engine's route `path`.
    Answer { path: &'static str, body: Bytes },
}

/// Reads the model's name from `model` or `name`.
pub fn name_of(fields: &mut RequestFields) -> Result<String, Failure> {
    let (model, name) = (fields.text("model")?, fields.text("name")?);
    let named = model.or(name).filter(|name| !name.is_empty());
    named.ok_or_else(|| fields.missing("model"))
}

/// Parses a request. `entry_of` looks up a model in the catalogue.
pub fn read(
    body: &Bytes,
    ask: Ask,
    entry_of: &dyn Fn(&str) -> Option<Arc<Entry>>,
) -> Result<OllamaRequest, Failure> {
    let mut fields = RequestFields::parse(body)?;
    let named = name_of(&mut fields)?;
    let own = entry_of(&named).map(|entry| (named.as_str(), entry));
    let known = own.or_else(|| Some((bare_name(&named), entry_of(bare_name(&named))?)));
    let (model, entry) = match known {
        Some((model, entry)) => (model.to_owned(), Some(entry)),
        // It may be a repository on the hub, where names have no tags.
        None if bare_name(&named).contains('/') => (bare_name(&named).to_owned(), None),
        None => (named.clone(), None),
    };
    let keep_alive = keep_alive::read(&mut fields)?;
    let mut request = Request {
        entry: entry.as_deref(),
        chat: Map::from_iter([("model".to_owned(), json!(model))]),
        ignored: Vec::new(),
        reasoning: ReasoningRequest::default(),
    };
    let path = match ask {
        Ask::Chat => request.chat(&mut fields)?,
        Ask::Generate => request.generate(&mut fields)?,
    };
    let has_options = options::read(
        &mut fields,
        request.recipe(),
        &mut request.chat,
        &mut request.ignored,
    );
    has_options?;
    request.common(&mut fields, path)?;
    let Request {
        chat,
        mut ignored,
        reasoning,
        ..
    } = request;
    ignored.extend(fields.left());
    let work = match path {
        None if keep_alive == Some(KeepAlive::For(std::time::Duration::ZERO)) => Work::Unload,
        None => Work::Load,
        Some(path) => Work::Answer {
            path,
            body: Value::Object(chat).to_string().into(),
        },
    };
    Ok(OllamaRequest {
        named,
        model,
        keep_alive,
        work,
        ignored,
        reasoning,
    })
}

/// The OpenAI request being built.
struct Request<'a> {
    entry: Option<&'a Entry>,
    chat: Map<String, Value>,
    ignored: Vec<String>,
    reasoning: ReasoningRequest,
}

impl<'a> Request<'a> {
    fn recipe(&self) -> Option<&'a Recipe> {
        self.entry.map(|entry| &entry.recipe)
    }

    fn set(&mut self, name: &str, value: Value) {
        self.chat.insert(name.to_owned(), value);
    }

    /// Reads a chat and returns the engine's route; `None` for an empty request.
    fn chat(&mut self, fields: &mut RequestFields) -> Result<Option<&'static str>, Failure> {
        let items = fields.list("messages")?.unwrap_or_default();
        for name in ["prompt", "system", "suffix", "template"] {
            let why = "it is a field of /api/generate; /api/chat takes `messages`";
            fields.refuse(name, &[json!("")], why)?;
        }
        let is_empty = items.is_empty();
        let items = messages(items, &mut self.ignored)?;
        self.set("messages", json!(items));
        let tools = fields.list("tools")?.unwrap_or_default();
        let tools = tools.into_iter().enumerate().map(|(nth, tool)| {
            let mut tool = RequestFields::new(format!("tools[{nth}]"), tool)?;
            let function = tool.need("function")?;
            if function["name"].is_string() {
                Ok(json!({"type": "function", "function": function}))
            } else {
                Err(tool.missing("function.name"))
            }
        });
        let tools = tools.collect::<Result<Vec<Value>, Failure>>()?;
        if !tools.is_empty() {
            self.set("tools", json!(tools));
        }
        Ok((!is_empty).then_some(CHAT))
    }

    /// Reads a prompt, as a chat of one turn or as raw text.
    fn generate(&mut self, fields: &mut RequestFields) -> Result<Option<&'static str>, Failure> {
        let why = "it is a field of /api/chat; /api/generate takes `prompt`";
        fields.refuse("messages", &[json!([])], why)?;
        let why = "templates come from the model; send the complete prompt with `raw`, or change the model's file";
        fields.refuse("template", &[json!("")], why)?;
        let why = "conversations are not stored; send the conversation as `messages` to /api/chat";
        fields.refuse("context", &[json!([])], why)?;
        let prompt = fields.text("prompt")?.unwrap_or_default();
        let suffix = fields.text("suffix")?.filter(|suffix| !suffix.is_empty());
        let system = fields.text("system")?.filter(|system| !system.is_empty());
        let is_raw = fields.flag("raw")?.unwrap_or(false);
        let pictures = pictures(fields)?;
        let is_text = is_raw || suffix.is_some();
        if is_text {
            let option = if is_raw { "`raw`" } else { "`suffix`" };
            let why = format!("with {option}, the prompt is sent unchanged");
            if system.is_some() {
                return Err(fields.not_here("system", &why));
            }
            if !pictures.is_empty() {
                return Err(fields.not_here("images", &why));
            }
        }
        if prompt.is_empty() && suffix.is_none() {
            return Ok(None);
        }
        if is_text {
            self.set("prompt", json!(prompt));
            if let Some(suffix) = suffix {
                self.set("suffix", json!(suffix));
            }
            // OpenAI's route stops after a few tokens by default; Ollama's does not.
            if let Some(room) = self.entry.and_then(Entry::room_for_responses) {
                self.set("max_tokens", room);
            }
            return Ok(Some(COMPLETIONS));
        }
        let system = system.map(|text| json!({"role": "system", "content": text}));
        let user = json!({"role": "user", "content": content(prompt, pictures)});
        let turns: Vec<Value> = system.into_iter().chain([user]).collect();
        self.set("messages", json!(turns));
        Ok(Some(CHAT))
    }

    fn common(
        &mut self,
        fields: &mut RequestFields,
        path: Option<&'static str>,
    ) -> Result<(), Failure> {
        let is_chat = path != Some(COMPLETIONS);
        if fields.flag("stream")?.unwrap_or(true) {
            self.set("stream", json!(true));
            self.set("stream_options", json!({"include_usage": true}));
        }
        match fields.take("format") {
            None => {}
            Some(Value::String(text)) if text.is_empty() => {}
            Some(Value::String(text)) if text == "json" => {
                self.set("response_format", json!({"type": "json_object"}));
            }
            Some(Value::Object(schema)) => {
                let schema = json!({"name": "format", "schema": schema});
                let format = json!({"type": "json_schema", "json_schema": schema});
                self.set("response_format", format);
            }
            Some(_) => return Err(fields.wrong("format", "\"json\" or a JSON schema, an object")),
        }
        self.think(fields, is_chat)?;
        let top = fields.integer("top_logprobs", 0..=20)?;
        if fields.flag("logprobs")?.unwrap_or(false) {
            if !is_chat {
                let why =
                    "`raw` and `suffix` ask for a completed text, whose tokens are not reported";
                return Err(fields.not_here("logprobs", why));
            }
            self.set("logprobs", json!(true));
            if let Some(top) = top {
                self.set("top_logprobs", json!(top));
            }
        }
        let why = "the engine writes the prompt; POST /v1/tokenize counts its tokens";
        fields.refuse("_debug_render_only", &[json!(false)], why)?;
        // With these, an overlong prompt is shortened instead of refused.
        for name in ["truncate", "shift"] {
            if fields.flag(name)? == Some(true) {
                self.ignored.push(name.to_owned());
            }
        }
        Ok(())
    }

    /// Reads the reasoning options. The engine's fields are chosen once the model is known.
    fn think(&mut self, fields: &mut RequestFields, is_chat: bool) -> Result<(), Failure> {
        let Some(value) = fields.take("think") else {
            return Ok(());
        };
        match &value {
            Value::Bool(thinks) => self.reasoning.set_thinks("think", *thinks),
            Value::String(_) => self.reasoning.set_effort("think", &value)?,
            _ => return Err(fields.wrong("think", "true, false, \"low\", \"medium\" or \"high\"")),
        }
        // A raw prompt is completed as it is.
        if !is_chat {
            self.reasoning = ReasoningRequest::default();
            self.ignored.push("think".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
