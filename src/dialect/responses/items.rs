//! Translates the items of a request's `input` into chat messages: text, reasoning, tool calls and tool results.

mod given;
mod summaries;

use serde_json::{Value, json};

use super::super::custom;
use super::super::seal::Sealer;
use super::super::translation::{arguments_of, data_url};
use super::tools::ToolNames;
use crate::fields::{RequestFields, wrong};
use crate::stored::{Earlier, no_item, not_stored};
use api_types::error::Failure;
pub(super) use given::{add_request, check_items};
use reading::IgnoredFields;

/// Items left by server-side tools in an earlier conversation. They are not passed to the model.
const OF_A_SERVER: [&str; 7] = [
    "code_interpreter_call",
    "file_search_call",
    "image_generation_call",
    "mcp_list_tools",
    "tool_search_call",
    "tool_search_output",
    "web_search_call",
];

/// Builds the conversation: instructions, earlier messages, then the input.
pub(super) fn messages(
    instructions: Option<String>,
    earlier: Option<&Earlier>,
    input: Value,
    names: &ToolNames,
    sealer: &Sealer,
    ignored: &mut IgnoredFields,
) -> Result<Vec<Value>, Failure> {
    let mut chat = Chat {
        messages: Vec::new(),
        thought: None,
        pictures: Vec::new(),
        earlier,
        names,
        sealer,
        ignored,
    };
    if let Some(text) = instructions {
        chat.system(text);
    }
    if let Some(earlier) = earlier {
        let field = match earlier.named {
            Some(_) => "conversation",
            None => "previous_response_id",
        };
        for item in &earlier.conversation {
            chat.stored(field.to_owned(), item)?;
        }
    }
    match input {
        Value::String(text) => chat.user(json!(text)),
        Value::Array(items) if items.is_empty() && chat.messages.is_empty() => {
            return Err(wrong("input", "a string or a list of at least one item"));
        }
        Value::Array(items) => {
            for (nth, item) in items.into_iter().enumerate() {
                chat.item(RequestFields::new(format!("input[{nth}]"), item)?)?;
            }
        }
        _ => return Err(wrong("input", "a string or a list of items")),
    }
    chat.show_pictures();
    chat.forget_thought();
    Ok(chat.messages)
}

struct Chat<'a> {
    messages: Vec<Value>,
    /// Reasoning that waits for its message.
    thought: Option<String>,
    /// Images from tool results, as content parts.
    pictures: Vec<Value>,
    earlier: Option<&'a Earlier>,
    names: &'a ToolNames,
    sealer: &'a Sealer,
    ignored: &'a mut IgnoredFields,
}

