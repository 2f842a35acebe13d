//! The pieces of a message, a choice's tool calls and its log probabilities, joined as they come.

use serde_json::{Map, Value, json};

use crate::inference::answer::damaged::{CALLS_MAX, Damaged};

pub(super) fn append(map: &mut Map<String, Value>, name: &str, text: &str) {
    match map.get_mut(name) {
        Some(Value::String(known)) => known.push_str(text),
        _ => {
            map.insert(name.to_owned(), json!(text));
        }
    }
}

pub(super) fn merge_delta(
    message: &mut Map<String, Value>,
    delta: Map<String, Value>,
) -> Result<(), Damaged> {
    for (name, value) in delta {
        match (name.as_str(), value) {
            ("role", value) => {
                message.entry("role").or_insert(value);
            }
            ("tool_calls", Value::Array(calls)) => merge_tool_calls(message, calls)?,
            (_, Value::String(text)) => append(message, &name, &text),
            (_, Value::Null) => {}
            (_, value) => {
                message.insert(name, value);
            }
        }
    }
    Ok(())
}

/// Tool calls come in pieces: the id and name first, then the arguments bit by bit.
fn merge_tool_calls(message: &mut Map<String, Value>, calls: Vec<Value>) -> Result<(), Damaged> {
    let merged = message.entry("tool_calls").or_insert_with(|| json!([]));
    let Value::Array(merged) = merged else {
        return Ok(());
    };
    for call in calls {
        let Value::Object(mut call) = call else {
            continue;
        };
        let index = call
            .remove("index")
            .and_then(|index| index.as_u64())
            .unwrap_or(merged.len() as u64) as usize;
        if index > merged.len() {
            continue;
        }
        if index >= CALLS_MAX {
            return Err(Damaged::TooManyCalls);
        }
        if index == merged.len() {
            merged.push(json!({}));
        }
        let Value::Object(known) = &mut merged[index] else {
            continue;
        };
        for (name, value) in call {
            match (name.as_str(), value) {
                ("function", Value::Object(function)) => {
                    let into = known.entry("function").or_insert_with(|| json!({}));
                    if let Value::Object(into) = into {
                        for (part, text) in function {
                            match text {
                                Value::String(text) => append(into, &part, &text),
                                other => drop(into.insert(part, other)),
                            }
                        }
                    }
                }
                (_, Value::Null) => {}
                (_, value) => drop(known.insert(name, value)),
            }
        }
    }
    Ok(())
}

pub(super) fn merge_logprobs(choice: &mut Map<String, Value>, logprobs: Map<String, Value>) {
    if !matches!(choice.get("logprobs"), Some(Value::Object(_))) {
        choice.insert("logprobs".to_owned(), json!({}));
    }
    let Some(Value::Object(merged)) = choice.get_mut("logprobs") else {
        return;
    };
    for (name, value) in logprobs {
        match (merged.get_mut(&name), value) {
            (Some(Value::Array(known)), Value::Array(more)) => known.extend(more),
            (Some(_), Value::Null) => {}
            (_, value) => drop(merged.insert(name, value)),
        }
    }
}
