//! Tests of `response.rs`.

use super::super::super::seal::Seal;
use super::super::tools::Tools;
use super::*;
use pool::KeyId;
use reading::IgnoredFields;

pub fn sealer() -> Sealer {
    Sealer::new(Arc::new(Seal::new(&[7; 32])), KeyId(1))
}

/// A response whose client has a custom tool `edit` and a function `wait` in a namespace.
pub fn response(echo: &Map<String, Value>, shows: Shows) -> Response {
    let tools = json!([{"type": "custom", "name": "edit"},
        {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "wait"}]}]);
    let tools = tools.as_array().unwrap().clone();
    let tools = Tools::read(tools, &mut IgnoredFields::default()).unwrap();
    let reading = Reading {
        now_seconds: 7,
        sealer: sealer(),
        desk: None,
        background: None,
    };
    Response::new("m".to_owned(), echo, tools.names, shows, None, &reading)
}

fn whole_with(reply: &Value, shows: Shows) -> Value {
    let echo = json!({"instructions": null, "tools": [], "metadata": {"a": "b"}});
    let echo = echo.as_object().unwrap().clone();
    let response = response(&echo, shows);
    response.respond(Chunk::of_response(reply)).unwrap()
}

fn whole(response: &Value) -> Value {
    whole_with(response, Shows::default())
}

#[test]
fn reasoning_is_an_item_before_the_message_and_is_sealed_on_request() {
    let response = json!({"choices": [{"message": {"reasoning_content": "Hm.", "content": "Hi"}}]});
    let plain = whole(&response);
    let thought = &plain["output"][0];
    assert_eq!(
        thought["content"],
        json!([{"type": "reasoning_text", "text": "Hm."}])
    );
    assert_eq!(
        (&thought["summary"], &thought["encrypted_content"]),
        (&json!([]), &Value::Null)
    );
    assert_eq!(plain["output"][1]["content"][0]["text"], "Hi");
    let shows = Shows {
        encrypted: true,
        summary: true,
    };
    let sealed = whole_with(&response, shows);
    let thought = &sealed["output"][0];
    assert_eq!(
        thought["summary"],
        json!([{"type": "summary_text", "text": "Hm."}])
    );
    assert_eq!(thought.get("content"), None);
    let text = sealer().open(thought["encrypted_content"].as_str().unwrap());
    assert_eq!(text.as_deref(), Some("Hm."));
}

#[test]
fn tool_calls_use_the_clients_names_and_forms() {
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "function": {"name": name, "arguments": arguments}});
    let calls = [
        call("c1", "edit", "{\"input\": \"a\\n\"}"),
        call("c2", "wait", "{}"),
        call("c3", "other", "{}"),
    ];
    let response = json!({"choices": [{"message": {"content": null, "tool_calls": calls}}]});
    let output = whole(&response)["output"].clone();
    assert_eq!(
        (&output[0]["type"], &output[0]["input"]),
        (&json!("custom_tool_call"), &json!("a\n"))
    );
    assert!(output[0]["id"].as_str().unwrap().starts_with("ctc_"));
    assert_eq!(
        (&output[1]["type"], &output[1]["namespace"]),
        (&json!("function_call"), &json!("agents"))
    );
    assert_eq!(
        (&output[2]["name"], output[2].get("namespace")),
        (&json!("other"), None)
    );
}

#[test]
fn a_complete_response_has_its_items_usage_and_request_settings() {
    let shown = whole(
        &json!({"choices": [{"message": {"content": "Hi", "tool_calls": [
            {"id": "c", "function": {"name": "f", "arguments": "{}"}}]}, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}}),
    );
    assert_eq!(
        (&shown["object"], &shown["status"]),
        (&json!("response"), &json!("completed"))
    );
    assert_eq!(
        (&shown["created_at"], &shown["metadata"]),
        (&json!(7), &json!({"a": "b"}))
    );
    assert_eq!(shown["output"][0]["content"][0], part("Hi"));
    assert_eq!(shown["output"][0]["status"], "completed");
    assert_eq!(shown["output"][1]["call_id"], "c");
    assert_eq!(shown["usage"]["input_tokens_details"]["cached_tokens"], 4);
    assert_eq!(shown["usage"]["total_tokens"], 10);
    assert_eq!(shown["incomplete_details"], Value::Null);
}

#[test]
fn a_truncated_response_is_incomplete_with_the_reason() {
    for (finish, reason) in [
        ("length", "max_output_tokens"),
        ("content_filter", "content_filter"),
    ] {
        let shown =
            whole(&json!({"choices": [{"message": {"content": "Hi"}, "finish_reason": finish}]}));
        assert_eq!(shown["status"], "incomplete");
        assert_eq!(shown["incomplete_details"]["reason"], reason);
        assert_eq!(shown["output"][0]["status"], "incomplete");
    }
}