impl Chat<'_> {
    fn last_is(&self, role: &str) -> bool {
        self.messages
            .last()
            .is_some_and(|last| last["role"] == role)
    }

    /// Adds a system message. Chat templates accept a single system message at the beginning: messages that directly follow it are
    /// joined to it, and later ones are added to the user's text with a mark.
    fn system(&mut self, text: String) {
        if self.messages.is_empty() {
            let message = json!({"role": "system", "content": text});
            return self.messages.push(message);
        }
        match self.messages.as_mut_slice() {
            [only] if only["role"] == "system" => join(&mut only["content"], json!(text)),
            _ => self.user(json!(format!("<system>\n{text}\n</system>"))),
        }
    }

    /// Chat templates require alternating roles.
    fn user(&mut self, content: Value) {
        self.show_pictures();
        self.forget_thought();
        if self.last_is("user") {
            let last = self.messages.last_mut().expect("there is one");
            return join(&mut last["content"], content);
        }
        self.messages
            .push(json!({"role": "user", "content": content}));
    }

    /// Returns the assistant's current message, or starts a new one.
    fn assistant(&mut self) -> &mut Value {
        self.show_pictures();
        if !self.last_is("assistant") {
            self.messages
                .push(json!({"role": "assistant", "content": null}));
        }
        let last = self.messages.last_mut().expect("just pushed");
        if let Some(thought) = self.thought.take() {
            join(&mut last["reasoning_content"], json!(thought));
        }
        last
    }

    /// Reports reasoning that no message or call follows.
    fn forget_thought(&mut self) {
        if self.thought.take().is_some() {
            self.ignored.add("input.reasoning");
        }
    }

    /// Moves images of tool results into a user message, because tool messages contain only text.
    fn show_pictures(&mut self) {
        let pictures = std::mem::take(&mut self.pictures);
        if !pictures.is_empty() {
            self.messages
                .push(json!({"role": "user", "content": pictures}));
        }
    }

    /// Adds an item of an earlier request or response.
    fn stored(&mut self, at: String, item: &str) -> Result<(), Failure> {
        let item: Value = serde_json::from_str(item).unwrap_or_default();
        self.item(RequestFields::new(at, item)?)
    }

    fn item(&mut self, mut item: RequestFields) -> Result<(), Failure> {
        // Fields that responses return and clients send back.
        let id = item.text("id")?;
        item.text("status")?;
        let kind = item.text("type")?;
        if let (Some("item_reference"), Some(id)) = (kind.as_deref(), &id) {
            let earlier = self.earlier.ok_or_else(|| not_stored(&item.path("type")))?;
            let found = earlier.item(id).ok_or_else(|| no_item(id))?;
            let at = item.path("id");
            item.drop_rest(self.ignored);
            return self.stored(at, found);
        }
        match kind.as_deref().unwrap_or("message") {
            "message" => self.message(item),
            "function_call" => {
                let arguments = arguments_of(item.take("arguments"));
                self.call(item, arguments)
            }
            "custom_tool_call" => {
                let input = item.need_text("input")?;
                self.call(item, custom::arguments(&input))
            }
            "function_call_output" | "custom_tool_call_output" => self.output(item),
            "reasoning" => self.reasoning(item),
            "compaction" => self.compaction(item),
            "item_reference" => Err(item.missing("id")),
            other if OF_A_SERVER.contains(&other) => {
                self.ignored.add(format!("input.{other}"));
                Ok(())
            }
            _ => Err(item.wrong(
                "type",
                "message, reasoning, function_call, function_call_output, custom_tool_call or custom_tool_call_output",
            )),
        }
    }

    fn message(&mut self, mut item: RequestFields) -> Result<(), Failure> {
        let role = item.need_text("role")?;
        // The response phase; chat templates have no place for it.
        item.text("phase")?;
        let at = item.path("content");
        let content_in = item.need("content")?;
        match role.as_str() {
            "user" => {
                let content = content(&at, content_in, Side::User, self.ignored)?;
                self.user(content);
            }
            "assistant" => {
                let content = content(&at, content_in, Side::Assistant, self.ignored)?;
                // Text after calls starts another turn.
                let has_calls = self
                    .messages
                    .last()
                    .is_some_and(|last| last.get("tool_calls").is_some());
                if has_calls {
                    self.messages
                        .push(json!({"role": "assistant", "content": null}));
                }
                join(&mut self.assistant()["content"], content);
            }
            "system" | "developer" => {
                let text = only_text(&at, content(&at, content_in, Side::User, self.ignored)?)?;
                self.system(text);
            }
            _ => return Err(item.wrong("role", "user, assistant, system or developer")),
        }
        item.drop_rest(self.ignored);
        Ok(())
    }

    /// Calls belong to the assistant message before them.
    fn call(&mut self, mut item: RequestFields, arguments: String) -> Result<(), Failure> {
        let id = item.need_text("call_id")?;
        let name = item.need_text("name")?;
        let namespace = item.text("namespace")?;
        item.drop_rest(self.ignored);
        let name = self.names.of_model(namespace, &name);
        let function = json!({"name": name, "arguments": arguments});
        let call = json!({"id": id, "type": "function", "function": function});
        match &mut self.assistant()["tool_calls"] {
            Value::Array(calls) => calls.push(call),
            none => *none = json!([call]),
        }
        Ok(())
    }

    fn output(&mut self, mut item: RequestFields) -> Result<(), Failure> {
        let id = item.need_text("call_id")?;
        // Some clients repeat the tool's name.
        item.text("name")?;
        let at = item.path("output");
        let output = item.need("output")?;
        let text = match content(&at, output, Side::User, self.ignored)? {
            Value::Array(parts) => {
                let (texts, pictures): (Vec<Value>, Vec<Value>) =
                    parts.into_iter().partition(|part| part["type"] == "text");
                self.pictures.push(
                    json!({"type": "text", "text": format!("Images returned by call {id}:")}),
                );
                self.pictures.extend(pictures);
                let texts: Vec<&str> = texts
                    .iter()
                    .filter_map(|part| part["text"].as_str())
                    .collect();
                json!(texts.join("\n"))
            }
            text => text,
        };
        item.drop_rest(self.ignored);
        self.messages
            .push(json!({"role": "tool", "tool_call_id": id, "content": text}));
        Ok(())
    }
}

