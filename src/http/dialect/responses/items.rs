//! The items of a request's `input` as a chat's messages: what was said, which functions were called, and what
//! they gave back.

use serde_json::{Value, json};

use super::super::taken::Taken;
use super::super::translation::data_url;
use crate::error::Failure;

/// The conversation, begun by the instructions if there are any.
pub(super) fn messages(instructions: Option<String>, input: Value) -> Result<Vec<Value>, Failure> {
    let mut chat = Chat::default();
    if let Some(text) = instructions {
        chat.system(text);
    }
    match input {
        Value::String(text) => chat.messages.push(json!({"role": "user", "content": text})),
        Value::Array(items) if items.is_empty() => {
            return Err(wrong("input", "a string or a list of at least one item"));
        }
        Value::Array(items) => {
            for (nth, item) in items.into_iter().enumerate() {
                chat.item(Taken::of(format!("input[{nth}]"), item)?)?;
            }
        }
        _ => return Err(wrong("input", "a string or a list of items")),
    }
    Ok(chat.messages)
}

#[derive(Default)]
struct Chat {
    messages: Vec<Value>,
}

impl Chat {
    /// Templates of chats take one system message, the first: what follows it at once is part of it.
    fn system(&mut self, text: String) {
        match self.messages.last_mut() {
            Some(last) if last["role"] == "system" => match &mut last["content"] {
                Value::String(before) => {
                    before.push_str("\n\n");
                    before.push_str(&text);
                }
                none => *none = Value::String(text),
            },
            _ => self
                .messages
                .push(json!({"role": "system", "content": text})),
        }
    }

    fn item(&mut self, mut item: Taken) -> Result<(), Failure> {
        // Items that a response has given come back with these.
        item.text("id")?;
        item.text("status")?;
        let kind = item.text("type")?;
        match kind.as_deref().unwrap_or("message") {
            "message" => self.message(item),
            "function_call" => self.call(item),
            "function_call_output" => {
                let id = item.need_text("call_id")?;
                let at = item.path("output");
                let output = item.need("output")?;
                let content = only_text(&at, content(&at, output, Side::User)?)?;
                item.finish()?;
                let message = json!({"role": "tool", "tool_call_id": id, "content": content});
                self.messages.push(message);
                Ok(())
            }
            "reasoning" | "item_reference" => Err(item.not_here(
                "type",
                "nothing of an earlier response is kept here; leave the item out",
            )),
            _ => Err(item.wrong("type", "message, function_call or function_call_output")),
        }
    }

    fn message(&mut self, mut item: Taken) -> Result<(), Failure> {
        let role = item.need_text("role")?;
        // Which part of an answer it was; a template has no place for it.
        item.text("phase")?;
        let at = item.path("content");
        let given = item.need("content")?;
        match role.as_str() {
            "user" => {
                let content = content(&at, given, Side::User)?;
                self.messages
                    .push(json!({"role": "user", "content": content}));
            }
            "assistant" => {
                let content = content(&at, given, Side::Assistant)?;
                self.messages
                    .push(json!({"role": "assistant", "content": content}));
            }
            "system" | "developer" => {
                let text = only_text(&at, content(&at, given, Side::User)?)?;
                self.system(text);
            }
            _ => return Err(item.wrong("role", "user, assistant, system or developer")),
        }
        item.finish()
    }

