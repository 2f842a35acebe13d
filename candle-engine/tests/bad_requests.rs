//! Invalid requests: each gets a 4xx status with an OpenAI error object that names the field.

mod support;

use hyper::StatusCode;
use serde_json::{Value, json};
use support::Engine;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn assert_refused(
    name: &str,
    (status, body): &(StatusCode, Value),
    wanted: StatusCode,
    param: Option<&str>,
) {
    assert_eq!(*status, wanted, "{name}: {body}");
    let error = body["error"]
        .as_object()
        .unwrap_or_else(|| panic!("{name}: no error object in {body}"));
    assert!(
        ["message", "type", "param", "code"]
            .iter()
            .all(|key| error.contains_key(*key)),
        "{name}: {body}"
    );
    assert_eq!(error["param"].as_str(), param, "{name}: {body}");
    let message = error["message"].as_str().expect("a message");
    assert!(
        param.is_none_or(|param| message.contains(param)) && message.len() < 500,
        "{name}: {message}"
    );
}

#[tokio::test]
async fn a_wrong_field_of_a_chat_is_refused_by_its_name() {
    let engine = Engine::start(1).await;
    let cases = [
        ("temperature", json!(2.1)),
        ("temperature", json!(-0.1)),
        ("temperature", json!("warm")),
        ("top_p", json!(1.5)),
        ("top_k", json!(1.5)),
        ("max_tokens", json!(0)),
        ("max_tokens", json!(-5)),
        ("max_tokens", json!(1e300)),
        ("max_completion_tokens", json!("many")),
        ("n", json!(0)),
        ("n", json!(9)),
        ("seed", json!("dice")),
        ("stop", json!("")),
        ("stop", json!(["a", 1])),
        ("stop", json!(["1", "2", "3", "4", "5", "6", "7", "8", "9"])),
        ("stream", json!("yes")),
        ("stream_options", json!({"include_usage": true})),
        ("presence_penalty", json!(3)),
        ("frequency_penalty", json!(-3)),
        ("repetition_penalty", json!(0)),
        ("logit_bias", json!({"dog": 1})),
        ("logit_bias", json!({"1": 1000})),
        ("logprobs", json!(3)),
        ("top_logprobs", json!(2)),
        ("top_logprobs", json!(21)),
        ("top_logprobs", json!(-1)),
        ("min_p", json!(1.1)),
        ("typical_p", json!(-1)),
        ("logit_bias", json!({"640": 1})),
        ("stop_token_ids", json!([640])),
        ("stop_token_ids", json!([-1])),
        ("decoding_strategy", json!("magic")),
        ("num_beams", json!(4)),
        ("tools[0]", json!([{"type": "function"}])),
        ("guided_regex", json!("(")),
        ("guided_json", json!({"enum": []})),
        ("best_of", json!(2)),
        ("echo", json!(true)),
        ("tool_choice", json!("required")),
        ("response_format", json!("json")),
        ("user", json!(5)),
        ("model", json!(5)),
        ("temprature", json!(1)),
        ("messages", json!([])),
        ("messages", json!("hello")),
        ("messages", json!(null)),
        ("messages[0]", json!(["hello"])),
        ("messages[0].role", json!([{"content": "hello"}])),
        (
            "messages[0].role",
            json!([{"role": "wizard", "content": "hello"}]),
        ),
        ("messages[0].content", json!([{"role": "user"}])),
        (
            "messages[0].content",
            json!([{"role": "user", "content": 5}]),
        ),
        (
            "messages[0].content[0]",
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
        ),
        (
            "messages[0].tool_call_id",
            json!([{"role": "tool", "content": "4"}]),
        ),
        (
            "messages[0].tool_calls",
            json!([{"role": "user", "content": "a", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]),
        ),
    ];
    for (param, value) in cases {
        let mut body = json!({"messages": [{"role": "user", "content": "hello"}]});
        body[param.split('[').next().expect("a name")] = value;
        let response = engine.post(CHAT, &body).await;
        assert_refused(
            &body.to_string(),
            &response,
            StatusCode::BAD_REQUEST,
            Some(param),
        );
    }
}

#[tokio::test]
async fn a_wrong_field_of_a_completion_is_refused_by_its_name() {
    let engine = Engine::start(1).await;
    for (param, value) in [
        ("prompt", json!(null)),
        ("prompt", json!("")),
        ("prompt", json!([])),
        ("prompt", json!([1, -2, 3])),
        ("prompt", json!([1, "a"])),
        ("prompt", json!([[1], "a"])),
        ("prompt", json!([1, 640])),
        ("prompt", json!([[1], []])),
        ("prompt", json!(5)),
        ("logprobs", json!(21)),
        ("logprobs", json!(true)),
        ("max_tokens", json!(0)),
        ("echo", json!(1)),
        ("suffix", json!("end")),
        ("best_of", json!(0)),
        ("best_of", json!(21)),
        ("messages", json!([])),
    ] {
        let mut body = json!({"prompt": "hello"});
        body[param] = value;
        let mut response = engine.post(COMPLETIONS, &body).await;
        if param == "prompt" {
            // An empty list is detected after parsing, but the field is the same.
            response.1["error"]["message"] =
                json!(format!("prompt: {}", response.1["error"]["message"]));
        }
        assert_refused(
            &body.to_string(),
            &response,
            StatusCode::BAD_REQUEST,
            Some(param),
        );
    }
}

#[tokio::test]
async fn fields_without_effect_are_accepted() {
    let engine = Engine::start(1).await;
    let body = json!({
        "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1, "user": "somebody", "logprobs": false, "tools": [], "tool_choice": "none",
        "response_format": {"type": "text"}, "seed": null, "stop": null, "top_k": -1, "n": 1, "stream": false, "logit_bias": {},
    });
    let (status, response) = engine.post(CHAT, &body).await;
    assert_eq!(status, StatusCode::OK, "{response}");
}

#[tokio::test]
async fn bodies_that_are_not_requests_are_refused() {
    let engine = Engine::start(1).await;
    for body in [
        "",
        "{",
        "[]",
        "null",
        "\"text\"",
        "{\"messages\": [}",
        "\u{0}",
    ] {
        assert_refused(
            body,
            &engine.post_bytes(CHAT, body).await,
            StatusCode::BAD_REQUEST,
            None,
        );
    }
    let deep = "[".repeat(100_000);
    assert_refused(
        "deep",
        &engine.post_bytes(CHAT, deep).await,
        StatusCode::BAD_REQUEST,
        None,
    );
    let not_utf8 = b"{\"messages\": \"\xff\xfe\"}".to_vec();
    assert_refused(
        "not UTF-8",
        &engine.post_bytes(CHAT, not_utf8).await,
        StatusCode::BAD_REQUEST,
        None,
    );
    let huge = vec![b' '; 17 * 1024 * 1024];
    assert_refused(
        "huge",
        &engine.post_bytes(CHAT, huge).await,
        StatusCode::PAYLOAD_TOO_LARGE,
        None,
    );
}

#[tokio::test]
async fn unknown_models_routes_and_methods_are_refused() {
    let engine = Engine::start(1).await;
    let other = engine
        .post(
            CHAT,
            &json!({"model": "another", "messages": [{"role": "user", "content": "hello"}]}),
        )
        .await;
    assert_refused("model", &other, StatusCode::NOT_FOUND, Some("model"));
    assert_refused(
        "route",
        &engine.get("/v2/models").await,
        StatusCode::NOT_FOUND,
        None,
    );
    assert_refused(
        "embeddings of a model that generates",
        &engine.post("/v1/embeddings", &json!({})).await,
        StatusCode::BAD_REQUEST,
        Some("model"),
    );
    assert_refused(
        "method",
        &engine.get(CHAT).await,
        StatusCode::METHOD_NOT_ALLOWED,
        None,
    );
}
