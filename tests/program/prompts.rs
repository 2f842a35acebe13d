//! Prompt formats, defaults and stop sequences of model files with the real program and the embedded engine.

use serde_json::{Value, json};
use support::service::Pool;

const FORMAT: &str = r#"{system: "S:{instruction}\n", user: "Q: {instruction}\n", assistant: "A: {instruction}\n", trailing_assistant: "A:", default_system_message: "Be brief."}"#;

/// The repository's small model with this `generation`.
fn model(name: &str, generation: &str) -> (String, String) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/models/tiny-chat");
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CandleEngine\n  model_path: {folder:?}\n  max_total_tokens: 256\n  generation: {generation}\n"
    );
    (format!("{name}.yaml"), text)
}

fn ask(pool: &Pool, path: &str, body: &Value) -> (u16, Value) {
    let (status, text) = pool.post(path, &body.to_string());
    (
        status,
        serde_json::from_str(&text).unwrap_or(Value::String(text)),
    )
}

fn chat(pool: &Pool, model: &str, more: Value) -> (u16, Value) {
    let mut body = json!({"model": model, "temperature": 0, "messages": [{"role": "user", "content": " Where do I store notes? "}]});
    for (key, value) in more.as_object().expect("keys") {
        body[key] = value.clone();
    }
    ask(pool, "/v1/chat/completions", &body)
}

#[test]
fn a_chat_is_sent_as_the_text_rendered_by_the_prompt_format() {
    let pool = Pool::with_models(
        &[model("formatted", &format!("{{prompt_format: {FORMAT}}}"))],
        "",
    );
    let (status, response) = chat(&pool, "formatted", json!({"max_tokens": 12}));
    assert_eq!(status, 200, "{response}");
    assert_eq!(response["object"], "chat.completion");
    let message = &response["choices"][0]["message"];
    assert_eq!(message["role"], "assistant");
    let prompt = "S:Be brief.\nQ: Where do I store notes?\nA:";
    let (status, text) = ask(
        &pool,
        "/v1/completions",
        &json!({"model": "formatted", "prompt": prompt, "temperature": 0, "max_tokens": 12}),
    );
    assert_eq!(status, 200, "{text}");
    assert_eq!(message["content"], text["choices"][0]["text"]);
    assert_eq!(
        response["usage"], text["usage"],
        "the same tokens were computed"
    );
    assert_eq!(
        text["object"], "text_completion",
        "who asks for a text gets one"
    );
}