    /// Calls belong to the assistant's message before them.
    fn call(&mut self, mut item: Taken) -> Result<(), Failure> {
        let id = item.need_text("call_id")?;
        let name = item.need_text("name")?;
        let arguments = item.need_text("arguments")?;
        item.finish()?;
        let function = json!({"name": name, "arguments": arguments});
        let call = json!({"id": id, "type": "function", "function": function});
        if self
            .messages
            .last()
            .is_none_or(|last| last["role"] != "assistant")
        {
            self.messages
                .push(json!({"role": "assistant", "content": null}));
        }
        let last = self.messages.last_mut().expect("just pushed");
        match &mut last["tool_calls"] {
            Value::Array(calls) => calls.push(call),
            none => *none = json!([call]),
        }
        Ok(())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    User,
    Assistant,
}

/// A text where there are only texts, or a chat's content parts.
fn content(at: &str, given: Value, side: Side) -> Result<Value, Failure> {
    let given = match given {
        Value::String(text) => return Ok(json!(text)),
        Value::Array(parts) => parts,
        _ => return Err(wrong(at, "a string or a list of parts")),
    };
    let mut parts = Vec::new();
    for (nth, part) in given.into_iter().enumerate() {
        parts.push(content_part(
            Taken::of(format!("{at}[{nth}]"), part)?,
            side,
        )?);
    }
    let texts: Option<Vec<&str>> = parts.iter().map(|part| part["text"].as_str()).collect();
    Ok(match texts {
        Some(texts) => json!(texts.join("\n")),
        None => json!(parts),
    })
}

fn content_part(mut part: Taken, side: Side) -> Result<Value, Failure> {
    let kind = part.need_text("type")?;
    let told = match (kind.as_str(), side) {
        ("input_text", Side::User) => json!({"type": "text", "text": part.need_text("text")?}),
        ("output_text", Side::Assistant) => {
            // As the answer had them.
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
    part.finish()?;
    Ok(told)
}

fn only_text(at: &str, content: Value) -> Result<String, Failure> {
    match content {
        Value::String(text) => Ok(text),
        _ => Err(wrong(at, "text; pictures have no place there")),
    }
}

fn wrong(path: &str, wanted: &str) -> Failure {
    Failure::invalid(path.to_owned(), format!("`{path}` must be {wanted}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_response_gave_goes_back_as_a_conversation() {
        let input = json!([
            {"role": "developer", "content": "Short."},
            {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
            {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
                "content": [{"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}]},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed"},
            {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "rain"},
            {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "sun"}]},
        ]);
        let told = json!(messages(Some("Be kind.".to_owned()), input).unwrap());
        let call = |id: &str, name: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}});
        let expected = json!([
            {"role": "system", "content": "Be kind.\n\nShort."},
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": "I look.", "tool_calls": [call("c1", "f"), call("c2", "g")]},
            {"role": "tool", "tool_call_id": "c1", "content": "rain"},
            {"role": "tool", "tool_call_id": "c2", "content": "sun"},
        ]);
        assert_eq!(told, expected);
    }

    #[test]
    fn pictures_pass_as_data_urls_and_everything_from_elsewhere_is_refused() {
        let user = |part: Value| json!([{"role": "user", "content": [{"type": "input_text", "text": "What?"}, part]}]);
        let url = "data:image/png;base64,AA==";
        let told = messages(
            None,
            user(json!({"type": "input_image", "image_url": url, "detail": "low"})),
        )
        .unwrap();
        assert_eq!(
            told[0]["content"][1]["image_url"],
            json!({"url": url, "detail": "low"})
        );
        for (input, named) in [
            (
                user(json!({"type": "input_image", "image_url": "http://127.0.0.1/x"})),
                "input[0].content[1].image_url",
            ),
            (
                user(json!({"type": "input_image", "file_id": "file-1"})),
                "input[0].content[1].file_id",
            ),
            (
                user(json!({"type": "input_file", "file_url": "http://x"})),
                "input[0].content[1].type",
            ),
            (json!([{"role": "tool", "content": "x"}]), "input[0].role"),
            (
                json!([{"type": "item_reference", "id": "x"}]),
                "input[0].type",
            ),
            (json!([{"type": "computer_call"}]), "input[0].type"),
            (
                json!([{"role": "user", "content": "x", "name": "n"}]),
                "input[0].name",
            ),
            (json!([]), "input"),
            (json!(3), "input"),
        ] {
            let failure = messages(None, input.clone()).unwrap_err();
            assert_eq!(failure.body.error.param.as_deref(), Some(named), "{input}");
        }
    }
}
