//! Other APIs for chats, with the real program: Anthropic's Messages and OpenAI's Responses, plain and streamed, with tools, and
//! errors in each client's form.
//! One file because both dialects are tested with the same conversation.

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";

fn model(name: &str, flags: &[&str], more: &str) -> (String, String) {
    support::stub::model(name, flags, &format!("memory_gib: 1{more}"))
}

fn pool() -> Pool {
    Pool::with_models(&[model("writer", &[], "")], "")
}

fn ask(pool: &Pool, path: &str, body: &Value) -> (u16, Value) {
    let (status, text) = pool.post(path, &body.to_string());
    let response = serde_json::from_str(&text);
    (status, response.unwrap_or(Value::String(text)))
}

/// The data of a stream's events, which must contain their type.
fn events(text: &str) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    for event in text.split("\n\n").filter(|event| event.contains("data: ")) {
        let (name, data) = event.split_once("\ndata: ").unwrap();
        let name = name.lines().last().unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        events.push(data);
    }
    events
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| event["type"].as_str())
        .collect()
}

fn message(more: Value) -> Value {
    with(
        json!({"model": "writer", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]}),
        more,
    )
}

fn response(more: Value) -> Value {
    with(json!({"model": "writer", "input": "Hello"}), more)
}

fn with(mut body: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        body[name.as_str()] = value.clone();
    }
    body
}

