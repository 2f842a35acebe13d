//! A T5 on a real engine: the prompt is encoded, and the response is a separate text.

mod support;

use candle_engine::{EngineOptions, Listen};
use hyper::StatusCode;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use support::{CHAT, Engine, MODEL, options};

const COMPLETIONS: &str = "/v1/completions";
/// Half of it is for the prompt, and half for the response.
const CONTEXT_TOKENS: usize = 512;
const END: u32 = 1;
const SPECIAL_TOKENS: u32 = 3;

fn folder_of_model() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/library/t5")
}

fn tokens(name: &str) -> Vec<u32> {
    let text = std::fs::read(folder_of_model().join("expected.json")).expect("is kept");
    let expected: Value = serde_json::from_slice(&text).expect("JSON");
    serde_json::from_value(expected[name].clone()).expect("tokens")
}

/// The text of tokens: each is a word of two letters, except special ones.
fn text_of(tokens: &[u32]) -> String {
    let words = tokens.iter().filter(|token| **token >= SPECIAL_TOKENS);
    let word = |token: &u32| {
        let letter = |number: u32| char::from(b'a' + number as u8);
        format!("{}{}", letter(token / 16), letter(token % 16))
    };
    words.map(word).collect::<Vec<_>>().join(" ")
}

async fn engine() -> Engine {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = Listen::Unix(folder.path().join("socket"));
    let options = EngineOptions {
        context_tokens: CONTEXT_TOKENS,
        ..options(&folder_of_model(), socket)
    };
    Engine::start_with(options, folder).await
}

