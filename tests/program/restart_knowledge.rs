//! Knowledge about models that survives a restart: memory that proved too small (M1), and how often a model was used.

use std::time::Duration;

use serde_json::{Value, json};
use support::service::{Pool, wait_for};
use support::stub::stub_engine;

/// A model with the stub as engine, and weights of known size only.
fn stub(name: &str, weights: &str, flags: &[&str]) -> (String, String) {
    let extra: String = flags.iter().map(|flag| format!(", {flag:?}")).collect();
    let file = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  model_path: {weights:?}\n  listen: port\n  command: [{:?}, \"--port\", \"{{{{ port }}}}\"{extra}]\n",
        stub_engine().display().to_string()
    );
    (format!("{name}.yaml"), file)
}

fn weights() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("model.safetensors");
    std::fs::write(file, vec![0; 3 << 20]).expect("written");
    folder
}

fn chat(model: &str) -> String {
    json!({"model": model, "messages": [{"role": "user", "content": "x"}]}).to_string()
}

fn get(pool: &Pool, path: &str) -> Value {
    let (status, text, _) = pool.request("GET", path, "", Some(&pool.admin_key()));
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).expect("JSON")
}

fn model(pool: &Pool, name: &str) -> Value {
    get(pool, &format!("/llm/admin/models?model={name}"))["models"][0].clone()
}

#[test]
fn a_load_that_finds_too_little_memory_is_tried_again_with_more() {
    let words = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.";
    let folder = weights();
    let path = folder.path().display().to_string();
    let pool = Pool::with_models(&[stub("large", &path, &["--fail-load", words])], "");
    let (status, text) = pool.post("/v1/chat/completions", &chat("large"));
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("CUDA out of memory"), "{text}");
    let mut failed = Vec::new();
    wait_for("both loads in the history", || {
        let events = get(&pool, "/llm/admin/events?model=large&kind=load_failed");
        failed = events["events"].as_array().expect("events").clone();
        failed.len() >= 2
    });
    for event in &failed {
        let reason = event["reason"].as_str().unwrap_or_default();
        assert!(
            reason.contains("on each device from now on (M1)"),
            "{reason}"
        );
    }
    let shown = model(&pool, "large");
    let learned = shown["learned"][0]["bytes_per_device"].as_u64();
    assert!(
        learned > shown["estimated_bytes_per_device"].as_u64(),
        "{shown}"
    );
}

#[test]
fn a_load_that_never_becomes_ready_records_no_memory_or_load_time() {
    let folder = weights();
    let path = folder.path().display().to_string();
    let flags = ["--ready-after-ms", "600000", "--allocate-mib", "8"];
    let mut pool = Pool::with_models(&[stub("slow", &path, &flags)], "");
    let before = model(&pool, "slow");
    assert_eq!(before["needs"]["source"], "estimate", "{before}");
    let streamed =
        json!({"model": "slow", "messages": [{"role": "user", "content": "x"}], "stream": true});
    let _waits = pool.stream("/v1/chat/completions", &streamed.to_string());
    let mut loading = Value::Null;
    wait_for("the memory of the engine that loads", || {
        loading = model(&pool, "slow");
        loading["replicas"][0]["measured_bytes"].is_u64()
    });
    assert_eq!(loading["learned"], json!([]), "{loading}");
    pool.kill_and_restart();
    let after = model(&pool, "slow");
    for field in ["needs", "learned", "load_ms_expected"] {
        assert_eq!(after[field], before[field], "{field}: {after}");
    }
}

#[test]
fn the_last_use_of_a_model_survives_a_restart() {
    let folder = weights();
    let path = folder.path().display().to_string();
    let mut pool = Pool::with_models(&[stub("used", &path, &[]), stub("unused", &path, &[])], "");
    assert_eq!(pool.post("/v1/chat/completions", &chat("used")).0, 200);
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(20)), "it exits on its own");
    pool.kill_and_restart();
    assert!(model(&pool, "used")["last_used_at"].is_string());
    assert_eq!(model(&pool, "unused")["last_used_at"], Value::Null);
}
