//! Requests with features of vLLM beyond plain responses, through the pool: structured outputs, probabilities, several choices,
//! token ids in and out, the prefix cache.

use serde_json::{Value, json};
use support::service::Pool;

use super::rig::*;

const TEXT: &str = "/v1/completions";

/// Runs all requests in turn. The model is the demo's, with a context of 512 tokens.
pub fn run(pool: &Pool, model: &str, parts: &mut Parts) {
    parts.run("structured outputs", || structured(pool, model));
    parts.run("probabilities", || probabilities(pool, model));
    parts.run("several answers", || several(pool, model));
    parts.run("token ids", || token_ids(pool, model));
    parts.run("names", || names(pool, model, model));
    parts.run("prefix cache", || prefix_cache(pool, model));
}

fn chat(model: &str, more: Value) -> Value {
    with(
        json!({
            "model": model, "max_tokens": 40, "temperature": 0,
            "messages": [{"role": "user", "content": "What is keep-hot?"}],
        }),
        more,
    )
}

fn with(mut body: Value, more: Value) -> Value {
    for (key, value) in more.as_object().expect("fields") {
        body[key] = value.clone();
    }
    body
}

fn content(response: &Value) -> &str {
    response["choices"][0]["message"]["content"]
        .as_str()
        .unwrap_or_else(|| panic!("{response}"))
}

/// The model does not produce JSON on its own.
fn structured(pool: &Pool, model: &str) {
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["hot"],
        "properties": {"hot": {"enum": ["yes", "no"]}},
    });
    let format = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}});
    let response = ask(pool, CHAT, &chat(model, json!({"response_format": format})));
    // Any amount of white space is permitted between the parts.
    let dense: String = content(&response).split_whitespace().collect();
    let fits = |whole: &str| whole.starts_with(&dense) && !dense.is_empty();
    assert!(
        fits("{\"hot\":\"yes\"}") || fits("{\"hot\":\"no\"}"),
        "{response}"
    );
    for fields in [
        json!({"structured_outputs": {"choice": ["warm", "cold"]}}),
        json!({"structured_outputs": {"regex": "(warm|cold)"}}),
    ] {
        let response = ask(pool, CHAT, &chat(model, fields.clone()));
        assert!(
            ["warm", "cold"].contains(&content(&response)),
            "{fields}: {response}"
        );
    }
}

fn probabilities(pool: &Pool, model: &str) {
    let fields = json!({"logprobs": true, "top_logprobs": 3, "max_tokens": 4});
    let response = ask(pool, CHAT, &chat(model, fields));
    let tokens = response["choices"][0]["logprobs"]["content"].as_array();
    let tokens = tokens.unwrap_or_else(|| panic!("{response}"));
    assert_eq!(tokens.len(), 4, "{response}");
    assert!(tokens.iter().all(|token| {
        token["top_logprobs"]
            .as_array()
            .is_some_and(|best| best.len() == 3)
    }));
    let body = json!({"model": model, "prompt": "Once upon", "max_tokens": 2, "temperature": 0});
    let response = ask(pool, TEXT, &with(body.clone(), json!({"logprobs": 2})));
    let known = &response["choices"][0]["logprobs"]["token_logprobs"];
    assert_eq!(known.as_array().map(Vec::len), Some(2), "{response}");
    let response = ask(
        pool,
        TEXT,
        &with(body.clone(), json!({"prompt_logprobs": 1})),
    );
    let known = response["choices"][0]["prompt_logprobs"].as_array();
    // The first token has no probability.
    assert!(
        known.is_some_and(|known| known.len() > 1 && known[0].is_null()),
        "{response}"
    );
    let response = ask(pool, TEXT, &with(body, json!({"echo": true})));
    let text = response["choices"][0]["text"].as_str().unwrap_or_default();
    assert!(text.starts_with("Once upon"), "{response}");
}