#[test]
fn a_complete_and_a_streamed_message_have_the_same_text() {
    let pool = pool();
    let (status, whole) = ask(&pool, MESSAGES, &message(json!({"system": "Be kind."})));
    assert_eq!(status, 200, "{whole}");
    let text =
        json!([{"type": "text", "text": "Hello from writer and goodbye", "citations": null}]);
    assert_eq!(
        (&whole["type"], &whole["content"]),
        (&json!("message"), &text)
    );
    assert_eq!(
        (&whole["model"], &whole["stop_reason"]),
        (&json!("writer"), &json!("end_turn"))
    );
    assert_eq!(
        (
            &whole["usage"]["input_tokens"],
            &whole["usage"]["output_tokens"]
        ),
        (&json!(3), &json!(5))
    );
    let (status, stream) = pool.post(
        "/llm/v1/messages",
        &message(json!({"stream": true, "max_tokens": 2})).to_string(),
    );
    assert_eq!(status, 200, "{stream}");
    let events = events(&stream);
    let expected = [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(kinds(&events), expected);
    let said: String = events
        .iter()
        .filter_map(|event| event["delta"]["text"].as_str())
        .collect();
    assert_eq!(said, "Hello from");
    assert_eq!(events[6]["delta"]["stop_reason"], "max_tokens");
    assert_eq!(events[6]["usage"]["output_tokens"], 2);
    assert!(!stream.contains("[DONE]"));
}

#[test]
fn a_message_calls_a_tool_and_continues_with_its_result() {
    let pool = pool();
    let tools = json!([{"name": "weather", "input_schema": {"type": "object"}}]);
    let (status, whole) = ask(&pool, MESSAGES, &message(json!({"tools": tools})));
    assert_eq!(status, 200, "{whole}");
    let call = json!({
        "type": "tool_use", "id": "call_stub", "name": "weather", "input": {"city": "Ulm"},
        "caller": {"type": "direct"},
    });
    assert_eq!(
        (&whole["content"], &whole["stop_reason"]),
        (&json!([call]), &json!("tool_use"))
    );
    let (_, stream) = pool.post(
        MESSAGES,
        &message(json!({"tools": tools, "stream": true})).to_string(),
    );
    let events = events(&stream);
    let input: String = events
        .iter()
        .filter_map(|event| event["delta"]["partial_json"].as_str())
        .collect();
    assert_eq!(input, "{\"city\": \"Ulm\"}");
    let messages = json!([
        {"role": "user", "content": "Weather?"}, {"role": "assistant", "content": whole["content"]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_stub", "content": "rain"}]},
    ]);
    let (status, told) = ask(
        &pool,
        MESSAGES,
        &message(json!({"tools": tools, "messages": messages})),
    );
    assert_eq!(
        (status, &told["stop_reason"]),
        (200, &json!("end_turn")),
        "{told}"
    );
}

#[test]
fn a_complete_and_a_streamed_response_have_the_same_text() {
    let pool = pool();
    let (status, whole) = ask(
        &pool,
        RESPONSES,
        &response(json!({"instructions": "Be kind.", "metadata": {"a": "b"}})),
    );
    assert_eq!(status, 200, "{whole}");
    assert_eq!(
        (&whole["object"], &whole["status"]),
        (&json!("response"), &json!("completed"))
    );
    let text = &whole["output"][0]["content"][0]["text"];
    assert_eq!(
        (text, &whole["usage"]["total_tokens"]),
        (&json!("Hello from writer and goodbye"), &json!(8))
    );
    assert_eq!(
        (&whole["metadata"]["a"], &whole["instructions"]),
        (&json!("b"), &json!("Be kind."))
    );
    let (status, stream) = pool.post(
        RESPONSES,
        &response(json!({"stream": true, "max_output_tokens": 2})).to_string(),
    );
    assert_eq!(status, 200, "{stream}");
    let events = events(&stream);
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ];
    assert_eq!(kinds(&events), expected);
    assert!(
        events
            .iter()
            .zip(0..)
            .all(|(event, nth)| event["sequence_number"] == nth)
    );
    let last = &events[9]["response"];
    assert_eq!(last["output"][0]["content"][0]["text"], "Hello from");
    assert_eq!(last["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(last["id"], events[0]["response"]["id"]);
}

#[test]
fn a_response_calls_a_function_and_continues_with_its_output() {
    let pool = pool();
    let tools = json!([{"type": "function", "name": "weather", "parameters": {"type": "object"}}]);
    let (status, whole) = ask(&pool, RESPONSES, &response(json!({"tools": tools})));
    assert_eq!(status, 200, "{whole}");
    let call = &whole["output"][0];
    assert_eq!(
        (&call["type"], &call["name"]),
        (&json!("function_call"), &json!("weather"))
    );
    assert_eq!(call["arguments"], "{\"city\": \"Ulm\"}");
    let (_, stream) = pool.post(
        RESPONSES,
        &response(json!({"tools": tools, "stream": true})).to_string(),
    );
    let events = events(&stream);
    let done = events
        .iter()
        .find(|event| event["type"] == "response.function_call_arguments.done");
    assert_eq!(done.unwrap()["arguments"], "{\"city\": \"Ulm\"}");
    assert_eq!(events.last().unwrap()["type"], "response.completed");
    let input = json!([
        {"role": "user", "content": "Weather?"}, call,
        {"type": "function_call_output", "call_id": call["call_id"], "output": "rain"},
    ]);
    let (status, told) = ask(
        &pool,
        RESPONSES,
        &response(json!({"tools": tools, "input": input})),
    );
    assert_eq!(
        (status, &told["output"][0]["type"]),
        (200, &json!("message")),
        "{told}"
    );
}

#[test]
fn each_refusal_has_the_error_format_of_its_route() {
    let pool = Pool::with_models(&[model("writer", &[], "")], "auth: {inference: key}\n");
    let key = pool.admin_key();
    let cases = [
        (
            message(json!({"temperature": "hot"})),
            400,
            "invalid_request_error",
            "temperature",
        ),
        (
            message(json!({"model": "writr"})),
            404,
            "not_found_error",
            "writer",
        ),
        (
            message(json!({"max_tokens": null})),
            400,
            "invalid_request_error",
            "max_tokens",
        ),
    ];
    for (body, status, kind, words) in cases {
        let (got, text, head) = pool.request("POST", MESSAGES, &body.to_string(), Some(&key));
        let told: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (got, &told["type"], &told["error"]["type"]),
            (status, &json!("error"), &json!(kind)),
            "{text}"
        );
        assert!(
            told["error"]["message"].as_str().unwrap().contains(words),
            "{text}"
        );
        let id = told["request_id"].as_str().unwrap();
        assert!(head.contains(&format!("request-id: {id}")), "{head}");
    }
    for (path, body, key, status, kind) in [
        (
            MESSAGES,
            message(json!({})),
            None,
            401,
            "authentication_error",
        ),
        (
            "/v1/messages/batches",
            json!({}),
            Some(key.as_str()),
            400,
            "invalid_request_error",
        ),
    ] {
        let (got, text, _) = pool.request("POST", path, &body.to_string(), key);
        let told: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (got, &told["error"]["type"]),
            (status, &json!(kind)),
            "{text}"
        );
    }
    for (more, param) in [
        (json!({"store": "yes"}), "store"),
        (json!({"background": "yes"}), "background"),
        (json!({"max_output_tokens": "many"}), "max_output_tokens"),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://127.0.0.1/"}]}]}),
            "input[0].content[0].image_url",
        ),
    ] {
        let (status, text, _) =
            pool.request("POST", RESPONSES, &response(more).to_string(), Some(&key));
        let told: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (status, &told["error"]["param"]),
            (400, &json!(param)),
            "{text}"
        );
    }
    for method in ["GET", "DELETE"] {
        let (status, text, _) = pool.request(method, "/v1/responses/resp_1", "", Some(&key));
        assert!(
            status == 404 && text.contains("no response resp_1"),
            "{status} {text}"
        );
    }
    assert!(
        pool.engine_pids().is_empty(),
        "nothing was loaded for what was refused"
    );
}

