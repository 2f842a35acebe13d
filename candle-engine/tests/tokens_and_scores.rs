//! Token logprobs, prompts of tokens, echo, best_of, and the routes between text and tokens, on a real engine.

mod support;

use hyper::StatusCode;
use serde_json::{Value, json};
use support::{CONTEXT_TOKENS, Engine, MODEL};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn ask(more: &Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "Where is Swagger UI?"}], "temperature": 0});
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

async fn ok(engine: &Engine, path: &str, body: &Value) -> Value {
    let (status, response) = engine.post(path, body).await;
    assert_eq!(status, StatusCode::OK, "{body}: {response}");
    response
}

fn numbers(value: &Value) -> Vec<f64> {
    let list = value.as_array().expect("a list");
    list.iter().filter_map(Value::as_f64).collect()
}

#[tokio::test]
async fn a_chat_returns_logprobs_in_both_complete_and_streamed_responses() {
    let engine = Engine::start(1).await;
    let mut body = ask(&json!({"logprobs": true, "top_logprobs": 3, "stop": " and the"}));
    let response = ok(&engine, CHAT, &body).await;
    let choice = &response["choices"][0];
    let content = choice["logprobs"]["content"].as_array().expect("tokens");
    let text: Vec<u8> = content
        .iter()
        .flat_map(|token| token["bytes"].as_array().expect("bytes"))
        .map(|byte| byte.as_u64().expect("a byte") as u8)
        .collect();
    assert_eq!(choice["message"]["content"], "Swagger UI is at /llm/docs,");
    assert_eq!(
        text, b"Swagger UI is at /llm/docs,",
        "and none of the stop string"
    );
    for token in content {
        let top = token["top_logprobs"].as_array().expect("a list");
        assert_eq!(top.len(), 3);
        assert_eq!(
            top[0]["token"], token["token"],
            "greedy takes the likeliest"
        );
        assert_eq!(top[0]["logprob"], token["logprob"]);
        let values: Vec<f64> = top
            .iter()
            .filter_map(|token| token["logprob"].as_f64())
            .collect();
        assert!(
            values.is_sorted_by(|a, b| a >= b) && values[0] <= 0.0,
            "{top:?}"
        );
    }
    body["stream"] = json!(true);
    let chunks = engine.stream(CHAT, &body).await.collect().await;
    let streamed: Vec<Value> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["logprobs"]["content"].as_array())
        .flatten()
        .cloned()
        .collect();
    assert_eq!(&streamed, content);
    let plain = ok(&engine, CHAT, &ask(&json!({}))).await;
    assert_eq!(plain["choices"][0]["logprobs"], Value::Null);
}

#[tokio::test]
async fn a_prompt_of_token_ids_equals_the_prompt_of_its_text() {
    let engine = Engine::start(2).await;
    let text = "Keep-hot is how long";
    let tokens = ok(
        &engine,
        "/tokenize",
        &json!({"model": MODEL, "prompt": text}),
    )
    .await;
    assert_eq!(tokens["max_model_len"], CONTEXT_TOKENS);
    assert_eq!(
        tokens["count"].as_u64(),
        tokens["tokens"]
            .as_array()
            .map(|tokens| tokens.len() as u64)
    );
    let tokens = &tokens["tokens"];
    let back = ok(&engine, "/v1/detokenize", &json!({"tokens": tokens})).await;
    assert_eq!(back, json!({"prompt": text}));
    let body = |prompt: Value| json!({"prompt": prompt, "max_tokens": 6, "temperature": 0});
    let texts = |response: &Value| -> Vec<String> {
        let choices = response["choices"].as_array().expect("choices").iter();
        choices
            .map(|choice| choice["text"].as_str().expect("text").to_owned())
            .collect()
    };
    let wanted = texts(&ok(&engine, COMPLETIONS, &body(json!(text))).await);
    assert_eq!(
        texts(&ok(&engine, COMPLETIONS, &body(tokens.clone())).await),
        wanted
    );
    let both = ok(&engine, COMPLETIONS, &body(json!([tokens, tokens]))).await;
    assert_eq!(texts(&both), [wanted[0].clone(), wanted[0].clone()]);
    let (_, refused) = engine.post(COMPLETIONS, &body(json!([5, 640]))).await;
    let message = refused["error"]["message"].as_str().expect("a message");
    assert!(
        message.contains("640 tokens") && message.contains("id 640"),
        "{message}"
    );
}

#[tokio::test]
async fn messages_are_tokenised_as_the_chat_template_writes_them() {
    let engine = Engine::start(1).await;
    let messages = json!([{"role": "user", "content": "Where is Swagger UI?"}]);
    let tokens = ok(
        &engine,
        "/v1/tokenize",
        &json!({"messages": messages, "return_token_strs": true}),
    )
    .await;
    assert_eq!(tokens["token_strs"][0], "<|im_start|>");
    let text = ok(&engine, "/detokenize", &json!({"tokens": tokens["tokens"]})).await;
    assert_eq!(
        text["prompt"],
        "<|im_start|>user\nWhere is Swagger UI?<|im_end|>\n<|im_start|>assistant\n"
    );
    let response = ok(&engine, CHAT, &ask(&json!({"max_tokens": 1}))).await;
    assert_eq!(response["usage"]["prompt_tokens"], tokens["count"]);
    for (path, body, param) in [
        ("/tokenize", json!({}), Some("prompt")),
        (
            "/tokenize",
            json!({"prompt": "a", "messages": messages}),
            Some("prompt"),
        ),
        (
            "/tokenize",
            json!({"prompt": "a", "colour": 1}),
            Some("colour"),
        ),
        ("/tokenize", json!({"prompt": "a".repeat(5_000_000)}), None),
        ("/detokenize", json!({"tokens": [640]}), Some("tokens")),
        ("/detokenize", json!({"tokens": [-1]}), Some("tokens")),
        ("/detokenize", json!({"tokens": "a"}), Some("tokens")),
        ("/detokenize", json!({}), Some("tokens")),
    ] {
        let (status, response) = engine.post(path, &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path}: {response}");
        assert_eq!(response["error"]["param"].as_str(), param, "{response}");
    }
    let (status, _) = engine
        .post("/tokenize", &json!({"model": "another", "prompt": "a"}))
        .await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    assert_eq!(
        ok(&engine, "/detokenize", &json!({"tokens": []})).await["prompt"],
        ""
    );
}

