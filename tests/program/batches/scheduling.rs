//! Seats and memory that batches leave to others, and pauses.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

use super::{BATCHES, CHAT, created, ended, line, lines, model, shown, upload};

fn chat(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "Now."}]})
}

fn in_flight(pool: &Pool, id: &str) -> u64 {
    let batch = shown(pool, id);
    batch["model_pool"]["in_flight"].as_u64().expect("a number")
}

fn state(pool: &Pool, model: &str) -> String {
    let (_, models) = pool.admin("GET", "/llm/admin/models", &json!(null));
    let models = models["models"].as_array().expect("a list").iter();
    let mut found = models.filter(|known| known["model"] == model);
    let found = found.next().unwrap_or(&Value::Null);
    found["state"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn an_interactive_request_gets_a_seat_at_once_while_a_batch_fills_the_model() {
    let flags = ["--tokens", "100", "--token-ms", "20"];
    let pool = Pool::with_models(&[model("writer", 2, 1, &flags)], "");
    let requests = (0..6).map(|nth| line(&nth.to_string(), "writer"));
    let id = created(&pool, &lines(requests), "24h");
    wait_for("a full model", || in_flight(&pool, &id) == 2);
    let began = SystemTime::now();
    let mut body = chat("writer");
    body["stream"] = json!(true);
    let stream = pool.stream(CHAT, &body.to_string());
    wait_for("a token", || stream.text().contains("data: "));
    let waited = began.elapsed().expect("a clock");
    // A batch request takes 2 s, which the first token would have to wait for.
    assert!(waited < Duration::from_millis(1_500), "{waited:?}");
    drop(stream);
    let batch = ended(&pool, &id, "completed");
    assert_eq!(batch["request_counts"]["completed"], 6, "{batch}");
}

#[test]
fn a_batch_loads_its_model_only_into_memory_that_is_free() {
    let models = [
        model("small", 2, 6, &["--tokens", "2"]),
        model("large", 2, 10, &["--tokens", "2"]),
    ];
    let pool = Pool::with_models(&models, "batch: {hours: never}\n");
    let (status, response) = pool.call(None, "POST", CHAT, &chat("small"));
    assert_eq!(status, 200, "{response}");
    let id = created(&pool, &lines([line("1", "large")]), "24h");
    // A batch of the loaded model shows that batches run.
    let other = created(&pool, &lines([line("1", "small")]), "24h");
    ended(&pool, &other, "completed");
    assert_eq!(shown(&pool, &id)["status"], "in_progress");
    assert_eq!(
        (state(&pool, "small"), state(&pool, "large")),
        ("ready".to_owned(), "cold".to_owned())
    );
    let (status, _) = pool.admin("POST", "/llm/admin/unload", &json!({"model": "small"}));
    assert_eq!(status, 200);
    ended(&pool, &id, "completed");
    assert_eq!(state(&pool, "large"), "ready");
    // The model that only batches used leaves for a request.
    let (status, response) = pool.call(None, "POST", CHAT, &chat("small"));
    assert_eq!(status, 200, "{response}");
    assert_ne!(state(&pool, "large"), "ready");
}

#[test]
fn a_paused_batch_starts_no_requests_until_it_is_resumed() {
    let flags = ["--tokens", "5", "--token-ms", "10"];
    let pool = Pool::with_models(&[model("writer", 1, 1, &flags)], "");
    let requests = (0..40).map(|nth| line(&nth.to_string(), "writer"));
    let id = created(&pool, &lines(requests), "24h");
    let path = format!("/llm/admin/batches?id={id}");
    let (status, paused) = pool.admin("PATCH", &path, &json!({"paused": true}));
    assert_eq!(status, 200, "{paused}");
    wait_for("the end of running requests", || in_flight(&pool, &id) == 0);
    let before = shown(&pool, &id)["request_counts"].clone();
    let other = created(&pool, &lines([line("1", "writer")]), "24h");
    ended(&pool, &other, "completed");
    assert_eq!(
        shown(&pool, &id)["request_counts"]["total"],
        before["total"]
    );
    assert_eq!(shown(&pool, &id)["status"], "in_progress");
    let (status, _) = pool.admin("PATCH", &path, &json!({"paused": false}));
    assert_eq!(status, 200);
    ended(&pool, &id, "completed");
}

/// Creates a batch of a request for this model, and returns its forecast.
fn forecast_of_new(pool: &Pool, model: &str) -> Value {
    let (status, file) = upload(pool, &lines([line("1", model)]));
    assert_eq!(status, 200, "{file}");
    let body = json!({"input_file_id": file["id"], "endpoint": CHAT, "completion_window": "24h"});
    let (status, batch) = pool.call(None, "POST", BATCHES, &body);
    assert_eq!(status, 200, "{batch}");
    batch["model_pool"].clone()
}

#[test]
fn a_batch_has_a_forecast_from_its_creation_on_and_one_warning_before_it_misses_its_window() {
    let flags = ["--tokens", "100", "--token-ms", "20"];
    let pool = Pool::with_models(&[model("writer", 1, 1, &flags)], "");
    let first = forecast_of_new(&pool, "writer");
    assert_eq!(first["will_hold"], Value::Null, "nothing is known: {first}");
    let (status, response) = pool.call(None, "POST", CHAT, &chat("writer"));
    assert_eq!(status, 200, "{response}");
    wait_for("a forecast", || {
        let forecast = forecast_of_new(&pool, "writer");
        forecast["will_hold"] == true && forecast["expected_seconds"].is_u64()
    });
    // 2,000 s of requests.
    let requests = (0..1_000).map(|nth| line(&nth.to_string(), "writer"));
    let id = created(&pool, &lines(requests), "2m");
    let warning = || shown(&pool, &id)["model_pool"]["warning"].clone();
    wait_for("a warning", || warning().is_string());
    let text = warning().as_str().expect("a text").to_owned();
    assert!(text.contains("requests are left"), "{text}");
    let batch = shown(&pool, &id);
    assert_eq!(batch["model_pool"]["will_hold"], false, "{batch}");
    let (status, cancelled) = pool.call(
        None,
        "POST",
        &format!("{BATCHES}/{id}/cancel"),
        &json!(null),
    );
    assert_eq!(status, 200, "{cancelled}");
}

#[test]
fn a_batch_names_the_failure_of_a_model_that_does_not_load() {
    let flags = ["--fail-load", "the weights are unreadable"];
    let pool = Pool::with_models(&[model("broken", 1, 1, &flags)], "");
    let id = created(&pool, &lines([line("1", "broken")]), "24h");
    let warning = || shown(&pool, &id)["model_pool"]["warning"].clone();
    wait_for("a warning", || warning().is_string());
    let text = warning().as_str().expect("a text").to_owned();
    assert!(text.contains("broken does not load"), "{text}");
    assert!(text.contains("the weights are unreadable"), "{text}");
}