fn several(pool: &Pool, model: &str) {
    let fields = json!({"n": 3, "temperature": 1, "seed": 7, "max_tokens": 6});
    let response = ask(pool, CHAT, &chat(model, fields.clone()));
    assert_eq!(
        response["choices"].as_array().map(Vec::len),
        Some(3),
        "{response}"
    );
    assert_eq!(response["usage"]["completion_tokens"], 18, "{response}");
    let body = chat(model, with(fields, json!({"stream": true})));
    let (status, text) = pool.post(CHAT, &body.to_string());
    assert_eq!(status, 200, "{text}");
    for index in 0..3 {
        assert!(text.contains(&format!("\"index\":{index}")), "{text}");
    }
    assert_eq!(
        text.matches("\"finish_reason\":\"length\"").count(),
        3,
        "{text}"
    );
    assert!(text.trim_end().ends_with("data: [DONE]"), "{text}");
}

fn token_ids(pool: &Pool, model: &str) {
    let prompt = "A model pool is";
    let body = json!({"model": model, "prompt": prompt});
    let tokens = ask(pool, "/v1/tokenize", &body);
    assert_eq!(tokens["max_model_len"], 512, "{tokens}");
    let ids = &tokens["tokens"];
    assert_eq!(
        tokens["count"].as_u64(),
        ids.as_array().map(|ids| ids.len() as u64)
    );
    let back = ask(
        pool,
        "/v1/detokenize",
        &json!({"model": model, "tokens": ids}),
    );
    let text = back["prompt"].as_str().unwrap_or_default();
    assert!(text.ends_with(prompt), "{back}");
    let completion = |prompt: &Value| {
        let body = json!({
            "model": model, "prompt": prompt, "max_tokens": 6, "temperature": 0,
            "return_token_ids": true,
        });
        ask(pool, TEXT, &body)
    };
    let by_text = completion(&json!(prompt));
    let by_ids = completion(ids);
    assert_eq!(by_text["choices"][0]["text"], by_ids["choices"][0]["text"]);
    let made = &by_ids["choices"][0]["token_ids"];
    assert_eq!(made.as_array().map(Vec::len), Some(6), "{by_ids}");
    assert_eq!(&by_ids["choices"][0]["prompt_token_ids"], ids, "{by_ids}");
}

/// The engine uses its `served_model_name`, also in responses; clients use only the model's name.
pub fn names(pool: &Pool, model: &str, served: &str) {
    let id = |name: &str| format!("\"id\":\"{name}\"");
    let own = of_the_engine(pool, "/v1/models");
    let (_, listed, _) = pool.request("GET", "/v1/models", "", None);
    assert!(own.contains(&id(served)), "{own}");
    assert!(listed.contains(&id(model)), "{listed}");
    assert_eq!(ask(pool, CHAT, &short(model))["model"], served);
    let (status, text) = pool.post(
        CHAT,
        &with(short(model), json!({"stream": true})).to_string(),
    );
    assert_eq!(status, 200, "{text}");
    assert!(text.contains(&format!("\"model\":\"{served}\"")), "{text}");
    let tokens = ask(
        pool,
        "/v1/tokenize",
        &json!({"model": model, "prompt": "Once"}),
    );
    assert!(tokens["count"].as_u64() > Some(0), "{tokens}");
    if served != model {
        assert!(!own.contains(&id(model)), "{own}");
        assert!(!listed.contains(&id(served)), "{listed}");
        let (status, text) = pool.post(CHAT, &short(served).to_string());
        assert_eq!(status, 404, "{text}");
        assert!(text.contains("model_not_found"), "{text}");
    }
}

fn prefix_cache(pool: &Pool, model: &str) {
    let before = number(pool, "vllm:prefix_cache_hits_total");
    let long = "Keep the models hot. ".repeat(20);
    let body = json!({"model": model, "prompt": long, "max_tokens": 1});
    ask(pool, TEXT, &body);
    ask(pool, TEXT, &body);
    let hits = number(pool, "vllm:prefix_cache_hits_total") - before;
    assert!(hits > 0.0, "the second prompt was not found in the cache");
}
