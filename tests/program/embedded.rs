//! The embedded engine in tests that otherwise use a stub: adopted after its controller was killed, killed and stopped itself, and
//! streaming while another controller takes over.

use nix::sys::signal::Signal;
use serde_json::json;
use support::family::{Family, asks, kill, shown, told};
use support::service::{Pool, wait_for};

const CHAT: &str = "/v1/chat/completions";

/// A demo model that computes several choices at a time, which is slow.
fn tiny() -> [(String, String); 1] {
    let folder = support::root().join("demo/models/tiny-chat");
    let text = format!(
        "engine_config: {{model_id: tiny, type: CandleEngine, model_path: {folder:?}, engine_kwargs: {{threads: 1, concurrency: 8}}}}\npool_config: {{keep_hot: 10m}}\n"
    );
    [("tiny.yaml".to_owned(), text)]
}

/// The service, after the model's first response.
fn ready(config: &str) -> Pool {
    let pool = Pool::that_adopts(&tiny(), config, "1m");
    assert_eq!(asks(&pool, "tiny").0, 200);
    pool
}

fn loads_and_answers(pool: &Pool) {
    // Administrators need not wait for the cool-down.
    let (status, response) = pool.admin("POST", "/llm/admin/load", &json!({"model": "tiny"}));
    assert_eq!(status, 200, "{response}");
    assert_eq!(asks(pool, "tiny").0, 200);
}

#[test]
fn after_a_killed_controller_the_next_one_adopts_the_embedded_engine() {
    let mut pool = ready("");
    let before = pool.engine_pids();
    pool.kill_and_restart();
    wait_for("the adoption", || shown(&pool, "tiny")["state"] == "ready");
    assert_eq!(pool.engine_pids(), before);
    assert_eq!(asks(&pool, "tiny").0, 200);
    assert_eq!(pool.engine_pids(), before, "nothing was started");
}

#[test]
fn a_killed_embedded_engine_is_found_and_reported() {
    let pool = ready("");
    let family = Family::new(&pool);
    kill(family.engines[0], Signal::SIGKILL);
    let why = told(&pool, "crash", 1).concat();
    assert!(why.contains("signal 9"), "{why}");
    wait_for("its end", || family.alive().is_empty());
    loads_and_answers(&pool);
}

#[test]
fn a_frozen_embedded_engine_is_found_by_its_silence() {
    let pool = ready("pool: {heartbeat: 4s, heartbeat_timeout: 4s, heartbeat_misses: 2}\n");
    let family = Family::new(&pool);
    kill(family.engines[0], Signal::SIGSTOP);
    let why = told(&pool, "crash", 1).concat();
    assert!(why.contains("answered no health probe for"), "{why}");
    wait_for("its end", || family.alive().is_empty());
    loads_and_answers(&pool);
}

#[test]
fn a_stream_of_the_embedded_engine_continues_while_another_controller_takes_over() {
    let mut pool = ready("");
    let before = pool.engine_pids();
    let body = json!({
        "model": "tiny", "stream": true, "n": 4, "max_tokens": 400, "ignore_eos": true,
        "messages": [{"role": "user", "content": "Go on"}],
    });
    let stream = pool.stream(CHAT, &body.to_string());
    wait_for("the first chunk", || {
        stream.text().contains("\"content\":\"")
    });
    assert!(
        !stream.text().contains("[DONE]"),
        "it is over before the takeover begins: write more max_tokens"
    );
    let mut old = pool.take_over();
    let text = stream.whole();
    assert!(text.trim_end().ends_with("data: [DONE]"), "{text}");
    assert!(!text.contains("\"error\""), "{text}");
    for index in 0..4 {
        assert!(text.contains(&format!("\"index\":{index}")), "{index}");
    }
    assert_eq!(asks(&pool, "tiny").0, 200);
    assert_eq!(pool.engine_pids(), before, "nothing was started");
    wait_for("the old process to end", || {
        old.try_wait().expect("its status").is_some()
    });
}

#[test]
fn an_endless_schema_is_refused_and_the_embedded_engine_keeps_serving() {
    let pool = ready("");
    let before = pool.engine_pids();
    let pattern = |nth: u8| {
        let letter = char::from(b'a' + nth);
        json!({"type": "string", "pattern": format!(".*{letter}.{{{}}}", nth + 5)})
    };
    let schema = json!({"allOf": (0..24).map(pattern).collect::<Vec<_>>()});
    let body = json!({
        "model": "tiny", "messages": [{"role": "user", "content": "Go on"}],
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}},
    });
    let (status, response) = pool.post(CHAT, &body.to_string());
    assert_eq!(status, 400, "{response}");
    assert!(response.contains("to compile"), "{response}");
    assert_eq!(asks(&pool, "tiny").0, 200);
    assert_eq!(pool.engine_pids(), before);
}