#[test]
fn an_engine_crash_ends_each_stream_in_the_form_of_its_api() {
    let flags = ["--tokens", "50", "--crash-mid-stream", "3"];
    let pool = Pool::with_models(&[model("one", &flags, ""), model("two", &flags, "")], "");
    let (_, stream) = pool.post(
        MESSAGES,
        &message(json!({"model": "one", "stream": true})).to_string(),
    );
    let last = events(&stream).pop().unwrap();
    assert_eq!(
        (&last["type"], &last["error"]["type"]),
        (&json!("error"), &json!("api_error")),
        "{stream}"
    );
    let (_, stream) = pool.post(
        RESPONSES,
        &response(json!({"model": "two", "stream": true})).to_string(),
    );
    let last = events(&stream).pop().unwrap();
    assert_eq!(last["type"], "response.failed", "{stream}");
    assert_eq!(last["response"]["error"]["code"], "server_error");
    assert!(
        last["response"]["output"][0]["content"][0]["text"]
            .as_str()
            .unwrap()
            .starts_with("Hello")
    );
}

#[test]
fn a_full_queue_is_reported_in_each_apis_form_and_waiting_appears_as_comments() {
    let slow = ["--tokens", "100000", "--token-ms", "20"];
    let more = ", queue_limit: 1";
    let (file, text) = model("writer", &slow, more);
    let text = text.replace(
        "pool_config",
        "deployment_config: {max_ongoing_requests: 1}\npool_config",
    );
    let pool = Pool::with_models(&[(file, text)], "");
    let body = message(json!({"stream": true, "max_tokens": 100000})).to_string();
    let first = pool.stream(MESSAGES, &body);
    wait_for("the first to be answered", || {
        first.text().contains("content_block_delta")
    });
    let second = pool.stream(MESSAGES, &body);
    wait_for("the second to wait", || {
        second.text().contains(": waiting position=1")
    });
    let (status, told) = ask(&pool, MESSAGES, &message(json!({})));
    assert_eq!(
        (status, &told["error"]["type"]),
        (429, &json!("rate_limit_error")),
        "{told}"
    );
    let (status, told) = ask(&pool, RESPONSES, &response(json!({})));
    assert_eq!(
        (status, &told["error"]["code"]),
        (429, &json!("queue_full")),
        "{told}"
    );
}