#[test]
fn a_formatted_chat_streams_chat_chunks() {
    let pool = Pool::with_models(
        &[model("formatted", &format!("{{prompt_format: {FORMAT}}}"))],
        "",
    );
    let (_, whole) = chat(&pool, "formatted", json!({"max_tokens": 8}));
    let body = json!({
        "model": "formatted", "temperature": 0, "stream": true, "max_tokens": 8, "stream_options": {"include_usage": true},
        "messages": [{"role": "user", "content": "Where do I store notes?"}],
    });
    let (status, text) = pool.post("/v1/chat/completions", &body.to_string());
    assert_eq!(status, 200, "{text}");
    let chunks: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data: ")?).ok())
        .collect();
    assert!(
        chunks
            .iter()
            .all(|chunk| chunk["object"] == "chat.completion.chunk"),
        "{text}"
    );
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let content: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(
        content,
        whole["choices"][0]["message"]["content"].as_str().unwrap()
    );
    assert!(chunks.iter().any(|chunk| chunk["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]));
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
}

#[test]
fn a_formatted_chat_without_a_limit_is_not_truncated_after_sixteen_tokens() {
    let generation = format!("{{prompt_format: {FORMAT}, generate_kwargs: {{ignore_eos: true}}}}");
    let pool = Pool::with_models(&[model("formatted", &generation)], "");
    let (status, response) = chat(&pool, "formatted", json!({}));
    assert_eq!(status, 200, "{response}");
    assert!(
        response["usage"]["completion_tokens"].as_u64() > Some(100),
        "{response}"
    );
    assert_eq!(
        response["usage"]["total_tokens"], 256,
        "the complete context"
    );
}

#[test]
fn a_request_a_model_cannot_serve_is_refused_and_loads_nothing() {
    let files = [
        model("completes", "{prompt_format: null}"),
        model("formatted", &format!("{{prompt_format: {FORMAT}}}")),
    ];
    let pool = Pool::with_models(&files, "");
    let (status, response) = chat(&pool, "completes", json!({}));
    assert_eq!(status, 400, "{response}");
    assert!(
        response["error"]["message"]
            .as_str()
            .unwrap()
            .contains("/v1/completions")
    );
    let tool = json!({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]});
    let (status, response) = chat(&pool, "formatted", tool);
    assert_eq!(
        (status, &response["error"]["param"]),
        (400, &json!("messages[0].role"))
    );
    let two = json!({"messages": [{"role": "system", "content": "a"}, {"role": "system", "content": "b"}]});
    let (status, response) = chat(&pool, "formatted", two);
    assert_eq!(status, 400, "{response}");
    let (status, response) = chat(
        &pool,
        "formatted",
        json!({"tools": [{"type": "function"}], "tool_choice": "required"}),
    );
    assert_eq!(
        (status, &response["error"]["param"]),
        (400, &json!("tools"))
    );
    let (_, hot, _) = pool.request("GET", "/llm/hot-models", "", None);
    assert!(pool.engine_pids().is_empty(), "nothing was loaded: {hot}");
    let (status, _) = ask(
        &pool,
        "/v1/completions",
        &json!({"model": "completes", "prompt": "x"}),
    );
    assert_eq!(status, 200);
}

#[test]
fn values_of_the_model_file_apply_unless_the_request_overrides_them() {
    let generation = "{generate_kwargs: {do_sample: false, max_new_tokens: 5, ignore_eos: true}, stopping_sequences: []}";
    let pool = Pool::with_models(&[model("modest", generation)], "");
    let tokens = |more: Value| chat(&pool, "modest", more).1["usage"]["completion_tokens"].clone();
    assert_eq!(tokens(json!({})), 5);
    assert_eq!(tokens(json!({"max_tokens": null})), 5);
    assert_eq!(tokens(json!({"max_completion_tokens": 3})), 3);
    // The likeliest tokens, although the request set no temperature.
    let text = |_: u8| {
        let body = json!({"model": "modest", "messages": [{"role": "user", "content": "Hello"}]});
        ask(&pool, "/v1/chat/completions", &body).1["choices"][0]["message"]["content"].clone()
    };
    assert_eq!(text(1), text(2));
}

#[test]
fn stops_from_the_file_end_responses_and_one_users_stops_never_affect_another() {
    let pool = Pool::with_models(&[model("plain", "{}")], "");
    let content = |response: &Value| {
        response["choices"][0]["message"]["content"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    let (_, whole) = chat(&pool, "plain", json!({"max_tokens": 12}));
    let whole = content(&whole);
    let stop = whole.split_whitespace().nth(2).unwrap().to_owned();
    let cut = whole.split(stop.as_str()).next().unwrap().to_owned();
    let file = model("stopping", &format!("{{stopping_sequences: [{stop:?}]}}"));
    let pool = Pool::with_models(&[file, model("plain", "{}")], "");
    let (_, first) = chat(&pool, "stopping", json!({"max_tokens": 12}));
    assert_eq!(content(&first), cut);
    assert_eq!(first["choices"][0]["finish_reason"], "stop");
    let own: String = whole.chars().take(1).collect();
    let (_, second) = chat(&pool, "stopping", json!({"max_tokens": 12, "stop": own}));
    assert_eq!(content(&second), "");
    let (_, third) = chat(&pool, "stopping", json!({"max_tokens": 12}));
    assert_eq!(content(&third), cut);
    let many: Vec<String> = (0..8).map(|nth| format!("§{nth}")).collect();
    let (status, response) = chat(&pool, "stopping", json!({"stop": many}));
    assert_eq!(status, 400, "{response}");
    assert!(
        response["error"]["message"]
            .as_str()
            .unwrap()
            .contains("9 stops")
    );
}

#[test]
fn duplicate_and_empty_settings_of_a_request_are_applied_once() {
    let generation = format!("{{prompt_format: {FORMAT}, generate_kwargs: {{ignore_eos: true}}}}");
    let pool = Pool::with_models(&[model("formatted", &generation)], "");
    let tokens = |more: Value| {
        let (status, response) = chat(&pool, "formatted", more);
        assert_eq!(status, 200, "{response}");
        response["usage"]["completion_tokens"].clone()
    };
    assert_eq!(
        tokens(json!({"max_completion_tokens": 5, "max_tokens": null})),
        5
    );
    assert_eq!(
        tokens(json!({"max_completion_tokens": 5, "max_tokens": 9})),
        5
    );
    let (_, plain) = chat(&pool, "formatted", json!({"max_tokens": 6}));
    for (name, value) in [
        ("prompt", json!("something else")),
        ("suffix", json!("an end")),
        ("echo", json!(true)),
        ("tool_choice", json!("required")),
    ] {
        let (status, response) = chat(&pool, "formatted", json!({"max_tokens": 6, name: value}));
        assert_eq!(
            (status, &response["error"]["param"]),
            (400, &json!(name)),
            "{response}"
        );
    }
    let idle = json!({"max_tokens": 6, "prompt": null, "echo": false, "tool_choice": "auto"});
    let (_, same) = chat(&pool, "formatted", idle);
    assert_eq!(
        plain["choices"], same["choices"],
        "the pool writes the prompt"
    );
    let (_, empty) = chat(
        &pool,
        "formatted",
        json!({"max_tokens": 6, "stop": [plain["choices"][0]["message"]["content"].as_str().unwrap().chars().next().unwrap().to_string()]}),
    );
    assert_eq!(
        empty["choices"][0]["message"]["content"], "",
        "and not null"
    );
    let (status, response) = chat(&pool, "formatted", json!({"stop": ""}));
    assert_eq!((status, &response["error"]["param"]), (400, &json!("stop")));
}

#[test]
fn a_prompt_that_cannot_fit_is_refused_before_it_is_parsed() {
    let pool = Pool::with_models(&[model("plain", "{}")], "");
    let long = "word ".repeat(600_000);
    let body = json!({"model": "plain", "messages": [{"role": "user", "content": long}]});
    let (status, response) = ask(&pool, "/v1/chat/completions", &body);
    assert_eq!(
        (status, &response["error"]["code"]),
        (400, &json!("context_length_exceeded"))
    );
    let pid = pool.engine_pids()[0];
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: u64 = peak
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    // Allows for the program and a few copies of the text. Parsed, it was 70 times its size.
    assert!(kib < 120 << 10, "{kib} KiB");
}
