//! Translates Ollama messages into OpenAI messages: images become data: URLs, tool calls get ids, and tool results get the id of
//! their call.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Map, Value, json};

use super::super::translation::arguments_of;
use crate::fields::RequestFields;
use api_types::error::Failure;

const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// Base64 prefixes of image formats, and their media types.
const PICTURES: [(&str, &str); 4] = [
    ("iVBOR", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lG", "image/gif"),
    ("UklGR", "image/webp"),
];

/// Calls without a result so far.
#[derive(Default)]
struct CallsWithoutResponse {
    /// Ids in call order.
    calls: BTreeMap<u64, String>,
    by_id: BTreeMap<String, u64>,
    /// Calls by tool name. Some may already have a result that named the id.
    by_name: BTreeMap<String, VecDeque<u64>>,
    count: u64,
}

impl CallsWithoutResponse {
    fn next(&mut self) -> String {
        self.count += 1;
        format!("call_{}", self.count)
    }

    fn id(&mut self, own: Option<String>, name: &str) -> String {
        let next = self.next();
        let (nth, id) = (self.count, own.unwrap_or(next));
        self.calls.insert(nth, id.clone());
        self.by_id.insert(id.clone(), nth);
        self.by_name
            .entry(name.to_owned())
            .or_default()
            .push_back(nth);
        id
    }

    /// Returns the id of the call that a result belongs to: the given id, or the tool's next call, or the next call of any tool.
    fn call_of_result(&mut self, id: Option<String>, name: Option<&str>) -> String {
        if let Some(id) = id {
            if let Some(nth) = self.by_id.remove(&id) {
                self.calls.remove(&nth);
            }
            return id;
        }
        let of_tool = name.and_then(|name| self.by_name.get_mut(name));
        if let Some(queue) = of_tool {
            while let Some(nth) = queue.pop_front() {
                if let Some(id) = self.calls.remove(&nth) {
                    return id;
                }
            }
        }
        let first = self.calls.pop_first();
        first.map_or_else(|| self.next(), |(_, id)| id)
    }
}

/// Translates all messages. Fields without an equivalent are reported as ignored.
pub(super) fn messages(
    items: Vec<Value>,
    ignored: &mut Vec<String>,
) -> Result<Vec<Value>, Failure> {
    let mut open = CallsWithoutResponse::default();
    let items = items.into_iter().enumerate();
    let read = items.map(|(nth, value)| {
        let message = RequestFields::new(format!("messages[{nth}]"), value)?;
        translate(message, &mut open, ignored)
    });
    read.collect()
}

fn translate(
    mut message: RequestFields,
    open: &mut CallsWithoutResponse,
    ignored: &mut Vec<String>,
) -> Result<Value, Failure> {
    let role = message.need_text("role")?.to_ascii_lowercase();
    if !ROLES.contains(&role.as_str()) {
        return Err(message.wrong("role", "system, user, assistant or tool"));
    }
    let text = message.text("content")?.unwrap_or_default();
    let pictures = pictures(&mut message)?;
    let mut translated = Map::new();
    translated.insert("role".to_owned(), json!(role));
    translated.insert("content".to_owned(), content(text, pictures));
    let mut calls = Vec::new();
    for (nth, call) in message
        .list("tool_calls")?
        .unwrap_or_default()
        .into_iter()
        .enumerate()
    {
        let at = format!("{}[{nth}]", message.path("tool_calls"));
        calls.push(self::call(RequestFields::new(at, call)?, open)?);
    }
    if !calls.is_empty() {
        translated.insert("tool_calls".to_owned(), json!(calls));
    }
    let name = message.text("tool_name")?.or(message.text("name")?);
    let id = message.text("tool_call_id")?;
    if role == "tool" {
        let id = open.call_of_result(id, name.as_deref());
        translated.insert("tool_call_id".to_owned(), json!(id));
    }
    // Templates of reasoning models drop old reasoning on their own.
    if let Some(thoughts) = message
        .text("thinking")?
        .filter(|thoughts| !thoughts.is_empty())
    {
        translated.insert("reasoning_content".to_owned(), json!(thoughts));
    }
    for name in message.left() {
        push_once(ignored, &name);
    }
    Ok(Value::Object(translated))
}

/// Number of entries searched for a duplicate; most duplicates are among the first.
const LOOKED_THROUGH: usize = 32;

fn push_once(ignored: &mut Vec<String>, name: &str) {
    if !ignored
        .iter()
        .take(LOOKED_THROUGH)
        .any(|known| known == name)
    {
        ignored.push(name.to_owned());
    }
}

/// Translates a tool call. OpenAI's form has its arguments as a string.
fn call(mut call: RequestFields, open: &mut CallsWithoutResponse) -> Result<Value, Failure> {
    let id = call.text("id")?;
    let function = call.object("function")?;
    let mut function = function.ok_or_else(|| call.missing("function"))?;
    let name = function.need_text("name")?;
    // Some clients send OpenAI's form.
    let arguments = arguments_of(function.take("arguments"));
    let id = open.id(id, &name);
    Ok(json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}))
}

