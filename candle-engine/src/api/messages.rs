//! Owns the messages of a conversation: roles, contents, calls and their results, as chat templates take them. Never renders
//! one.

use crate::api_error::ApiError;
use crate::fields::{Fields, expected};
use serde_json::{Map, Value, json};

const MESSAGES_MAX: usize = 2048;
const CALLS_MAX: usize = 128;
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// Messages as the chat template sees them: `role`, `content` as one string, and what else the client sent.
///
/// # Errors
/// 400 that names what is wrong.
pub(crate) fn take_messages(fields: &mut Fields) -> Result<Vec<Value>, ApiError> {
    let messages = match fields.take("messages") {
        Some(Value::Array(messages)) if (1..=MESSAGES_MAX).contains(&messages.len()) => messages,
        Some(Value::Array(messages)) if messages.len() > MESSAGES_MAX => {
            let message = format!(
                "`messages` has {} messages; at most {MESSAGES_MAX} are taken",
                messages.len()
            );
            return Err(ApiError::field("messages", message));
        }
        Some(other) => {
            return Err(expected(
                "messages",
                "a list of at least one message",
                &other,
            ));
        }
        None => return Err(ApiError::field("messages", "`messages` is required")),
    };
    let messages = messages.into_iter().enumerate();
    messages
        .map(|(index, message)| parse_message(index, message))
        .collect()
}

/// Checks a message, makes its content one string, and the arguments of its calls objects.
fn parse_message(index: usize, message: Value) -> Result<Value, ApiError> {
    let place = |name: &str| format!("messages[{index}].{name}");
    let Value::Object(mut object) = message else {
        return Err(expected(
            &format!("messages[{index}]"),
            "an object",
            &message,
        ));
    };
    let role = match object.get("role").and_then(Value::as_str) {
        // The newer name of the same role; templates know the older.
        Some("developer") => "system".to_owned(),
        Some(role) if ROLES.contains(&role) => role.to_owned(),
        _ => {
            let found = object.get("role").cloned().unwrap_or_default();
            return Err(expected(
                &place("role"),
                format!("one of {}", ROLES.join(", ")),
                &found,
            ));
        }
    };
    let content = match object.get("content") {
        Some(Value::String(content)) => content.clone(),
        Some(Value::Array(parts)) => {
            let texts = parts
                .iter()
                .enumerate()
                .map(|(part, value)| parse_part(&place(&format!("content[{part}]")), value));
            texts.collect::<Result<Vec<_>, _>>()?.concat()
        }
        None | Some(Value::Null) if role == "assistant" => String::new(),
        other => {
            let found = other.cloned().unwrap_or_default();
            return Err(expected(
                &place("content"),
                "a string or a list of text parts",
                &found,
            ));
        }
    };
    if role == "tool" && !object.get("tool_call_id").is_some_and(Value::is_string) {
        let found = object.get("tool_call_id").cloned().unwrap_or_default();
        return Err(expected(
            &place("tool_call_id"),
            "the id of the call that the message answers",
            &found,
        ));
    }
    match object.get("tool_calls") {
        // Templates ask whether there are calls, and some take an empty list for them.
        None | Some(Value::Null) => drop(object.shift_remove("tool_calls")),
        Some(calls) => {
            let calls = parse_calls(&place("tool_calls"), &role, calls)?;
            object.insert("tool_calls".to_owned(), calls);
        }
    }
    object.insert("role".to_owned(), Value::String(role));
    object.insert("content".to_owned(), Value::String(content));
    let mut rest = Fields::from(object.clone());
    for name in [
        "role",
        "content",
        "name",
        "tool_call_id",
        "tool_calls",
        "refusal",
    ] {
        rest.take(name);
    }
    rest.finish(&place(""))?;
    Ok(Value::Object(object))
}

/// Calls as chat templates expect them: with their arguments as an object.
fn parse_calls(place: &str, role: &str, calls: &Value) -> Result<Value, ApiError> {
    let list = calls
        .as_array()
        .filter(|list| (1..=CALLS_MAX).contains(&list.len()) && role == "assistant")
        .ok_or_else(|| {
            let wanted = format!("a list of 1 to {CALLS_MAX} calls, in a message of the assistant");
            expected(place, wanted, calls)
        })?;
    let mut parsed = Vec::with_capacity(list.len());
    for (index, call) in list.iter().enumerate() {
        let place = format!("{place}[{index}]");
        let function = &call["function"];
        let kind = call.get("type").and_then(Value::as_str);
        let name = function["name"].as_str();
        let (Some(name), None | Some("function")) = (name, kind) else {
            return Err(expected(
                &place,
                "an object with `type` \"function\" and a `function` with a `name`",
                call,
            ));
        };
        let written = function.get("arguments").cloned().unwrap_or_default();
        let arguments: Option<Map<String, Value>> = match &written {
            Value::String(text) if text.trim().is_empty() => Some(Map::new()),
            Value::String(text) => serde_json::from_str(text).ok(),
            _ => None,
        };
        let arguments = arguments.ok_or_else(|| {
            let place = format!("{place}.function.arguments");
            expected(&place, "a string that is a JSON object", &written)
        })?;
        let id = call.get("id").cloned().unwrap_or_default();
        if !id.is_null() && !id.is_string() {
            return Err(expected(&format!("{place}.id"), "a string", &id));
        }
        parsed.push(json!({
            "id": id, "type": "function", "function": {"name": name, "arguments": arguments},
        }));
    }
    Ok(Value::Array(parsed))
}

fn parse_part(place: &str, part: &Value) -> Result<String, ApiError> {
    let known = |part: &Map<String, Value>| part.keys().all(|key| key == "type" || key == "text");
    match (part["type"].as_str(), part["text"].as_str()) {
        (Some("text"), Some(text)) if part.as_object().is_some_and(known) => Ok(text.to_owned()),
        (Some(kind), _) if kind != "text" => Err(ApiError::field(
            place,
            format!(
                "`{place}` is of type {kind:?}, which is not supported by this engine; it takes text only"
            ),
        )),
        _ => Err(expected(
            place,
            "an object with `type` \"text\" and a string `text`",
            part,
        )),
    }
}
