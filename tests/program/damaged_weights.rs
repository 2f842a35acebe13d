//! Damaged weights on this machine: administrators see the damage, nothing is evicted for a load that would fail, and repaired
//! weights are loaded.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/models/tiny-chat");
const WEIGHTS: &str = "model.safetensors";

/// A copy of the demo model that uses most of the device.
fn model(folder: &Path, name: &str, priority: u32) -> (String, String) {
    let copy = folder.join(name);
    fs::create_dir(&copy).expect("a folder");
    for file in fs::read_dir(TINY).expect("the demo's model").flatten() {
        fs::copy(file.path(), copy.join(file.file_name())).expect("copied");
    }
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CandleEngine\n  model_path: {copy:?}\n  max_total_tokens: 64\npool_config: {{memory_gib: 12, priority: {priority}}}\n"
    );
    (format!("{name}.yaml"), text)
}

fn chat(model: &str) -> String {
    json!({"model": model, "messages": [{"role": "user", "content": "x"}], "max_tokens": 2})
        .to_string()
}

fn shown(pool: &Pool, model: &str) -> Value {
    let path = format!("/llm/admin/models?model={model}");
    let (status, response) = pool.admin("GET", &path, &Value::Null);
    assert_eq!(status, 200, "{response}");
    response["models"][0].clone()
}

fn cut(weights: &Path) {
    let opened = fs::File::options().write(true).open(weights);
    opened.expect("weights").set_len(100_000).expect("cut off");
}

/// Loads a model by an administrator's order, and returns status and response.
fn load(pool: &Pool, model: &str) -> (u16, Value) {
    pool.admin("POST", "/llm/admin/load", &json!({"model": model}))
}

fn evictions(pool: &Pool) -> usize {
    let path = "/llm/admin/events?kind=evict";
    let (status, response) = pool.admin("GET", path, &Value::Null);
    assert_eq!(status, 200, "{response}");
    response["events"].as_array().expect("events").len()
}

#[test]
fn damaged_weights_are_reported_and_cause_no_eviction_until_repaired() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = [
        model(folder.path(), "whole", 0),
        model(folder.path(), "cut", 1),
    ];
    let weights = folder.path().join("cut").join(WEIGHTS);
    cut(&weights);
    let pool = Pool::with_models(&files, "");
    assert_eq!(pool.post("/v1/chat/completions", &chat("whole")).0, 200);

    let (status, text) = pool.post("/v1/chat/completions", &chat("cut"));
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("its weights are damaged"), "{text}");
    assert!(text.contains("bytes are missing"), "{text}");
    assert_eq!(shown(&pool, "whole")["state"], "ready");
    assert_eq!(evictions(&pool), 0);

    let (status, response) = pool.admin("POST", "/llm/admin/reload", &Value::Null);
    assert_eq!(status, 200, "{response}");
    let (status, plan) = pool.admin("POST", "/llm/admin/plan", &json!({"model": "cut"}));
    assert_eq!(status, 200, "{plan}");
    assert_eq!(plan["feasible"], false, "{plan}");
    for place in [
        &response["warnings"],
        &plan,
        &shown(&pool, "cut")["warnings"],
    ] {
        let text = place.to_string();
        assert!(text.contains("its weights are damaged"), "{text}");
    }

    fs::copy(Path::new(TINY).join(WEIGHTS), &weights).expect("mended");
    let (status, response) = load(&pool, "cut");
    assert_eq!(status, 200, "{response}");
    assert_eq!(pool.post("/v1/chat/completions", &chat("cut")).0, 200);
    assert_eq!(evictions(&pool), 1);
    assert!(shown(&pool, "cut").get("warnings").is_none());
}

#[test]
fn weights_damaged_after_the_start_cause_a_single_eviction() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = [
        model(folder.path(), "whole", 0),
        model(folder.path(), "later", 1),
    ];
    let pool = Pool::with_models(&files, "");
    assert_eq!(pool.post("/v1/chat/completions", &chat("whole")).0, 200);
    assert!(shown(&pool, "later").get("warnings").is_none());

    cut(&folder.path().join("later").join(WEIGHTS));
    let (status, response) = load(&pool, "later");
    assert_ne!(status, 200, "{response}");
    wait_for("the damage to be seen", || {
        let warnings = shown(&pool, "later")["warnings"].to_string();
        warnings.contains("its weights are damaged")
    });
    wait_for("the eviction", || evictions(&pool) == 1);

    assert_eq!(pool.post("/v1/chat/completions", &chat("whole")).0, 200);
    let (status, response) = load(&pool, "later");
    assert_ne!(status, 200, "{response}");
    assert!(response.to_string().contains("damaged"), "{response}");
    assert_eq!(shown(&pool, "whole")["state"], "ready");
    assert_eq!(evictions(&pool), 1);
}
