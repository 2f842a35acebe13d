//! Parses the messages of a conversation into the form that chat templates take: roles, contents, tool calls and their results.

use crate::api_error::ApiError;
use crate::fields::{Fields, expected};
use crate::vision::ImagePart;
use reading::{IgnoredFields, has_effect};
use serde_json::{Map, Value, json};

const MESSAGES_MAX: usize = 2048;
const CALLS_MAX: usize = 128;
/// The field in which templates expect the model's reasoning.
const REASONING: &str = "reasoning_content";
/// The fields that templates may read.
const KNOWN: [&str; 6] = [
    "role",
    "content",
    "name",
    "tool_call_id",
    "tool_calls",
    REASONING,
];
const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

/// Takes the messages as the chat template sees them: `role`, `content` as one string, calls, results and reasoning. Other fields
/// are dropped, and reported as ignored if they are not empty. With `images`, the content of a message with images is a list of
/// parts, and the images are added in their order; without, images are refused.
///
/// # Errors
/// 400 with the problem.
pub(crate) fn take_messages(
    fields: &mut Fields,
    ignored: &mut IgnoredFields,
    mut images: Option<&mut Vec<ImagePart>>,
) -> Result<Vec<Value>, ApiError> {
    let messages = match fields.take("messages") {
        Some(Value::Array(messages)) if (1..=MESSAGES_MAX).contains(&messages.len()) => messages,
        Some(Value::Array(messages)) if messages.len() > MESSAGES_MAX => {
            let message = format!(
                "`messages` has {} messages; at most {MESSAGES_MAX} are allowed",
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
        .map(|(index, message)| parse_message(index, message, ignored, images.as_deref_mut()))
        .collect()
}

/// Checks a message, and converts its content to one string, or to parts if it has images, and the arguments of its calls to objects.
fn parse_message(
    index: usize,
    message: Value,
    ignored: &mut IgnoredFields,
    mut images: Option<&mut Vec<ImagePart>>,
) -> Result<Value, ApiError> {
    let place = |name: &str| format!("messages[{index}].{name}");
    let Value::Object(mut object) = message else {
        return Err(expected(
            &format!("messages[{index}]"),
            "an object",
            &message,
        ));
    };
    let role = match object.get("role").and_then(Value::as_str) {
        // The newer name of the role; templates use the older.
        Some("developer") => "system".to_owned(),
        // The older form of a tool result, without an id.
        Some("function") => "tool".to_owned(),
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
    let is_empty = matches!(object.get("content"), None | Some(Value::Null));
    let content = match object.get("content") {
        // A refusal is text from the model.
        None | Some(Value::Null) if object.get("refusal").is_some_and(Value::is_string) => {
            let refusal = object.get("refusal").and_then(Value::as_str);
            Value::from(refusal.unwrap_or_default())
        }
        Some(Value::String(content)) => Value::from(content.as_str()),
        Some(Value::Array(parts)) => {
            let parts = parts.iter().enumerate().map(|(part, value)| {
                let place = place(&format!("content[{part}]"));
                parse_part(&place, value, ignored, images.as_deref_mut())
            });
            content_of(parts.collect::<Result<Vec<_>, _>>()?)
        }
        _ if is_empty && role == "assistant" => Value::from(""),
        other => {
            let found = other.cloned().unwrap_or_default();
            return Err(expected(
                &place("content"),
                "a string or a list of text parts",
                &found,
            ));
        }
    };
    let has_id = object.get("tool_call_id").is_some_and(Value::is_string);
    if object.get("role").is_some_and(|role| role == "tool") && !has_id {
        let found = object.get("tool_call_id").cloned().unwrap_or_default();
        return Err(expected(
            &place("tool_call_id"),
            "the id of the call that the message responds to",
            &found,
        ));
    }
    let name = object.get("name").cloned().unwrap_or_default();
    if !name.is_null() && !name.is_string() {
        return Err(expected(&place("name"), "a string", &name));
    }
    take_openais_own(&place(""), &role, &mut object, ignored)?;
    match object.get("tool_calls") {
        // Templates test if the field exists, and some treat an empty list as calls.
        None | Some(Value::Null) => drop(object.shift_remove("tool_calls")),
        Some(Value::Array(calls)) if calls.is_empty() && role == "assistant" => {
            drop(object.shift_remove("tool_calls"));
        }
        Some(calls) => {
            let calls = parse_calls(&place("tool_calls"), &role, calls)?;
            object.insert("tool_calls".to_owned(), calls);
        }
    }
    object.insert("role".to_owned(), Value::String(role));
    object.insert("content".to_owned(), content);
    object.retain(|name, value| {
        let is_known = KNOWN.contains(&name.as_str());
        if !is_known && has_effect(value) {
            ignored.add_unknown("messages", name);
        }
        is_known
    });
    Ok(Value::Object(object))
}

/// Handles fields of OpenAI's responses that clients send back unchanged. Removes fields that templates cannot use, converts an
/// old-style function call to a tool call, and renames the alternative reasoning field.
fn take_openais_own(
    place: &str,
    role: &str,
    object: &mut Map<String, Value>,
    ignored: &mut IgnoredFields,
) -> Result<(), ApiError> {
    for name in ["annotations", "audio", "refusal"] {
        let value = object.shift_remove(name).unwrap_or_default();
        if role != "assistant" && has_effect(&value) {
            ignored.add_unknown("messages", name);
        }
    }
    let [own, other] = [REASONING, "reasoning"].map(|name| match object.shift_remove(name) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(Value::String(text)),
        Some(other) => {
            if has_effect(&other) {
                ignored.add_unknown("messages", name);
            }
            None
        }
    });
    if let Some(reasoning) = own.or(other) {
        object.insert(REASONING.to_owned(), reasoning);
    }
    let call = object.shift_remove("function_call").unwrap_or_default();
    if call.is_null() {
        return Ok(());
    }
    let has_calls = object
        .get("tool_calls")
        .is_some_and(|calls| calls.as_array().is_none_or(|calls| !calls.is_empty()));
    if !call.is_object() || role != "assistant" {
        let wanted = "null or an object with `name` and `arguments`, in a message of the assistant";
        return Err(expected(&format!("{place}function_call"), wanted, &call));
    }
    if !has_calls {
        let call = json!({"type": "function", "function": call});
        object.insert("tool_calls".to_owned(), json!([call]));
    }
    Ok(())
}

/// Parses calls as chat templates expect them, with their arguments as an object. Arguments that are not a JSON object remain the
/// model's text.
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
        let arguments = match function.get("arguments").cloned().unwrap_or_default() {
            Value::Null => Value::Object(Map::new()),
            Value::String(text) if text.trim().is_empty() => Value::Object(Map::new()),
            Value::String(text) => match serde_json::from_str::<Map<String, Value>>(&text) {
                Ok(object) => Value::Object(object),
                Err(_) => Value::String(text),
            },
            Value::Object(object) => Value::Object(object),
            other => Value::String(other.to_string()),
        };
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

/// A part of a message's content.
enum ContentPart {
    Text(String),
    Image,
}

/// The content as templates expect it: one string, or a list if it has images.
fn content_of(parts: Vec<ContentPart>) -> Value {
    let has_images = parts.iter().any(|part| matches!(part, ContentPart::Image));
    let part = |part: &ContentPart| match part {
        ContentPart::Text(text) => json!({"type": "text", "text": text}),
        ContentPart::Image => json!({"type": "image"}),
    };
    if has_images {
        return parts.iter().map(part).collect();
    }
    let texts = parts.into_iter().filter_map(|part| match part {
        ContentPart::Text(text) => Some(text),
        ContentPart::Image => None,
    });
    Value::String(texts.collect())
}

fn parse_part(
    place: &str,
    part: &Value,
    ignored: &mut IgnoredFields,
    images: Option<&mut Vec<ImagePart>>,
) -> Result<ContentPart, ApiError> {
    let sees = images.is_some();
    let is_image = part["type"] == "image_url" && sees;
    // `cache_control` has no effect: this engine's cache is automatic.
    let is_known = |key: &str| {
        matches!(key, "type" | "text" | "refusal" | "cache_control")
            || (is_image && key == "image_url")
    };
    for (key, value) in part.as_object().into_iter().flatten() {
        if !is_known(key) && has_effect(value) {
            ignored.add_unknown("messages.content", key);
        }
    }
    if let Some(images) = images.filter(|_| is_image) {
        // The size of an image depends on its pixels alone.
        let detail = &part["image_url"]["detail"];
        if has_effect(detail) && detail != "auto" {
            ignored.add_unknown("messages.content.image_url", "detail");
        }
        images.push(ImagePart::parse(place, part)?);
        return Ok(ContentPart::Image);
    }
    match (part["type"].as_str(), part["text"].as_str()) {
        (Some("text"), Some(text)) => Ok(ContentPart::Text(text.to_owned())),
        (Some("refusal"), _) if part["refusal"].is_string() => {
            let refusal = part["refusal"].as_str().unwrap_or_default();
            Ok(ContentPart::Text(refusal.to_owned()))
        }
        (Some(kind), _) if kind != "text" => {
            let accepted = if sees {
                "text and image_url"
            } else {
                "only text"
            };
            Err(ApiError::field(
                place,
                format!(
                    "`{place}` is of type {kind:?}, which is not supported by this engine; it accepts {accepted}"
                ),
            ))
        }
        _ => Err(expected(
            place,
            "an object with `type` \"text\" and a string `text`",
            part,
        )),
    }
}

#[cfg(test)]
mod tests;
