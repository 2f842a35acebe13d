//! Budgets of tokens: too long a prompt is refused with both numbers, and requests wait for room in their order.

mod support;

use candle_engine::{EngineOptions, Listen, TokenBudgets};
use hyper::StatusCode;
use serde_json::{Value, json};
use support::{Engine, Events, MODEL, demo_model, options};

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

/// Less than what is left of an answer of 200 tokens when another one begins beside it.
const LATE_EVENTS_MAX: usize = 100;

/// To its end a stream that is over, though not all of it is read: it comes over a connection of its own, and what another
/// one brings can be seen before.
async fn read_what_is_late(stream: &mut Events) {
    for _ in 0..=LATE_EVENTS_MAX {
        if stream.next().await.is_none() {
            return;
        }
    }
    panic!("more than {LATE_EVENTS_MAX} events came after the next stream had begun");
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
    let (status, answer) = engine.post("/v1/completions", &body).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    let message = answer["error"]["message"].as_str().expect("a message");
    assert!(
        message.contains("of 8 tokens at most (max_input_tokens)"),
        "{message}"
    );
    assert_eq!(answer["error"]["code"], "context_length_exceeded");
    body["prompt"] = json!("one two");
    assert_eq!(
        engine.post("/v1/completions", &body).await.0,
        StatusCode::OK
    );
    engine.stop().await.expect("ends");
}

#[tokio::test]
async fn requests_run_together_as_far_as_their_tokens_fit_and_then_in_turn() {
    // Two workers, and room for one request of this length: the second begins when the first has ended.
    let engine = engine(TokenBudgets {
        total: Some(256),
        ..TokenBudgets::default()
    })
    .await;
    let mut first = engine.stream("/v1/completions", &text("one", 200)).await;
    assert!(first.next().await.is_some());
    let mut second = engine.stream("/v1/completions", &text("two", 200)).await;
    let mut third = engine.stream("/v1/completions", &text("three", 100)).await;
    let mut order = Vec::new();
    let (mut first_done, mut second_done, mut third_done) = (false, false, false);
    while !(first_done && second_done && third_done) {
        tokio::select! {
            biased;
            event = first.next(), if !first_done => match event { Some(_) => {} None => { first_done = true; order.push("first ends") } },
            event = second.next(), if !second_done => match event {
                Some(_) if !order.contains(&"second begins") => {
                    if !first_done {
                        read_what_is_late(&mut first).await;
                        first_done = true;
                        order.push("first ends");
                    }
                    order.push("second begins");
                }
                Some(_) => {}
                None => { second_done = true; order.push("second ends") }
            },
            event = third.next(), if !third_done => match event {
                Some(_) if !order.contains(&"third begins") => {
                    if !second_done {
                        read_what_is_late(&mut second).await;
                        second_done = true;
                        order.push("second ends");
                    }
                    order.push("third begins");
                }
                Some(_) => {}
                None => { third_done = true; order.push("third ends") }
            },
        }
    }
    let at = |what: &str| {
        order
            .iter()
            .position(|it| *it == what)
            .expect("it happened")
    };
    assert!(at("first ends") < at("second begins"), "{order:?}");
    // It would have fitted beside neither of them, and does not overtake.
    assert!(at("second ends") < at("third begins"), "{order:?}");
    engine.stop().await.expect("ends");
}
