//! Repairs the arguments of earlier tool calls in a chat. If a model wrote invalid JSON, the client sends the call back with every
//! later turn, and engines that parse the arguments would refuse the conversation from then on.

use std::borrow::Cow;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use api_types::error::Failure;
use dialect::shape::may_be_a_tree;

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    tool_calls: Option<Vec<Call<'a>>>,
}

#[derive(Deserialize)]
struct Call<'a> {
    #[serde(borrow)]
    function: Option<Function<'a>>,
}

#[derive(Deserialize)]
struct Function<'a> {
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

/// Replaces broken arguments by an object that holds them as text: `{"arguments": "…"}`. `None` if none are broken.
pub(crate) fn mended(messages: &RawValue) -> Result<Option<Value>, Failure> {
    static CALLS: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"\"tool_calls\""));
    let text = messages.get();
    if CALLS.find(text.as_bytes()).is_none() || !has_broken(text) {
        return Ok(None);
    }
    may_be_a_tree(text.as_bytes())?;
    let mut messages: Value = serde_json::from_str(text).unwrap_or_default();
    for message in messages.as_array_mut().into_iter().flatten() {
        let calls = message.get_mut("tool_calls").and_then(Value::as_array_mut);
        for call in calls.into_iter().flatten() {
            let Some(arguments) = call.pointer_mut("/function/arguments") else {
                continue;
            };
            if arguments.as_str().is_some_and(is_broken) {
                *arguments = json!(json!({"arguments": arguments.take()}).to_string());
            }
        }
    }
    Ok(Some(messages))
}

/// Returns false for text that is not a list of messages: the engine reports that error.
fn has_broken(messages: &str) -> bool {
    let messages: Vec<Message<'_>> = serde_json::from_str(messages).unwrap_or_default();
    let calls = messages
        .into_iter()
        .filter_map(|message| message.tool_calls);
    let functions = calls.flatten().filter_map(|call| call.function);
    let mut arguments = functions.filter_map(|function| function.arguments);
    arguments.any(|raw| {
        let text = serde_json::from_str::<Cow<'_, str>>(raw.get());
        text.is_ok_and(|text| is_broken(&text))
    })
}

/// Engines accept empty arguments.
fn is_broken(arguments: &str) -> bool {
    !arguments.trim().is_empty() && serde_json::from_str::<IgnoredAny>(arguments).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mend(messages: &Value) -> Option<Value> {
        let raw = serde_json::value::to_raw_value(messages).unwrap();
        mended(&raw).unwrap()
    }

    fn turn(arguments: Value) -> Value {
        json!([{"role": "user", "content": "a"}, {"role": "assistant", "seed": 1.5, "tool_calls": [
            {"id": "1", "function": {"name": "f", "arguments": "{}"}},
            {"id": "2", "function": {"name": "f", "arguments": arguments}}]}])
    }

    #[test]
    fn broken_arguments_become_a_text_in_an_object() {
        for broken in ["{\"a\": ", "a = 1", "{\"a\": 1}}", "{'a': 1}"] {
            let mended = mend(&turn(json!(broken))).expect("is mended");
            let written = mended[1]["tool_calls"][1]["function"]["arguments"].as_str();
            let written: Value = serde_json::from_str(written.unwrap()).unwrap();
            assert_eq!(written, json!({"arguments": broken}));
            let mut others = mended;
            others[1]["tool_calls"][1]["function"]["arguments"] = json!(broken);
            assert_eq!(others, turn(json!(broken)));
        }
    }

    #[test]
    fn arguments_that_engines_can_parse_are_unchanged() {
        for fine in [
            json!("{\"a\": 1}"),
            json!(""),
            json!(" "),
            json!("[1]"),
            json!({"a": 1}),
            json!(null),
        ] {
            assert_eq!(mend(&turn(fine.clone())), None, "{fine}");
        }
        for messages in [
            json!("tool_calls"),
            json!([{"tool_calls": 3}]),
            json!([3, {"tool_calls": []}]),
        ] {
            assert_eq!(mend(&messages), None, "{messages}");
        }
    }
}
