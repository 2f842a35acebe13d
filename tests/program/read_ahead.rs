//! Weights are read from the disk while the victims of the load serve their last requests, with the real program: the load then
//! starts with its weights in memory instead of reading them after the drain.

use std::path::Path;

use support::double::vllm_double;
use support::family::shown;
use support::folder::write_tiny_weights;
use support::net::chat;
use support::service::{Pool, wait_for};

const CONFIG: &str = "inventory: {provider: fixed, headroom: 0%, devices: [{name: gpu0, memory: 16GiB}]}\nlog: {level: debug, format: text}\n";
/// A request of `slow` lasts longer than the test.
const TOKENS: u32 = 600;
const TOKEN_MS: u32 = 100;

/// A model with weights of 1 MiB that uses the entire device.
fn model(folder: &Path, name: &str, priority: u32) -> (String, String) {
    let weights = folder.join(name);
    std::fs::create_dir(&weights).expect("a folder");
    write_tiny_weights(&weights);
    let program = vllm_double().display().to_string();
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: VLLMEngine\n  model_path: {:?}\n  program: {program:?}\n  env: {{VLLM_DOUBLE_TOKENS: '{TOKENS}', VLLM_DOUBLE_TOKEN_MS: '{TOKEN_MS}'}}\npool_config: {{memory_gib: 12, priority: {priority}}}\n",
        weights.display().to_string()
    );
    (format!("{name}.yaml"), text)
}

/// The log line at the start of reading a model's weights.
fn reads(pool: &Pool, model: &str) -> bool {
    let log = pool.log();
    let mut lines = log
        .lines()
        .filter(|line| line.contains("weights are read ahead"));
    lines.any(|line| line.contains(model))
}

#[test]
fn the_weights_of_a_load_are_read_while_its_victim_still_streams() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = [
        model(folder.path(), "slow", 0),
        model(folder.path(), "urgent", 1),
    ];
    let pool = Pool::with_devices(&files, CONFIG);
    let streamed = pool.stream("/v1/chat/completions", &chat("slow", true));
    wait_for("the first token", || streamed.text().contains("content"));
    assert!(!reads(&pool, "urgent"), "no request waits for it yet");
    let waiting = pool.stream("/v1/chat/completions", &chat("urgent", true));
    wait_for("its weights to be read", || reads(&pool, "urgent"));
    assert!(
        !streamed.text().contains("[DONE]") && !waiting.text().contains("content"),
        "they are read while the victim serves: {}",
        waiting.text()
    );
}

#[test]
fn no_weights_are_read_ahead_with_read_ahead_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = [
        model(folder.path(), "slow", 0),
        model(folder.path(), "urgent", 1),
    ];
    let config = format!("{CONFIG}parking: {{read_ahead: false}}\n");
    let pool = Pool::with_devices(&files, &config);
    let streamed = pool.stream("/v1/chat/completions", &chat("slow", true));
    wait_for("the first token", || streamed.text().contains("content"));
    let waiting = pool.stream("/v1/chat/completions", &chat("urgent", true));
    wait_for("the victim to be drained", || {
        shown(&pool, "slow")["state"] == "draining"
    });
    assert!(!reads(&pool, "urgent"));
    // The victim leaves at the end of its stream.
    drop(streamed);
    wait_for("the load", || waiting.text().contains("content"));
    assert!(!reads(&pool, "urgent"), "{}", pool.log());
}
