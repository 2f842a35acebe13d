//! Token limits over HTTP: an overlong prompt is refused with both numbers.

mod support;

use candle_engine::{EngineOptions, Listen, TokenBudgets};
use hyper::StatusCode;
use serde_json::{Value, json};
use support::{Engine, MODEL, demo_model, options};

async fn engine(budgets: TokenBudgets) -> Engine {
    let folder = tempfile::tempdir().expect("a folder");
    let options = EngineOptions {
        budgets,
        ..options(
            &demo_model("tiny-chat"),
            Listen::Unix(folder.path().join("socket")),
        )
    };
    Engine::start_with(options, folder).await
}

fn text(prompt: &str, max_tokens: usize) -> Value {
    json!({"model": MODEL, "prompt": prompt, "max_tokens": max_tokens, "stream": true, "ignore_eos": true})
}

#[tokio::test]
async fn a_prompt_over_its_bound_is_refused_with_both_numbers() {
    let engine = engine(TokenBudgets {
        input: Some(8),
        ..TokenBudgets::default()
    })
    .await;
    let mut body = text("one two three four five six seven eight nine ten eleven", 4);
    body["stream"] = json!(false);
    let (status, response) = engine.post("/v1/completions", &body).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{response}");
    let message = response["error"]["message"].as_str().expect("a message");
    assert!(
        message.contains("maximum context length is 8 tokens for a prompt (max_input_tokens)"),
        "{message}"
    );
    assert_eq!(response["error"]["code"], "context_length_exceeded");
    body["prompt"] = json!("one two");
    assert_eq!(
        engine.post("/v1/completions", &body).await.0,
        StatusCode::OK
    );
    engine.stop().await.expect("ends");
}
