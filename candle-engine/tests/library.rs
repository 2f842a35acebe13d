//! A model of candle's library on a real engine: the shared features work, and the others are refused.

mod support;

use candle_engine::{EngineOptions, Listen};
use hyper::StatusCode;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use support::{Engine, MODEL, options};

const COMPLETIONS: &str = "/v1/completions";
const CONTEXT_TOKENS: usize = 176;

fn folder_of_model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/library/starcoder")
}

fn expected() -> Value {
    let text = std::fs::read(folder_of_model().join("expected.json")).expect("is kept");
    serde_json::from_slice(&text).expect("JSON")
}

fn engine_options(socket: Listen) -> EngineOptions {
    EngineOptions {
        context_tokens: CONTEXT_TOKENS,
        ..options(&folder_of_model(), socket)
    }
}

async fn engine() -> Engine {
    let folder = tempfile::tempdir().expect("a folder");
    let options = engine_options(Listen::Unix(folder.path().join("socket")));
    Engine::start_with(options, folder).await
}

/// The text of tokens: each is a word of two letters.
fn text_of(tokens: &Value) -> String {
    let tokens = tokens.as_array().expect("tokens").iter();
    let word = |token: &Value| {
        let token = token.as_u64().expect("a number") as u8;
        format!(
            " {}{}",
            (b'a' + token / 16) as char,
            (b'a' + token % 16) as char
        )
    };
    tokens.map(word).collect()
}

fn ask(more: &Value) -> Value {
    let mut body = json!({"model": MODEL, "prompt": expected()["prompt"], "max_tokens": 128, "temperature": 0, "ignore_eos": true});
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

#[tokio::test]
async fn simultaneous_requests_get_the_continuation_of_the_reference() {
    let engine = engine().await;
    let (body, streaming) = (ask(&json!({})), ask(&json!({"stream": true})));
    let other = ask(&json!({"prompt": [5, 9, 5, 9, 33], "max_tokens": 60}));
    let streamed = async {
        let mut text = String::new();
        for chunk in engine.stream(COMPLETIONS, &streaming).await.collect().await {
            text += chunk["choices"][0]["text"].as_str().unwrap_or_default();
        }
        text
    };
    let (first, second, streamed) = tokio::join!(
        engine.post(COMPLETIONS, &body),
        engine.post(COMPLETIONS, &other),
        streamed
    );
    assert_eq!(first.0, StatusCode::OK, "{}", first.1);
    assert_eq!(second.0, StatusCode::OK, "{}", second.1);
    let wanted = text_of(&expected()["greedy"]);
    assert_eq!(first.1["choices"][0]["text"], json!(wanted));
    assert_eq!(streamed, wanted);
    let again = engine.post(COMPLETIONS, &other).await.1;
    assert_eq!(again["choices"][0]["text"], second.1["choices"][0]["text"]);
}

#[tokio::test]
async fn stops_grammars_and_scores_apply_to_a_model_of_the_library() {
    let engine = engine().await;
    let wanted = text_of(&expected()["greedy"]);
    let words: Vec<&str> = wanted.split(' ').skip(1).collect();
    let stop = ask(&json!({"stop": [words[3]]}));
    let (_, stopped) = engine.post(COMPLETIONS, &stop).await;
    let before = wanted.split(words[3]).next().expect("a text");
    assert_eq!(stopped["choices"][0]["text"], json!(before), "{stopped}");
    assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
    let choice = ask(&json!({"guided_choice": [" bb cc", " dd"], "ignore_eos": false}));
    let (status, chosen) = engine.post(COMPLETIONS, &choice).await;
    assert_eq!(status, StatusCode::OK, "{chosen}");
    let chosen = chosen["choices"][0]["text"].as_str().expect("a text");
    assert!([" bb cc", " dd"].contains(&chosen), "{chosen}");
    let scored = ask(&json!({"echo": true, "logprobs": 2, "max_tokens": 3}));
    let (status, scored) = engine.post(COMPLETIONS, &scored).await;
    assert_eq!(status, StatusCode::OK, "{scored}");
    let scores = &scored["choices"][0]["logprobs"]["token_logprobs"];
    let scores = scores.as_array().expect("scores");
    assert_eq!(scores.len(), 27);
    let probability = |score: &Value| score.as_f64().is_some_and(|score| score < 0.0);
    assert!(scores[1..].iter().all(probability), "{scores:?}");
}

#[tokio::test]
async fn searches_and_adapters_are_refused_for_a_model_of_the_library() {
    let engine = engine().await;
    for strategy in ["beam_search", "contrastive_search"] {
        let mut body = ask(&json!({"decoding_strategy": strategy}));
        body.as_object_mut()
            .expect("an object")
            .remove("temperature");
        let (status, refused) = engine.post(COMPLETIONS, &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
        assert_eq!(refused["error"]["param"], "decoding_strategy", "{refused}");
    }
    let greedy = ask(&json!({"decoding_strategy": "greedy", "max_tokens": 4}));
    let (status, _) = engine.post(COMPLETIONS, &greedy).await;
    assert_eq!(status, StatusCode::OK);
}

#[tokio::test]
async fn a_model_of_the_library_reports_its_memory_and_sleeps() {
    let engine = engine().await;
    let (_, memory) = engine.get("/memory").await;
    assert!(memory["weights_bytes"].as_u64() > Some(0), "{memory}");
    assert_eq!(memory["weights_mapped_bytes"], 0, "{memory}");
    assert_eq!(memory["kv_cache_bytes_used"], 0, "{memory}");
    let body = ask(&json!({}));
    let (_, before) = engine.post(COMPLETIONS, &body).await;
    let (status, slept) = engine.post("/sleep", &json!({})).await;
    assert_eq!(status, StatusCode::OK, "{slept}");
    let (status, woken) = engine.post("/wake_up", &json!({})).await;
    assert_eq!(status, StatusCode::OK, "{woken}");
    let (_, after) = engine.post(COMPLETIONS, &body).await;
    assert_eq!(after["choices"][0]["text"], before["choices"][0]["text"]);
}
