//! Streams of JSON lines that wait, break off, or lose their client.

use serde_json::json;
use support::net::{engine, stats};
use support::service::wait_for;

use super::{lines, pool};

fn body() -> String {
    json!({"model": "writer", "prompt": "Hello"}).to_string()
}

#[test]
fn a_stream_waiting_for_its_model_is_kept_alive_with_spaces() {
    let pool = pool("writer", &["--ready-after-ms", "1500"]);
    let stream = pool.stream("/api/generate", &body());
    wait_for("a sign of life", || stream.text().starts_with("  "));
    let text = stream.whole();
    let (pauses, rest) = text.split_at(text.len() - text.trim_start_matches(' ').len());
    assert!(pauses.len() >= 3, "{text:?}");
    assert!(!rest.contains(": waiting"), "{rest}");
    let lines = lines(&text);
    assert_eq!(lines.last().unwrap()["done_reason"], "stop");
    assert!(lines.last().unwrap()["load_duration"].as_u64().unwrap() > 1_000_000_000);
}

#[test]
fn a_load_failure_after_the_stream_began_is_its_last_line() {
    let pool = pool(
        "writer",
        &["--ready-after-ms", "700", "--fail-load", "no kernel"],
    );
    let text = pool.stream("/api/generate", &body()).whole();
    let lines = lines(&text);
    assert_eq!(lines.len(), 1, "{text:?}");
    assert!(
        lines[0]["error"].as_str().unwrap().contains("no kernel"),
        "{text}"
    );
}

#[test]
fn an_engine_crash_is_the_last_line_of_a_stream_and_the_status_of_a_complete_response() {
    let pool = pool(
        "writer",
        &[
            "--tokens",
            "50",
            "--token-ms",
            "10",
            "--crash-mid-stream",
            "3",
        ],
    );
    let text = pool.stream("/api/generate", &body()).whole();
    let lines = lines(&text);
    let (last, before) = lines.split_last().unwrap();
    assert!(last["error"].as_str().unwrap().contains("writer"), "{text}");
    assert!(!before.is_empty() && before.iter().all(|line| line["done"] == false));
    let whole = json!({"model": "writer", "prompt": "Hello", "stream": false});
    let (status, response) = pool.post("/api/generate", &whole.to_string());
    let response: serde_json::Value = serde_json::from_str(&response).unwrap();
    assert_eq!(
        (status, response["error"].is_string()),
        (503, true),
        "{response}"
    );
}

#[test]
fn a_client_that_disconnects_mid_stream_ends_the_engines_work() {
    let pool = pool("writer", &["--tokens", "2000", "--token-ms", "20"]);
    let stream = pool.stream("/api/generate", &body());
    wait_for("some lines", || stream.text().lines().count() > 3);
    let address = engine(&pool, "writer");
    assert_eq!(stats(&address)["running"], 1);
    drop(stream);
    wait_for("the engine to be left alone", || {
        stats(&address)["running"] == 0
    });
    assert_eq!(stats(&address)["abandoned"], 1);
    let text = pool
        .stream(
            "/api/generate",
            &json!({"model": "writer", "prompt": "x", "options": {"num_predict": 2}}).to_string(),
        )
        .whole();
    assert_eq!(lines(&text).last().unwrap()["done_reason"], "length");
}
