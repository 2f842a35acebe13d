//! A hostile grammar over HTTP: other requests are served while it is tried, even with a single tokenizer worker, and its memory is
//! freed. Runs alone in its process, whose memory it measures.

mod support;

use candle_engine::{EngineOptions, Listen, TrialProgram, try_grammar};
use hyper::StatusCode;
use serde_json::{Map, Value, json};
use std::pin::pin;
use support::{CHAT, Engine, MODEL, ask, demo_model, options};

/// Memory that a process may retain after serving requests: caches, and memory kept by the allocator.
const GROWTH_BYTES_MAX: u64 = 200 * 1024 * 1024;

/// Not a test: the program that this engine starts for a trial.
#[test]
fn hostile_grammar_trial_entry_point() {
    try_grammar().expect("the order is read");
}

async fn engine() -> Engine {
    let folder = tempfile::tempdir().expect("a folder");
    let trial = TrialProgram {
        program: std::env::current_exe().expect("a test has a program"),
        arguments: [
            "hostile_grammar_trial_entry_point",
            "--exact",
            "--nocapture",
            "--test-threads=1",
        ]
        .map(str::to_owned)
        .to_vec(),
    };
    let options = EngineOptions {
        tokenizer_workers: Some(1),
        grammar_trial: Some(trial),
        ..options(
            &demo_model("tiny-chat"),
            Listen::Unix(folder.path().join("socket")),
        )
    };
    Engine::start_with(options, folder).await
}

fn held(schema: Value) -> Value {
    ask(&json!({"max_tokens": 2, "guided_json": schema}))
}

/// Each expression doubles the number of states in one step.
fn patterns(count: u8) -> Value {
    let one = |nth: u8| {
        let letter = char::from(b'a' + nth);
        json!({"type": "string", "pattern": format!(".*{letter}.{{{}}}", nth + 5)})
    };
    json!({"allOf": (0..count).map(one).collect::<Vec<_>>()})
}

/// Alternatives without constraints, each of which receives a copy of all sibling keywords.
fn copies() -> Value {
    let properties: Map<String, Value> = (0..1200)
        .map(|nth| (format!("a{nth}"), json!({})))
        .collect();
    json!({"allOf": [{"type": "object", "properties": properties}], "anyOf": vec![true; 8000]})
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse().ok());
    kibibytes.unwrap_or(0u64) * 1024
}

async fn metric(engine: &Engine, name: &str) -> f64 {
    let (_, text) = engine.get("/metrics").await;
    let text = text.as_str().expect("a text");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&format!("candle_engine_grammars_{name} ")));
    line.and_then(|line| line.parse().ok()).expect("a number")
}

#[tokio::test]
async fn a_hostile_schema_delays_no_other_request_and_leaks_no_memory() {
    let engine = engine().await;
    let plain = ask(&json!({"max_tokens": 2}));
    let person = json!({"type": "object", "properties": {"name": {"type": "string"}}});
    for body in [&plain, &held(person.clone())] {
        assert_eq!(engine.post(CHAT, body).await.0, StatusCode::OK);
    }
    let before = resident_bytes();
    let (endless, copies) = (held(patterns(24)), held(copies()));
    let others = async {
        while metric(&engine, "in_trial").await < 2.0 {
            tokio::task::yield_now().await;
        }
        let (status, response) = engine.post(CHAT, &plain).await;
        assert_eq!(status, StatusCode::OK, "{response}");
        let (status, response) = engine.post(CHAT, &held(person)).await;
        assert_eq!(status, StatusCode::OK, "{response}");
        let tokens = json!({"model": MODEL, "prompt": "hello"});
        assert_eq!(engine.post("/tokenize", &tokens).await.0, StatusCode::OK);
    };
    let (one, other) = {
        let mut hostile =
            pin!(async { tokio::join!(engine.post(CHAT, &endless), engine.post(CHAT, &copies)) });
        tokio::select! {
            biased;
            _ = &mut hostile => panic!("the hostile requests ended first"),
            () = others => {}
        }
        hostile.await
    };
    for (status, response) in [one, other] {
        assert_eq!(status, StatusCode::BAD_REQUEST, "{response}");
        assert_eq!(response["error"]["param"], "guided_json");
        let message = response["error"]["message"].as_str().expect("a message");
        let is_measured =
            message.contains("s to compile") || message.contains("MiB of memory to compile");
        assert!(is_measured, "{message}");
    }
    assert_eq!(metric(&engine, "refused_total").await, 2.0);
    assert_eq!(metric(&engine, "compiling").await, 0.0);
    // The refusal is cached, so repeating the request costs nothing.
    assert_eq!(engine.post(CHAT, &endless).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(metric(&engine, "tried_total").await, 2.0);
    let growth = resident_bytes().saturating_sub(before);
    assert!(growth < GROWTH_BYTES_MAX, "{growth} bytes more");
    engine.stop().await.expect("ends");
}