/// Reads the images of a message or a prompt as data: URLs.
pub(super) fn pictures(request: &mut RequestFields) -> Result<Vec<String>, Failure> {
    let items = request.list("images")?.unwrap_or_default();
    let items = items.into_iter().enumerate();
    let read = items.map(|(nth, value)| match value {
        Value::String(text) => data_url(&text).ok_or_else(|| wrong_picture(request, nth)),
        _ => Err(wrong_picture(request, nth)),
    });
    read.collect()
}

fn wrong_picture(request: &RequestFields, nth: usize) -> Failure {
    let place = format!("images[{nth}]");
    request.wrong(&place, "a PNG, JPEG, GIF or WebP image in base64")
}

fn data_url(text: &str) -> Option<String> {
    if text.starts_with("data:image/") {
        return Some(text.to_owned());
    }
    let (_, kind) = PICTURES.iter().find(|(begin, _)| text.starts_with(begin))?;
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
    let fits = text.bytes().all(is_base64);
    fits.then(|| format!("data:{kind};base64,{text}"))
}

/// A plain string, or content parts if there are images.
pub(super) fn content(text: String, pictures: Vec<String>) -> Value {
    if pictures.is_empty() {
        return Value::String(text);
    }
    let text = (!text.is_empty()).then(|| json!({"type": "text", "text": text}));
    let pictures = pictures
        .into_iter()
        .map(|url| json!({"type": "image_url", "image_url": {"url": url}}));
    text.into_iter().chain(pictures).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(items: Value) -> Result<(Value, Vec<String>), Failure> {
        let mut ignored = Vec::new();
        let Value::Array(items) = items else {
            panic!("a list")
        };
        let read = messages(items, &mut ignored)?;
        Ok((Value::Array(read), ignored))
    }

    #[test]
    fn tool_calls_get_ids_and_results_refer_to_them() {
        let call = |name: &str| json!({"function": {"name": name, "arguments": {"city": "Ulm"}}});
        let (translated, _) = read(json!([
            {"role": "assistant", "content": "", "tool_calls": [call("a"), call("b"), call("a")]},
            {"role": "tool", "content": "1", "tool_name": "b"},
            {"role": "tool", "content": "2", "name": "a"},
            {"role": "tool", "content": "3"},
            {"role": "tool", "content": "4"},
        ]))
        .unwrap();
        let ids: Vec<&str> = (1..5)
            .map(|nth| translated[nth]["tool_call_id"].as_str().unwrap())
            .collect();
        assert_eq!(ids, ["call_2", "call_1", "call_3", "call_4"]);
        let first = &translated[0]["tool_calls"][0];
        let wanted = json!({"id": "call_1", "type": "function", "function": {"name": "a", "arguments": "{\"city\":\"Ulm\"}"}});
        assert_eq!(*first, wanted);
        let (translated, _) = read(json!([
            {"role": "assistant", "tool_calls": [{"id": "x", "function": {"name": "a"}}, {"id": "y", "function": {"name": "a"}}]},
            {"role": "tool", "content": "1", "tool_call_id": "y"},
            {"role": "tool", "content": "2", "tool_name": "a"},
        ]))
        .unwrap();
        assert_eq!(
            (
                &translated[1]["tool_call_id"],
                &translated[2]["tool_call_id"]
            ),
            (&json!("y"), &json!("x"))
        );
        assert_eq!(
            translated[0]["tool_calls"][0]["function"]["arguments"],
            "{}"
        );
    }

    #[test]
    fn images_become_parts_with_their_media_type() {
        let (translated, _) =
            read(json!([{"role": "User", "content": "What?", "images": ["iVBORw0KGgo="]}]))
                .unwrap();
        let url = json!({"url": "data:image/png;base64,iVBORw0KGgo="});
        let parts =
            json!([{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": url}]);
        assert_eq!(translated[0], json!({"role": "user", "content": parts}));
        for wrong in [
            json!(["hello"]),
            json!(["/etc/passwd"]),
            json!([7]),
            json!(["iVBOR\n"]),
            json!("iVBOR"),
        ] {
            let failure =
                read(json!([{"role": "user", "content": "x", "images": wrong}])).unwrap_err();
            let param = failure.body.error.param.unwrap();
            assert!(param.starts_with("messages[0].images"), "{param}");
        }
    }

    #[test]
    fn thinking_is_passed_on_unknown_fields_are_reported_and_invalid_ones_refused() {
        let (translated, ignored) = read(json!([
            {"role": "assistant", "content": "a", "thinking": "hm", "shiny": 1},
        ]))
        .unwrap();
        let thought = json!({"role": "assistant", "content": "a", "reasoning_content": "hm"});
        assert_eq!(translated[0], thought);
        assert_eq!(ignored, ["messages[0].shiny"]);
        for (message, named) in [
            (json!({"content": "x"}), "messages[0].role"),
            (json!({"role": "nobody"}), "messages[0].role"),
            (json!({"role": "user", "content": 3}), "messages[0].content"),
            (
                json!({"role": "assistant", "tool_calls": [{}]}),
                "messages[0].tool_calls[0].function",
            ),
            (json!("x"), "messages[0]"),
        ] {
            let failure = read(json!([message])).unwrap_err();
            assert_eq!(failure.body.error.param.as_deref(), Some(named));
        }
    }
}