/// Appends a string or parts to a message's content.
fn join(content: &mut Value, more: Value) {
    let parts = |content: Value| match content {
        Value::Array(parts) => parts,
        text => vec![json!({"type": "text", "text": text})],
    };
    *content = match (content.take(), more) {
        (Value::Null, more) => more,
        (Value::String(mut text), Value::String(more)) => {
            text.push_str("\n\n");
            text.push_str(&more);
            Value::String(text)
        }
        (before, more) => {
            let mut all = parts(before);
            all.extend(parts(more));
            Value::Array(all)
        }
    };
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    User,
    Assistant,
}

/// A string for text-only content, or chat content parts.
fn content(
    at: &str,
    content_in: Value,
    side: Side,
    ignored: &mut IgnoredFields,
) -> Result<Value, Failure> {
    let content_in = match content_in {
        Value::String(text) => return Ok(json!(text)),
        Value::Array(parts) => parts,
        _ => return Err(wrong(at, "a string or a list of parts")),
    };
    let mut parts = Vec::new();
    for (nth, part) in content_in.into_iter().enumerate() {
        parts.push(content_part(
            RequestFields::new(format!("{at}[{nth}]"), part)?,
            side,
            ignored,
        )?);
    }
    let texts: Option<Vec<&str>> = parts.iter().map(|part| part["text"].as_str()).collect();
    Ok(match texts {
        Some(texts) => json!(texts.join("\n")),
        None => json!(parts),
    })
}

fn content_part(
    mut part: RequestFields,
    side: Side,
    ignored: &mut IgnoredFields,
) -> Result<Value, Failure> {
    let kind = part.need_text("type")?;
    let translated = match (kind.as_str(), side) {
        ("input_text", Side::User) => json!({"type": "text", "text": part.need_text("text")?}),
        ("output_text", Side::Assistant) => {
            // Fields of response parts that clients send back.
            part.list("annotations")?;
            part.list("logprobs")?;
            json!({"type": "text", "text": part.need_text("text")?})
        }
        ("refusal", Side::Assistant) => json!({"type": "text", "text": part.need_text("refusal")?}),
        ("input_image", Side::User) => {
            part.refuse(
                "file_id",
                &[],
                "no files are kept here; send the picture as a data: URL",
            )?;
            let field = part.path("image_url");
            let url = data_url(part.need_text("image_url")?, &field)?;
            let mut image = json!({"url": url});
            if let Some(detail) = part.text("detail")? {
                image["detail"] = json!(detail);
            }
            json!({"type": "image_url", "image_url": image})
        }
        ("input_file", Side::User) => {
            return Err(part.not_here("type", "files are not read; send their text as input_text"));
        }
        (_, Side::User) => return Err(part.wrong("type", "input_text or input_image")),
        (_, Side::Assistant) => return Err(part.wrong("type", "output_text or refusal")),
    };
    part.drop_rest(ignored);
    Ok(translated)
}

fn only_text(at: &str, content: Value) -> Result<String, Failure> {
    match content {
        Value::String(text) => Ok(text),
        _ => Err(wrong(at, "text without images")),
    }
}

#[cfg(test)]
mod tests;