#[tokio::test]
async fn echo_returns_the_prompt_with_its_logprobs() {
    let engine = Engine::start(1).await;
    let text = "Keep-hot is how löng";
    let body = |max_tokens: usize| json!({"prompt": text, "echo": true, "logprobs": 2, "max_tokens": max_tokens, "temperature": 0});
    let response = ok(&engine, COMPLETIONS, &body(0)).await;
    let choice = &response["choices"][0];
    assert_eq!(choice["text"], text);
    assert_eq!(choice["finish_reason"], "length");
    assert_eq!(response["usage"]["completion_tokens"], 0);
    let logprobs = &choice["logprobs"];
    assert_eq!(logprobs["token_logprobs"][0], Value::Null);
    let count = response["usage"]["prompt_tokens"]
        .as_u64()
        .expect("a count") as usize;
    for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(
            logprobs[name].as_array().map(Vec::len),
            Some(count),
            "{name}"
        );
    }
    // Offsets are the tokens' positions in the text, in characters.
    let response = ok(&engine, COMPLETIONS, &body(5)).await;
    let logprobs = &response["choices"][0]["logprobs"];
    let whole: Vec<char> = response["choices"][0]["text"]
        .as_str()
        .expect("text")
        .chars()
        .collect();
    assert_eq!(logprobs["tokens"].as_array().map(Vec::len), Some(count + 5));
    let tokens = logprobs["tokens"].as_array().expect("tokens");
    for (token, offset) in tokens.iter().zip(numbers(&logprobs["text_offset"])) {
        let token = token.as_str().expect("a string");
        if !token.starts_with("bytes:") {
            let rest: String = whole[offset as usize..].iter().collect();
            assert!(rest.starts_with(token), "{token:?} in {rest:?}");
        }
    }
    assert!(
        numbers(&logprobs["token_logprobs"])
            .iter()
            .all(|logprob| *logprob <= 0.0)
    );
    let (_, refused) = engine
        .post(COMPLETIONS, &json!({"prompt": text, "max_tokens": 0}))
        .await;
    assert_eq!(refused["error"]["param"], "max_tokens");
    let quick = json!({"prompt": text, "echo": true, "max_tokens": 0, "stream": true});
    let chunks = engine.stream(COMPLETIONS, &quick).await.collect().await;
    assert_eq!(chunks[0]["choices"][0]["text"], text);
}

#[tokio::test]
async fn best_of_returns_the_most_likely_responses() {
    let engine = Engine::start(2).await;
    let body = |more: Value| {
        let mut body = json!({"prompt": "Keep-hot is", "max_tokens": 6, "temperature": 1.5, "seed": 3, "logprobs": 0, "ignore_eos": true});
        for (name, value) in more.as_object().expect("an object") {
            body[name] = value.clone();
        }
        body
    };
    let mean = |choice: &Value| {
        let logprobs = numbers(&choice["logprobs"]["token_logprobs"]);
        logprobs.iter().sum::<f64>() / logprobs.len() as f64
    };
    let all = ok(&engine, COMPLETIONS, &body(json!({"n": 6}))).await;
    let mut means: Vec<f64> = all["choices"]
        .as_array()
        .expect("choices")
        .iter()
        .map(mean)
        .collect();
    means.sort_by(|a, b| b.total_cmp(a));
    let best = ok(&engine, COMPLETIONS, &body(json!({"n": 2, "best_of": 6}))).await;
    let found: Vec<f64> = best["choices"]
        .as_array()
        .expect("choices")
        .iter()
        .map(mean)
        .collect();
    assert_eq!(found.len(), 2);
    for (found, wanted) in found.iter().zip(&means) {
        assert!((found - wanted).abs() < 1e-6, "{found} {wanted}");
    }
    assert_eq!(
        best["usage"]["completion_tokens"], 36,
        "all that was computed counts"
    );
    let chunks = engine
        .stream(
            COMPLETIONS,
            &body(json!({"n": 2, "best_of": 6, "stream": true})),
        )
        .await
        .collect()
        .await;
    for index in 0..2 {
        let text: String = chunks
            .iter()
            .filter(|chunk| chunk["choices"][0]["index"] == index)
            .filter_map(|chunk| chunk["choices"][0]["text"].as_str())
            .collect();
        assert_eq!(best["choices"][index]["text"], text);
    }
    let (_, refused) = engine
        .post(COMPLETIONS, &body(json!({"n": 3, "best_of": 2})))
        .await;
    assert_eq!(refused["error"]["param"], "best_of");
}

#[tokio::test]
async fn choices_are_streamed_concurrently_if_there_are_enough_seats() {
    let engine = Engine::start(2).await;
    let body = ask(
        &json!({"n": 2, "stream": true, "temperature": 2.0, "logit_bias": {"0": -100, "2": -100}}),
    );
    let chunks = engine.stream(CHAT, &body).await.collect().await;
    let order: Vec<u64> = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["index"].as_u64())
        .collect();
    let first_of_second = order.iter().position(|index| *index == 1);
    let last_of_first = order.iter().rposition(|index| *index == 0);
    assert!(first_of_second < last_of_first, "{order:?}");
}
