//! One user's experience with the default configuration: models that exclude each other, and the resulting waits (P3, P6).

use std::time::{Duration, Instant};

use serde_json::json;
use support::service::{Pool, wait_for};

/// An engine that uses 10 of the device's 16 GiB.
fn model(name: &str, loads_in: Duration, more: &str) -> (String, String) {
    let loads_ms = loads_in.as_millis().to_string();
    let flags = [
        "--model",
        name,
        "--ready-after-ms",
        &loads_ms,
        "--tokens",
        "2",
    ];
    support::stub::model(name, &flags, &format!("memory_gib: 10{more}"))
}

#[expect(clippy::disallowed_methods, reason = "real programs in real time")]
fn asked(pool: &Pool, model: &str) -> Duration {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Hello"}]});
    let began = Instant::now();
    let (status, text) = pool.post("/v1/chat/completions", &body.to_string());
    assert_eq!(status, 200, "{text}");
    began.elapsed()
}

#[test]
fn one_client_alternating_between_two_models_waits_only_for_the_loads() {
    let load = Duration::from_millis(300);
    let pool = Pool::with_models(&[model("a", load, ""), model("b", load, "")], "");
    asked(&pool, "a");
    let mut waits: Vec<Duration> = (0..6)
        .map(|nth| asked(&pool, ["b", "a"][nth % 2]))
        .collect();
    waits.sort();
    assert!(waits[0] >= load, "they exclude each other: {waits:?}");
    // Starting and stopping processes takes time on a busy machine; the former constants took five seconds.
    assert!(waits[3] < load + Duration::from_secs(2), "{waits:?}");
    assert!(pool.log().contains("idle: b waits (P3)"), "{}", pool.log());
}

#[test]
fn a_model_is_still_ready_after_its_client_received_the_response() {
    let load = Duration::ZERO;
    let pool = Pool::with_models(&[model("a", load, ""), model("b", load, "")], "");
    let key = pool.admin_key();
    for name in ["a", "b"].repeat(15) {
        asked(&pool, name);
        let path = format!("/llm/admin/models?model={name}");
        let (_, text, _) = pool.request("GET", &path, "", Some(&key));
        let response: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(response["models"][0]["state"], "ready", "{text}");
    }
}

#[test]
fn an_idle_model_of_higher_priority_yields_after_its_time_and_the_plan_shows_when() {
    let models = [
        model("urgent", Duration::ZERO, ", priority: 1"),
        model("plain", Duration::ZERO, ""),
    ];
    let pool = Pool::with_models(&models, "pool: {idle_yields: 3s}\n");
    asked(&pool, "urgent");
    let body = json!({"model": "plain"}).to_string();
    let (_, plan, _) = pool.request("POST", "/llm/admin/plan", &body, Some(&pool.admin_key()));
    assert!(
        plan.contains("of higher priority and idle, yields in"),
        "{plan}"
    );
    asked(&pool, "plain");
    wait_for("the history", || pool.log().contains("(P6)"));
    asked(&pool, "urgent");
}

#[test]
fn with_never_a_refusal_names_the_model_that_holds_the_memory() {
    let models = [
        model("urgent", Duration::ZERO, ", priority: 1"),
        model("plain", Duration::ZERO, ", queue_timeout: 1s"),
    ];
    let pool = Pool::with_models(&models, "pool: {idle_yields: never}\n");
    asked(&pool, "urgent");
    let body = json!({"model": "plain", "messages": [{"role": "user", "content": "Hello"}]});
    let (status, text) = pool.post("/v1/chat/completions", &body.to_string());
    assert_eq!(status, 503, "{text}");
    assert!(
        text.contains("held by urgent") && text.contains("(P2)"),
        "{text}"
    );
}
