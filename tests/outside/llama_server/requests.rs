//! Requests with features of llama-server beyond plain responses, through the pool: refusals, tools, structured outputs,
//! probabilities, several choices, token ids, and ranks.

use serde_json::{Value, json};
use support::service::Pool;

use super::{ONLY_MODEL, llama_server, only_model};
use crate::vllm::rig::*;

const TEXT: &str = "/v1/completions";

/// A template with tools and calls in Hermes format. It is short because each letter is a token of the model.
const TEMPLATE: &str = "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}{% for message in messages %}{{ '<' + message.role + '>' }}{{ message.content or '' }}{% for call in message.tool_calls or [] %}{{ '<tool_call>{\"name\": \"' + call.function.name + '\", \"arguments\": ' }}{{ call.function.arguments | tojson }}{{ '}</tool_call>' }}{% endfor %}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

fn ready_pool(kwargs: &str) -> Option<(Pool, tempfile::TempDir)> {
    let program = llama_server()?;
    let folder = tempfile::tempdir().expect("a folder");
    let weights = folder.path().join("tiny.gguf");
    let model = support::tiny_gguf::with_template(6, Some(TEMPLATE));
    std::fs::write(&weights, model).expect("written");
    let pool = Pool::with_devices(&only_model(&program, &weights, kwargs), ONLY_MODEL);
    load(&pool, "real");
    Some((pool, folder))
}

fn chat(more: Value) -> Value {
    let mut body = json!({
        "model": "real", "max_tokens": 4, "temperature": 0,
        "messages": [{"role": "user", "content": "What?"}],
    });
    for (key, value) in more.as_object().expect("fields") {
        body[key] = value.clone();
    }
    body
}

fn content(response: &Value) -> &str {
    let content = response["choices"][0]["message"]["content"].as_str();
    content.unwrap_or_else(|| panic!("{response}"))
}

#[test]
fn further_llama_server_features_are_available_through_the_pool() {
    let Some((pool, _folder)) = ready_pool("") else {
        return;
    };
    let mut parts = Parts::default();
    parts.run("refusals", || refusals(&pool));
    parts.run("tools", || tools(&pool));
    parts.run("structured outputs", || structured(&pool));
    parts.run("probabilities", || probabilities(&pool));
    parts.run("several answers", || several(&pool));
    parts.run("token ids", || token_ids(&pool));
}

/// Client errors return 400, also in a stream.
fn refusals(pool: &Pool) {
    let schema = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nonsense"}}});
    for (fields, words) in [
        (json!({"response_format": schema}), "nonsense"),
        (json!({"grammar": "root ::= ("}), "failed to parse grammar"),
    ] {
        for stream in [false, true] {
            let mut body = chat(fields.clone());
            body["stream"] = json!(stream);
            let (status, text) = pool.post(CHAT, &body.to_string());
            assert_eq!(status, 400, "{words}, {stream}: {text}");
            let response: Value = serde_json::from_str(&text).expect("JSON");
            let message = response["error"]["message"].as_str().unwrap_or_default();
            assert!(message.contains(words), "{stream}: {text}");
        }
    }
}

/// The random model never calls tools on its own. The prompt's tokens show that the template contains the tools, and later a call
/// and its result.
fn tools(pool: &Pool) {
    let tools = json!([{"type": "function", "function": {
        "name": "weather", "description": "d",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }}]);
    let call = json!({"id": "a", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Ulm\"}"}});
    let messages = json!([
        {"role": "user", "content": "What?"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "rain"},
    ]);
    let tokens = |fields: Value| {
        let response = ask(pool, CHAT, &chat(fields));
        assert!(response["choices"][0]["message"].is_object(), "{response}");
        let tokens = response["usage"]["prompt_tokens"].as_u64();
        tokens.unwrap_or_else(|| panic!("{response}"))
    };
    let without = tokens(json!({}));
    let with = tokens(json!({"tools": tools}));
    let after = tokens(json!({"tools": tools, "messages": messages}));
    assert!(with > without + 100, "{without}, {with}");
    assert!(after > with + 50, "{with}, {after}");
    let body = chat(json!({"tools": tools, "stream": true}));
    let (status, text) = pool.post(CHAT, &body.to_string());
    assert_eq!(status, 200, "{text}");
    assert!(text.trim_end().ends_with("data: [DONE]"), "{text}");
}

