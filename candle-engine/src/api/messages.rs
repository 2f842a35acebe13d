//! Parses the messages of a conversation: roles, contents, tool calls and their results, as chat templates take them.

use crate::api_error::ApiError;
use crate::fields::{Fields, expected};
use serde_json::{Map, Value, json};

const MESSAGES_MAX: usize = 2048;
const CALLS_MAX: usize = 128;
/// What the model thought before it answered, as templates know it.
const REASONING: &str = "reasoning_content";
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
    let is_empty = matches!(object.get("content"), None | Some(Value::Null));
    let content = match object.get("content") {
        // A refusal of the model is a text of the model.
        None | Some(Value::Null) if object.get("refusal").is_some_and(Value::is_string) => {
            let refusal = object.get("refusal").and_then(Value::as_str);
            refusal.unwrap_or_default().to_owned()
        }
        Some(Value::String(content)) => content.clone(),
        Some(Value::Array(parts)) => {
            let texts = parts
                .iter()
                .enumerate()
                .map(|(part, value)| parse_part(&place(&format!("content[{part}]")), value));
            texts.collect::<Result<Vec<_>, _>>()?.concat()
        }
        _ if is_empty && role == "assistant" => String::new(),
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
    for name in ["name", "reasoning"] {
        let found = object.get(name).cloned().unwrap_or_default();
        if !found.is_null() && !found.is_string() {
            return Err(expected(&place(name), "a string", &found));
        }
    }
    take_openais_own(&place(""), &role, &mut object)?;
    match object.get("tool_calls") {
        // Templates ask whether there are calls, and some take an empty list for them.
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
    object.insert("content".to_owned(), Value::String(content));
    let mut rest = Fields::from(object.clone());
    for name in [
        "role",
        "content",
        "name",
        "tool_call_id",
        "tool_calls",
        REASONING,
    ] {
        rest.take(name);
    }
    rest.finish(&place(""))?;
    Ok(Value::Object(object))
}

/// Fields of an answer of OpenAI's that come back with it as they were sent. What a template has no place for goes; the older
/// form of a call becomes the newer one, and the other name of a reasoning the one that templates know.
fn take_openais_own(
    place: &str,
    role: &str,
    object: &mut Map<String, Value>,
) -> Result<(), ApiError> {
    for name in ["annotations", "audio", "refusal"] {
        let value = object.shift_remove(name).unwrap_or_default();
        let is_right = match name {
            "annotations" => value.is_array(),
            "audio" => value.is_object(),
            _ => value.is_string(),
        };
        let is_taken = value.is_null() || (is_right && role == "assistant");
        if !is_taken {
            let wanted = "null, or what an answer of the assistant had there";
            return Err(expected(&format!("{place}{name}"), wanted, &value));
        }
    }
    let other = object.shift_remove("reasoning").unwrap_or_default();
    if object.get(REASONING).is_none_or(Value::is_null) && !other.is_null() {
        object.insert(REASONING.to_owned(), other);
    }
    match object.get(REASONING) {
        None | Some(Value::String(_)) => {}
        Some(Value::Null) => drop(object.shift_remove(REASONING)),
        Some(other) => {
            return Err(expected(&format!("{place}{REASONING}"), "a string", other));
        }
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
    let known = |(key, value): (&String, &Value)| match key.as_str() {
        "type" | "text" => true,
        // A hint for caches, of which this engine has one that needs none.
        "cache_control" => value.is_null() || value.is_object(),
        _ => false,
    };
    let is_known = |part: &Map<String, Value>| part.iter().all(known);
    match (part["type"].as_str(), part["text"].as_str()) {
        (Some("text"), Some(text)) if part.as_object().is_some_and(is_known) => Ok(text.to_owned()),
        (Some("refusal"), _) if part["refusal"].is_string() => {
            Ok(part["refusal"].as_str().unwrap_or_default().to_owned())
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn take(messages: Value) -> Result<Vec<Value>, ApiError> {
        let body = json!({"messages": messages});
        take_messages(&mut Fields::parse(body.to_string().as_bytes()).expect("an object"))
    }

    #[test]
    fn an_answer_goes_back_with_all_that_it_came_with() {
        let nulls = json!({"role": "assistant", "content": "Hi", "annotations": null, "audio": null,
            "function_call": null, "reasoning_content": null, "refusal": null, "tool_calls": null});
        assert_eq!(
            take(json!([nulls])).expect("is taken"),
            [json!({"role": "assistant", "content": "Hi"})]
        );
        let given = json!({"role": "assistant", "content": "Hi", "annotations": [], "audio": {"id": "a"},
            "reasoning_content": "I greet.", "tool_calls": []});
        assert_eq!(
            take(json!([given])).expect("is taken"),
            [json!({"role": "assistant", "content": "Hi", "reasoning_content": "I greet."})]
        );
        let refused = json!({"role": "assistant", "content": null, "refusal": "No."});
        assert_eq!(
            take(json!([refused])).expect("is taken")[0]["content"],
            "No."
        );
        let other = json!({"role": "assistant", "content": "Hi", "reasoning": "I greet."});
        let taken = take(json!([other])).expect("is taken");
        assert_eq!(taken[0]["reasoning_content"], "I greet.");
    }

    #[test]
    fn the_older_form_of_a_call_becomes_the_newer_one() {
        let call = json!({"name": "f", "arguments": "{\"a\": 1}"});
        let message = json!({"role": "assistant", "content": null, "function_call": call});
        let taken = take(json!([message])).expect("is taken");
        assert_eq!(
            taken[0]["tool_calls"][0]["function"],
            json!({"name": "f", "arguments": {"a": 1}})
        );
    }

    #[test]
    fn a_hint_for_a_cache_may_stand_in_every_text_part() {
        let part = json!({"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}});
        let taken = take(json!([{"role": "user", "content": [part]}])).expect("is taken");
        assert_eq!(taken[0]["content"], "Hi");
    }

    #[test]
    fn what_is_no_field_of_an_answer_is_refused_by_its_place() {
        for (message, field) in [
            (
                json!({"role": "user", "content": "a", "audio": {"id": "a"}}),
                "messages[0].audio",
            ),
            (
                json!({"role": "assistant", "content": "a", "annotations": 3}),
                "messages[0].annotations",
            ),
            (
                json!({"role": "assistant", "content": "a", "reasoning_content": 3}),
                "messages[0].reasoning_content",
            ),
            (
                json!({"role": "assistant", "content": "a", "reasoning_content": "b", "reasoning": {}}),
                "messages[0].reasoning",
            ),
            (
                json!({"role": "user", "content": "a", "name": {}}),
                "messages[0].name",
            ),
            (
                json!({"role": "assistant", "function_call": "f"}),
                "messages[0].function_call",
            ),
            (
                json!({"role": "user", "content": [{"type": "text", "text": "a", "cache_control": 3}]}),
                "messages[0].content[0]",
            ),
        ] {
            let error = take(json!([message])).expect_err("must be refused");
            assert_eq!(error.param.as_deref(), Some(field), "{}", error.message);
        }
    }
}
