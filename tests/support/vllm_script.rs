//! Requests for a vLLM model under the pool, with their expected responses. The real vLLM and its double run the same script, which
//! detects differences between them. The model has a context of 512 tokens and a chat template that shows tools in Hermes format.

use serde_json::{Value, json};

use crate::service::Pool;

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";

fn ask(pool: &Pool, path: &str, body: &Value) -> (u16, Value, String) {
    let (status, text) = pool.post(path, &body.to_string());
    let response = serde_json::from_str(&text).unwrap_or_default();
    (status, response, text)
}

fn chat(model: &str, more: Value) -> Value {
    let mut body = json!({
        "model": model, "max_tokens": 5, "temperature": 0,
        "messages": [{"role": "user", "content": "What is keep-hot?"}],
    });
    for (key, value) in more.as_object().expect("fields") {
        body[key] = value.clone();
    }
    body
}

/// Runs all requests in turn.
pub fn run(pool: &Pool, model: &str) {
    responses(pool, model);
    streams(pool, model);
    refusals(pool, model);
    tools(pool, model);
    numbers(pool, model);
}

fn responses(pool: &Pool, model: &str) {
    let (status, response, text) = ask(pool, CHAT, &chat(model, json!({})));
    assert_eq!(status, 200, "{text}");
    assert_eq!(response["object"], "chat.completion", "{text}");
    assert_eq!(response["model"], model, "{text}");
    let choice = &response["choices"][0];
    assert!(choice["message"]["content"].is_string(), "{text}");
    assert_eq!(choice["message"]["role"], "assistant", "{text}");
    let usage = &response["usage"];
    let sum = usage["prompt_tokens"]
        .as_u64()
        .zip(usage["completion_tokens"].as_u64());
    let (prompt, completion) = sum.unwrap_or_else(|| panic!("{text}"));
    assert!(prompt > 0 && completion == 5, "{text}");
    assert_eq!(usage["total_tokens"], prompt + completion, "{text}");
    let body = json!({"model": model, "prompt": "Once", "max_tokens": 3, "temperature": 0});
    let (status, response, text) = ask(pool, TEXT, &body);
    assert_eq!(status, 200, "{text}");
    assert_eq!(response["object"], "text_completion", "{text}");
    assert_eq!(response["choices"][0]["finish_reason"], "length", "{text}");
}

fn streams(pool: &Pool, model: &str) {
    let body = chat(
        model,
        json!({"stream": true, "stream_options": {"include_usage": true}}),
    );
    let (status, text) = pool.post(CHAT, &body.to_string());
    assert_eq!(status, 200, "{text}");
    let events: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .collect();
    assert_eq!(events.last(), Some(&"[DONE]"), "{text}");
    let events: Vec<Value> = events
        .iter()
        .filter_map(|event| serde_json::from_str(event).ok())
        .collect();
    let first = &events.first().unwrap_or_else(|| panic!("{text}"))["choices"][0];
    assert_eq!(first["delta"]["role"], "assistant", "{text}");
    let finishes = |event: &&Value| event["choices"][0]["finish_reason"].is_string();
    assert_eq!(events.iter().filter(finishes).count(), 1, "{text}");
    let usage = &events.last().expect("at least one")["usage"];
    assert_eq!(usage["completion_tokens"], 5, "{text}");
}

/// Client errors return 400, even if a stream had begun.
fn refusals(pool: &Pool, model: &str) {
    let long = "word ".repeat(2000);
    let long = json!([{"role": "user", "content": long}]);
    for (path, body, words) in [
        (
            TEXT,
            json!({"model": model, "prompt": "", "max_tokens": 3}),
            "non-empty",
        ),
        (
            CHAT,
            chat(model, json!({"logprobs": true, "top_logprobs": 50})),
            "50",
        ),
        (
            CHAT,
            chat(model, json!({"messages": long})),
            "maximum context length is 512 tokens",
        ),
    ] {
        for stream in [false, true] {
            let mut body = body.clone();
            body["stream"] = json!(stream);
            let (status, response, text) = ask(pool, path, &body);
            assert_eq!(status, 400, "{body}: {text}");
            let message = response["error"]["message"].as_str().unwrap_or_default();
            assert!(message.contains(words), "{body}: {text}");
        }
    }
}

/// Only the template enables tools: calls that a request demands, and a call in a text, which only the parser for the template's
/// format finds.
fn tools(pool: &Pool, model: &str) {
    let weather = |is_strict: bool| {
        json!([{"type": "function", "function": {
            "name": "weather", "description": "d", "strict": is_strict,
            "parameters": {
                "type": "object", "additionalProperties": false, "required": ["city"],
                "properties": {"city": {"type": "string", "enum": ["Ulm"]}},
            },
        }}])
    };
    let (status, response, text) = ask(pool, CHAT, &chat(model, json!({"tools": weather(false)})));
    assert_eq!(status, 200, "{text}");
    assert!(response["choices"][0]["message"].is_object(), "{text}");
    // The demo model would write white space between the parts without end: these are its white space tokens.
    let dense = json!({"200": -100, "201": -100, "204": -100, "223": -100});
    let named = json!({"type": "function", "function": {"name": "weather"}});
    let written =
        "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Ulm\"}}</tool_call>";
    for fields in [
        json!({"tools": weather(true), "tool_choice": named, "logit_bias": dense}),
        json!({
            "tools": weather(true), "tool_choice": "required", "parallel_tool_calls": false,
            "logit_bias": dense,
        }),
        json!({"tools": weather(false), "structured_outputs": {"choice": [written]}}),
    ] {
        for stream in [false, true] {
            let mut body = chat(model, fields.clone());
            body["max_tokens"] = json!(150);
            body["stream"] = json!(stream);
            let (status, text) = pool.post(CHAT, &body.to_string());
            assert_eq!(status, 200, "{body}: {text}");
            let (name, arguments) = the_call(&text);
            assert_eq!(name, "weather", "{body}: {text}");
            let arguments: Value = serde_json::from_str(&arguments)
                .unwrap_or_else(|error| panic!("{error}: {body}: {text}"));
            assert_eq!(arguments, json!({"city": "Ulm"}), "{body}: {text}");
        }
    }
}

/// Concatenated names and arguments of the calls in a complete or streamed response.
fn the_call(text: &str) -> (String, String) {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let pieces = data.chain([text]);
    let pieces = pieces.filter_map(|piece| serde_json::from_str::<Value>(piece).ok());
    let (mut name, mut arguments) = (String::new(), String::new());
    for piece in pieces {
        let choice = &piece["choices"][0];
        for message in [&choice["message"], &choice["delta"]] {
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                name += call["function"]["name"].as_str().unwrap_or_default();
                arguments += call["function"]["arguments"].as_str().unwrap_or_default();
            }
        }
    }
    (name, arguments)
}

/// The engine's own metrics under the pool's names.
fn numbers(pool: &Pool, model: &str) {
    let has = |name: &str| {
        let (_, text, _) = pool.request("GET", "/metrics", "", Some(&pool.admin_key()));
        let label = format!("model=\"{model}\"");
        text.lines()
            .any(|line| line.starts_with(name) && line.contains(&label))
    };
    for name in [
        "model_pool_engine_requests{",
        "model_pool_engine_cache_used_ratio{",
    ] {
        crate::service::wait_for(name, || has(name));
    }
}
