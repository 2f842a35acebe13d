//! Parses the calls in a completion, complete or cut off by the token limit.

use super::tool::ToolCall;
use serde_json::{Map, Value};

/// Parses a text that consists only of calls: objects or lists of objects, separated by white space, commas or semicolons, or names
/// followed by their arguments. Returns `None` otherwise.
pub(super) fn calls_of(written: &str) -> Option<Vec<ToolCall>> {
    let mut calls = Vec::new();
    let mut rest = written.trim();
    while !rest.is_empty() {
        let named = !rest.starts_with(['{', '[']);
        let name = if named {
            let end = rest.find(['{', '['])?;
            let name = rest[..end].trim().to_owned();
            rest = rest[end..].strip_prefix("[ARGS]").unwrap_or(&rest[end..]);
            Some(name)
        } else {
            None
        };
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let value = values.next()?.ok()?;
        rest = &rest[values.byte_offset()..];
        rest = rest.trim_start_matches([' ', '\n', '\r', '\t', ',', ';']);
        match (name, value) {
            (Some(name), Value::Object(arguments)) if !name.is_empty() => calls.push(ToolCall {
                name,
                arguments: Value::Object(arguments).to_string(),
            }),
            (None, Value::Object(call)) => calls.push(call_of(&call)?),
            (None, Value::Array(list)) => {
                for call in list {
                    calls.push(call_of(call.as_object()?)?);
                }
            }
            _ => return None,
        }
    }
    Some(calls)
}

/// Parses the calls of a truncated text: the complete ones, and the last one with its arguments so far if its name is complete.
pub(super) fn cut_calls(written: &str) -> Vec<ToolCall> {
    let mut calls = Vec::new();
    let mut rest = written;
    loop {
        rest = rest.trim_start_matches([' ', '\n', '\r', '\t', ',', ';', '[']);
        let mut name = None;
        if !rest.starts_with('{') {
            let Some(end) = rest.find(['{', '[']) else {
                return calls;
            };
            name = Some(rest[..end].trim().to_owned());
            let behind = &rest[end..];
            rest = match behind.strip_prefix("[ARGS]") {
                Some(arguments) => arguments,
                None if "[ARGS]".starts_with(behind) => "",
                None => behind,
            };
        }
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        match (values.next(), name) {
            (Some(Ok(Value::Object(arguments))), Some(name)) if !name.is_empty() => {
                let arguments = Value::Object(arguments).to_string();
                calls.push(ToolCall { name, arguments });
            }
            (Some(Ok(Value::Object(call))), None) => match call_of(&call) {
                Some(call) => calls.push(call),
                None => return calls,
            },
            (Some(Ok(_)), _) => return calls,
            (_, Some(name)) if !name.is_empty() => {
                let arguments = rest.to_owned();
                calls.push(ToolCall { name, arguments });
                return calls;
            }
            _ => {
                calls.extend(cut_call(rest));
                return calls;
            }
        }
        rest = &rest[values.byte_offset()..];
    }
}

/// `{"name": "f", "arguments": {"a…`.
fn cut_call(written: &str) -> Option<ToolCall> {
    let after = |rest: &str, part: &str| rest.trim_start().strip_prefix(part).map(str::len);
    let skip = |mut rest, parts: &[&str]| {
        for part in parts {
            let length = after(rest, part)?;
            rest = &rest[rest.len() - length..];
        }
        Some(rest)
    };
    let rest = skip(written, &["{", "\"name\"", ":"])?;
    let mut names = serde_json::Deserializer::from_str(rest).into_iter::<String>();
    let name = names.next()?.ok()?;
    let rest = &rest[names.byte_offset()..];
    let arguments = ["\"arguments\"", "\"parameters\""]
        .into_iter()
        .find_map(|key| skip(rest, &[",", key, ":"]));
    let arguments = arguments.unwrap_or_default().trim().to_owned();
    Some(ToolCall { name, arguments })
}

fn call_of(object: &Map<String, Value>) -> Option<ToolCall> {
    if let Some(Value::Object(function)) = object.get("function") {
        return call_of(function);
    }
    let name = object.get("name")?.as_str()?.to_owned();
    let arguments = object.get("arguments").or_else(|| object.get("parameters"));
    let arguments = match arguments {
        None | Some(Value::Null) => "{}".to_owned(),
        Some(Value::String(written)) => {
            serde_json::from_str::<Map<String, Value>>(written).ok()?;
            written.clone()
        }
        Some(arguments @ Value::Object(_)) => arguments.to_string(),
        Some(_) => return None,
    };
    Some(ToolCall { name, arguments })
}