/// The model does not produce JSON on its own.
fn structured(pool: &Pool) {
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["hot"],
        "properties": {"hot": {"enum": ["yes", "no"]}},
    });
    let format = json!({"type": "json_schema", "json_schema": {"name": "a", "schema": schema}});
    let fields = json!({"response_format": format, "max_tokens": 200});
    let response = ask(pool, CHAT, &chat(fields));
    // White space is permitted between the parts.
    let dense: String = content(&response).split_whitespace().collect();
    assert!(
        ["{\"hot\":\"yes\"}", "{\"hot\":\"no\"}"].contains(&dense.as_str()),
        "{response}"
    );
    let fields = json!({"grammar": "root ::= \"warm\" | \"cold\"", "max_tokens": 20});
    let response = ask(pool, CHAT, &chat(fields));
    assert!(["warm", "cold"].contains(&content(&response)), "{response}");
}

fn probabilities(pool: &Pool) {
    let response = ask(
        pool,
        CHAT,
        &chat(json!({"logprobs": true, "top_logprobs": 3, "ignore_eos": true})),
    );
    let tokens = response["choices"][0]["logprobs"]["content"].as_array();
    let tokens = tokens.unwrap_or_else(|| panic!("{response}"));
    // It omits tokens that end within a character.
    assert!((1..=4).contains(&tokens.len()), "{response}");
    let has_three = |token: &Value| {
        let best = token["top_logprobs"].as_array();
        best.is_some_and(|best| best.len() == 3)
    };
    assert!(tokens.iter().all(has_three), "{response}");
}

fn several(pool: &Pool) {
    let response = ask(pool, CHAT, &chat(json!({"n": 2, "ignore_eos": true})));
    let choices = response["choices"].as_array().map(Vec::len);
    assert_eq!(choices, Some(2), "{response}");
}

fn token_ids(pool: &Pool) {
    let prompt = "Once";
    let tokens = ask(
        pool,
        "/v1/tokenize",
        &json!({"model": "real", "prompt": prompt}),
    );
    let ids = tokens["tokens"]
        .as_array()
        .unwrap_or_else(|| panic!("{tokens}"));
    assert!(ids.len() >= prompt.len(), "{tokens}");
    let body = json!({"model": "real", "prompt": ids, "max_tokens": 3, "temperature": 0});
    let response = ask(pool, TEXT, &body);
    let used = response["usage"]["prompt_tokens"].as_u64();
    assert_eq!(used, Some(ids.len() as u64), "{response}");
}

/// The score is the tiny model's last hidden state: the order is arbitrary but reproducible.
#[test]
fn ranks_are_sorted_and_limited_to_top_n() {
    let Some((pool, _folder)) = ready_pool("reranking: true") else {
        return;
    };
    let documents = ["the pool", "a model", "of memory"];
    let ranks = |most: u64| {
        let body = json!({
            "model": "real", "query": "models", "documents": documents, "top_n": most,
        });
        let response = ask(&pool, "/v1/rerank", &body);
        let results = response["results"].as_array().cloned();
        let results = results.unwrap_or_else(|| panic!("{response}"));
        let rank = |result: &Value| {
            let score = result["relevance_score"].as_f64();
            result["index"].as_u64().zip(score)
        };
        let ranks: Option<Vec<(u64, f64)>> = results.iter().map(rank).collect();
        ranks.unwrap_or_else(|| panic!("{response}"))
    };
    let all = ranks(3);
    assert!(all.is_sorted_by(|a, b| a.1 >= b.1), "{all:?}");
    let mut indices: Vec<u64> = all.iter().map(|(index, _)| *index).collect();
    let best = indices[..2].to_vec();
    indices.sort_unstable();
    assert_eq!(indices, [0, 1, 2]);
    let two: Vec<u64> = ranks(2).iter().map(|(index, _)| *index).collect();
    assert_eq!(two, best);
}
