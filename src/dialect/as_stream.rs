//! Converts a complete response, from an engine that cannot stream, into the events that a streaming client expects.

use serde_json::{Map, Value, json};

use crate::damaged::Damaged;

/// Returns one event per choice, one for the usage, and the end of the stream. An error is returned as an error event.
///
/// # Errors
/// The body is not a response, or has more than `choices_max` choices.
pub fn events(body: &[u8], choices_max: usize) -> Result<Vec<u8>, Damaged> {
    let Ok(Value::Object(mut head)) = serde_json::from_slice(body) else {
        return Err(Damaged::NotJson);
    };
    if head.get("error").is_some_and(|error| !error.is_null()) {
        return Ok(event(&json!(head)).into_bytes());
    }
    let Some(Value::Array(choices)) = head.shift_remove("choices") else {
        return Err(Damaged::NoChoices);
    };
    if choices.len() > choices_max {
        return Err(Damaged::TooManyResponses(choices_max));
    }
    let usage = head.shift_remove("usage").filter(Value::is_object);
    if head
        .get("object")
        .is_some_and(|kind| kind == "chat.completion")
    {
        head.insert("object".to_owned(), json!("chat.completion.chunk"));
    }
    let with = |choices: Value, usage: Option<Value>| {
        let mut chunk = head.clone();
        chunk.insert("choices".to_owned(), choices);
        if let Some(usage) = usage {
            chunk.insert("usage".to_owned(), usage);
        }
        event(&Value::Object(chunk))
    };
    let mut written = String::new();
    for choice in choices {
        written.push_str(&with(json!([streamed(choice)]), None));
    }
    if usage.is_some() {
        written.push_str(&with(json!([]), usage));
    }
    written.push_str("data: [DONE]\n\n");
    Ok(written.into_bytes())
}

fn event(chunk: &Value) -> String {
    format!("data: {chunk}\n\n")
}

/// Converts a choice: its message becomes a single delta in which each tool call has its index.
fn streamed(choice: Value) -> Value {
    let Value::Object(choice) = choice else {
        return choice;
    };
    let mut written = Map::new();
    for (name, mut value) in choice {
        if name != "message" {
            written.insert(name, value);
            continue;
        }
        let calls = value.get_mut("tool_calls").and_then(Value::as_array_mut);
        for (index, call) in calls.into_iter().flatten().enumerate() {
            if let Value::Object(call) = call {
                call.entry("index").or_insert(json!(index));
            }
        }
        written.insert("delta".to_owned(), value);
    }
    Value::Object(written)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assembler::Assembler;

    #[test]
    fn a_response_round_trips_through_its_stream() {
        let call =
            json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        let message = |text: &str, calls: Value| json!({"role": "assistant", "content": text, "refusal": null, "tool_calls": calls});
        let chat = json!({"id": "x", "object": "chat.completion", "created": 5, "model": "m",
            "choices": [
                {"index": 0, "message": message("hi", json!([call])), "logprobs": null, "finish_reason": "tool_calls"},
                {"index": 1, "message": message("ho", json!([call, call])), "logprobs": null, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2}});
        let text = json!({"id": "x", "object": "text_completion", "created": 5, "model": "m",
            "choices": [{"index": 0, "text": "hi", "logprobs": null, "finish_reason": "length"}]});
        for response in [chat, text] {
            let mut assembler = Assembler::new(None, 2);
            let written = events(response.to_string().as_bytes(), 2).unwrap();
            assembler.push(&written).unwrap();
            assert!(assembler.done);
            assert_eq!(assembler.finish().unwrap(), response);
        }
    }

    #[test]
    fn an_error_stays_an_error_and_other_bodies_are_damaged() {
        let error = br#"{"error":{"message":"no"}}"#;
        let written = String::from_utf8(events(error, 9).unwrap()).unwrap();
        assert_eq!(written, "data: {\"error\":{\"message\":\"no\"}}\n\n");
        assert_eq!(events(b"{\"choices\":", 9), Err(Damaged::NotJson));
        assert_eq!(events(b"{\"a\":1}", 9), Err(Damaged::NoChoices));
        let two = br#"{"choices":[{},{}]}"#;
        assert_eq!(events(two, 1), Err(Damaged::TooManyResponses(1)));
    }
}
