//! RayLLM's algorithm, from messages to one text. `system`, `user` and `assistant` each have a template; every prompt ends with the
//! trailing text that makes the model respond.
//!
//! Bugs of RayLLM 0.5 are fixed unless the file requests its exact output: the system text inside a user message is stripped like
//! any other, an empty one leaves no empty tags, and a tool message is refused instead of dropped. In both modes an assistant
//! message without content is empty, with its tool calls as JSON, and content may consist of parts.

use std::borrow::Cow;

use serde_json::Value;

use super::format::{PromptFormat, SystemIn};

/// An error in a request's messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromptError {
    /// The field, such as `messages[2].content`.
    pub field: String,
    pub message: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    System,
    User,
    Assistant,
    Tool,
}

struct Message<'a> {
    role: Role,
    text: Cow<'a, str>,
}

impl PromptFormat {
    /// Renders the prompt of a conversation; `messages` follow OpenAI's API.
    pub fn render(&self, messages: &[Value]) -> Result<String, PromptError> {
        let messages = read(messages)?;
        let mut system = None;
        let mut rest = Vec::with_capacity(messages.len());
        for (nth, message) in messages.into_iter().enumerate() {
            match message.role {
                Role::System if system.is_some() => {
                    return Err(PromptError {
                        field: format!("messages[{nth}]"),
                        message: "Only one system message can be specified.".to_owned(),
                    });
                }
                Role::System => system = Some(message.text.into_owned()),
                Role::Tool if self.is_compatible => {}
                Role::Tool => {
                    return Err(PromptError {
                        field: format!("messages[{nth}].role"),
                        message: "this model's prompt format has no place for messages of the role `tool`; send the tool's output as a user message".to_owned(),
                    });
                }
                Role::User | Role::Assistant => rest.push(message),
            }
        }
        let default = &self.default_system_message;
        if system.is_none() && (!default.is_empty() || self.tags_for_empty_system) {
            system = Some(default.clone());
        }
        Ok(self.write(system.as_deref(), &rest))
    }

    fn write(&self, system: Option<&str>, messages: &[Message<'_>]) -> String {
        let mut prompt = self.bos.clone();
        // RayLLM checked for an empty text before stripping.
        let is_empty = |text: &str| {
            if self.is_compatible {
                text.is_empty()
            } else {
                self.strip(text).is_empty()
            }
        };
        let is_wanted = |text: &str| !is_empty(text) || self.tags_for_empty_system;
        let mut inside = String::new();
        let mut holder = None;
        match (self.system_in, system) {
            (_, None) => {}
            (SystemIn::OwnMessage, Some(text)) if is_wanted(text) => {
                prompt += &self.system.fill(self.strip(text), "");
            }
            (SystemIn::OwnMessage, Some(_)) => {}
            (place, Some(text)) => {
                let mut is_user = messages.iter().map(|message| message.role == Role::User);
                holder = match place {
                    SystemIn::LastUser => is_user.rposition(|is_user| is_user),
                    _ => is_user.position(|is_user| is_user),
                };
                let text = if self.is_compatible {
                    text
                } else {
                    self.strip(text)
                };
                if self.is_compatible || is_wanted(text) {
                    inside = self.system.fill(text, "");
                }
            }
        }
        for (nth, message) in messages.iter().enumerate() {
            let text = self.strip(&message.text);
            let of_system = if holder == Some(nth) {
                inside.as_str()
            } else {
                ""
            };
            prompt += &match message.role {
                Role::Assistant => self.assistant.fill(text, ""),
                _ => self.user.fill(text, of_system),
            };
        }
        prompt + &self.trailing_assistant
    }

    fn strip<'a>(&self, text: &'a str) -> &'a str {
        // Python counts four control characters as white space that Unicode's property excludes.
        let is_space =
            |letter: char| letter.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&letter);
        if self.strips {
            text.trim_matches(is_space)
        } else {
            text
        }
    }
}

fn read(messages: &[Value]) -> Result<Vec<Message<'_>>, PromptError> {
    messages.iter().enumerate().map(message).collect()
}

fn message((nth, value): (usize, &Value)) -> Result<Message<'_>, PromptError> {
    let wrong = |key: &str, message: &str| PromptError {
        field: format!("messages[{nth}]{key}"),
        message: format!("`messages[{nth}]{key}` {message}"),
    };
    let role = match value.get("role").and_then(Value::as_str) {
        Some("system" | "developer") => Role::System,
        Some("user") => Role::User,
        Some("assistant") => Role::Assistant,
        Some("tool" | "function") => Role::Tool,
        _ => {
            return Err(wrong(
                ".role",
                "must be one of system, developer, user, assistant, tool",
            ));
        }
    };
    let text = match value.get("content") {
        Some(Value::String(text)) => Cow::Borrowed(text.as_str()),
        Some(Value::Array(parts)) => {
            let text = |(part, value): (usize, &Value)| {
                let kind = value.get("type").and_then(Value::as_str);
                match (kind, value.get("text").and_then(Value::as_str)) {
                    (Some("text"), Some(text)) => Ok(text.to_owned()),
                    _ => Err(wrong(
                        &format!(".content[{part}]"),
                        "must be a part of the type `text`: this model takes text only",
                    )),
                }
            };
            Cow::Owned(
                parts
                    .iter()
                    .enumerate()
                    .map(text)
                    .collect::<Result<_, _>>()?,
            )
        }
        None | Some(Value::Null) if role == Role::Assistant => Cow::Borrowed(""),
        _ => {
            return Err(wrong(
                ".content",
                "must be a string or a list of text parts",
            ));
        }
    };
    let calls = value.get("tool_calls").and_then(Value::as_array);
    let calls = calls.filter(|calls| role == Role::Assistant && !calls.is_empty());
    let text = match calls {
        Some(calls) => Cow::Owned(format!("{text}{}", calls_as_text(calls))),
        None => text,
    };
    Ok(Message { role, text })
}

/// An assistant's tool calls, one JSON object per line.
fn calls_as_text(calls: &[Value]) -> String {
    let line = |call: &Value| {
        let function = call.get("function").unwrap_or(call);
        format!("\n{function}")
    };
    calls.iter().map(line).collect()
}