fn ask(more: &Value) -> Value {
    let mut body = json!({"model": MODEL, "prompt": tokens("prompt"), "max_tokens": 128, "temperature": 0, "ignore_eos": true});
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

fn chat(messages: &Value) -> Value {
    json!({"model": MODEL, "messages": messages, "max_tokens": 20, "temperature": 0, "ignore_eos": true})
}

#[tokio::test]
async fn simultaneous_texts_get_the_translations_of_the_reference() {
    let engine = engine().await;
    let streaming = ask(&json!({"stream": true}));
    let streamed = async {
        let mut text = String::new();
        for chunk in engine.stream(COMPLETIONS, &streaming).await.collect().await {
            text += chunk["choices"][0]["text"].as_str().unwrap_or_default();
        }
        text
    };
    let body = ask(&json!({}));
    let other = ask(&json!({"prompt": [5, 9, 5, 9, 33], "max_tokens": 60}));
    let (first, second, streamed) = tokio::join!(
        engine.post(COMPLETIONS, &body),
        engine.post(COMPLETIONS, &other),
        streamed
    );
    assert_eq!(first.0, StatusCode::OK, "{}", first.1);
    assert_eq!(second.0, StatusCode::OK, "{}", second.1);
    let wanted = text_of(&tokens("greedy"));
    assert_eq!(first.1["choices"][0]["text"], json!(wanted));
    assert_eq!(streamed, wanted);
    let usage = &first.1["usage"];
    assert_eq!(usage["prompt_tokens"], tokens("prompt").len(), "{usage}");
    assert_eq!(usage["completion_tokens"], 128, "{usage}");
    let alone = engine.post(COMPLETIONS, &other).await.1;
    assert_eq!(alone["choices"][0]["text"], second.1["choices"][0]["text"]);
}

#[tokio::test]
async fn a_text_ends_with_the_end_token_on_every_route() {
    let engine = engine().await;
    let source = text_of(&tokens("prompt"));
    let with_end = [tokens("prompt"), vec![END]].concat();
    let text = |response: &Value| response["choices"][0]["text"].clone();
    let short = |prompt: Value| ask(&json!({"prompt": prompt, "max_tokens": 20}));
    let (_, of_tokens) = engine.post(COMPLETIONS, &short(json!(with_end))).await;
    let (status, of_text) = engine.post(COMPLETIONS, &short(json!(source))).await;
    assert_eq!(status, StatusCode::OK, "{of_text}");
    assert_eq!(text(&of_text), text(&of_tokens));
    assert_eq!(of_text["usage"]["prompt_tokens"], with_end.len());
    let messages = json!([{"role": "user", "content": [{"type": "text", "text": source}]}]);
    let (status, of_chat) = engine.post(CHAT, &chat(&messages)).await;
    assert_eq!(status, StatusCode::OK, "{of_chat}");
    let content = &of_chat["choices"][0]["message"]["content"];
    assert_eq!(*content, text(&of_tokens));
    assert_eq!(of_chat["usage"]["prompt_tokens"], with_end.len());
    let body = json!({"messages": messages});
    let (_, tokenized) = engine.post("/tokenize", &body).await;
    assert_eq!(tokenized["tokens"], json!(with_end), "{tokenized}");
}

#[tokio::test]
async fn conversations_and_echoes_are_refused_by_field() {
    let engine = engine().await;
    let system =
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "ad"}]);
    let turns = json!([{"role": "user", "content": "ad"}, {"role": "assistant", "content": "ae"},
        {"role": "user", "content": "af"}]);
    let assistant = json!([{"role": "assistant", "content": "ad"}]);
    for messages in [system, turns, assistant] {
        let (status, refused) = engine.post(CHAT, &chat(&messages)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
        assert_eq!(refused["error"]["param"], "messages", "{refused}");
    }
    for (more, param) in [
        (json!({"echo": true}), "echo"),
        (json!({"echo": true, "logprobs": 1}), "echo"),
        (
            json!({"decoding_strategy": "beam_search", "temperature": null}),
            "decoding_strategy",
        ),
    ] {
        let (status, refused) = engine.post(COMPLETIONS, &ask(&more)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
        assert_eq!(refused["error"]["param"], param, "{refused}");
    }
}

#[tokio::test]
async fn both_texts_have_half_of_the_context() {
    let engine = engine().await;
    let (status, refused) = engine
        .post(COMPLETIONS, &ask(&json!({"prompt": vec![5; 257]})))
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
    assert_eq!(refused["error"]["code"], "context_length_exceeded");
    let message = refused["error"]["message"].as_str().expect("a message");
    assert!(
        message.contains("257 tokens") && message.contains("256 tokens"),
        "{message}"
    );
    let most = json!({"prompt": vec![5; 256], "max_tokens": 400});
    let (status, most) = engine.post(COMPLETIONS, &ask(&most)).await;
    assert_eq!(status, StatusCode::OK, "{most}");
    assert_eq!(most["usage"]["completion_tokens"], 256, "{most}");
    assert_eq!(most["choices"][0]["finish_reason"], "length");
}

#[tokio::test]
async fn stops_grammars_scores_and_penalties_apply_to_a_response() {
    let engine = engine().await;
    let wanted = text_of(&tokens("greedy"));
    let words: Vec<&str> = wanted.split(' ').collect();
    let stop = ask(&json!({"stop": [words[3]]}));
    let (_, stopped) = engine.post(COMPLETIONS, &stop).await;
    let before = wanted.split(words[3]).next().expect("a text");
    assert_eq!(stopped["choices"][0]["text"], json!(before), "{stopped}");
    assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
    let choice = ask(&json!({"guided_choice": [" bb cc", " dd"], "ignore_eos": false}));
    let (status, chosen) = engine.post(COMPLETIONS, &choice).await;
    assert_eq!(status, StatusCode::OK, "{chosen}");
    // The first word of a text is shown without its space.
    let chosen = chosen["choices"][0]["text"].as_str().expect("a text");
    assert!(["bb cc", "dd"].contains(&chosen), "{chosen}");
    let scored = ask(&json!({"logprobs": 2, "max_tokens": 3}));
    let (status, scored) = engine.post(COMPLETIONS, &scored).await;
    assert_eq!(status, StatusCode::OK, "{scored}");
    let scores = &scored["choices"][0]["logprobs"]["token_logprobs"];
    let scores = scores.as_array().expect("scores");
    assert_eq!(scores.len(), 3);
    assert!(
        scores.iter().all(|score| score.as_f64() < Some(0.0)),
        "{scores:?}"
    );
    // A penalty on repetition counts the response alone: the prompt contains the token that is chosen first.
    let first = &tokens("greedy")[..1];
    assert!(tokens("prompt").contains(&first[0]));
    let penalised = ask(&json!({"max_tokens": 1, "repetition_penalty": 2.0}));
    let (_, penalised) = engine.post(COMPLETIONS, &penalised).await;
    assert_eq!(penalised["choices"][0]["text"], json!(text_of(first)));
}

#[tokio::test]
async fn a_model_that_encodes_reports_its_memory_and_sleeps() {
    let engine = engine().await;
    let (_, memory) = engine.get("/memory").await;
    assert!(memory["weights_bytes"].as_u64() > Some(0), "{memory}");
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
