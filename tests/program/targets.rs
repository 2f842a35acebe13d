//! Targets for the first token, per priority: `pool.targets` in `/metrics`, the report and `check`, and after a reload.

use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

use crate::permissions::admin;

const TARGETS: &str = "pool: {targets: {0: 10m, 1: 1ms}}\n";

fn model(name: &str, pool: &str) -> (String, String) {
    let flags = ["--model", name, "--tokens", "2"];
    support::stub::model(name, &flags, pool)
}

fn chat(pool: &Pool, model: &str, stream: bool) -> u16 {
    let body = json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": "Hello"}]});
    pool.post("/v1/chat/completions", &body.to_string()).0
}

fn counted(pool: &Pool, model: &str, result: &str) -> Option<f64> {
    let (status, text, _) = pool.request("GET", "/metrics", "", None);
    assert_eq!(status, 200, "{text}");
    let series =
        format!("model_pool_target_requests_total{{model=\"{model}\",result=\"{result}\"}} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&series))?;
    value.parse().ok()
}

#[test]
fn metrics_and_the_report_count_requests_by_the_target_of_their_priority() {
    let models = [
        model("patient", "memory_gib: 10"),
        model("urgent", "memory_gib: 10, priority: 1"),
        model("free", "memory_gib: 1, priority: 2"),
    ];
    let mut pool = Pool::with_models(&models[..2], TARGETS);
    // No load takes less than a millisecond.
    assert_eq!(chat(&pool, "patient", false), 200);
    assert_eq!(chat(&pool, "patient", true), 200);
    assert_eq!(chat(&pool, "urgent", false), 200);
    assert_eq!(counted(&pool, "patient", "met"), Some(2.0));
    assert_eq!(counted(&pool, "patient", "missed"), Some(0.0));
    assert_eq!(counted(&pool, "urgent", "met"), Some(0.0));
    assert_eq!(counted(&pool, "urgent", "missed"), Some(1.0));

    // A target applies to requests after its reload; a model whose priority has none is not counted.
    let file = pool.folder().join("config.yaml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("1: 1ms", "1: 10m")).unwrap();
    let (name, text) = &models[2];
    std::fs::write(pool.models().join(name), text).unwrap();
    let (status, reloaded) = admin(&pool, &pool.admin_key(), "POST", "/reload", &Value::Null);
    assert_eq!(status, 200, "{reloaded}");
    assert_eq!(chat(&pool, "urgent", true), 200);
    assert_eq!(counted(&pool, "urgent", "met"), Some(1.0));
    wait_for("the model without a target", || {
        chat(&pool, "free", false) == 200
    });
    assert_eq!(counted(&pool, "free", "met"), None);

    // The store has the counts of a minute when it ends, and at the end.
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(60)));
    pool.restart();
    let (status, report) = admin(
        &pool,
        &pool.admin_key(),
        "GET",
        "/report?from=1h",
        &Value::Null,
    );
    assert_eq!(status, 200, "{report}");
    let counts = |of: &Value| [of["in_time"].clone(), of["late"].clone()];
    let of = |name: &str| {
        let mut models = report["models"].as_array().unwrap().iter();
        models.find(|model| model["model"] == name).map(counts)
    };
    assert_eq!(of("patient"), Some([json!(2), json!(0)]), "{report}");
    assert_eq!(of("urgent"), Some([json!(1), json!(1)]), "{report}");
    assert_eq!(of("free"), Some([json!(0), json!(0)]), "{report}");
    assert_eq!(counts(&report["total"]), [json!(3), json!(1)], "{report}");
}

#[test]
fn a_request_that_is_refused_after_waiting_misses_its_target() {
    let flags = ["--model", "loads", "--ready-after-ms", "60000"];
    let models = [support::stub::model(
        "loads",
        &flags,
        "memory_gib: 1, queue_timeout: 1s",
    )];
    let pool = Pool::with_models(&models, TARGETS);
    assert_eq!(chat(&pool, "loads", false), 503);
    assert_eq!(counted(&pool, "loads", "missed"), Some(1.0));
    // A stream has begun before the refusal, which is its last event.
    assert_eq!(chat(&pool, "loads", true), 200);
    assert_eq!(counted(&pool, "loads", "missed"), Some(2.0));
}

#[test]
fn check_warns_of_a_target_for_a_priority_without_models() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    let (name, text) = model("patient", "memory_gib: 10");
    std::fs::create_dir(folder.path().join("models")).unwrap();
    write(&format!("models/{name}"), &text);
    write(
        "config.yaml",
        "pool: {targets: {0: 30s, 7: 10s}}\ncatalog: {models_dir: models}\ninventory: {provider: fixed, devices: [{name: gpu0, memory: 24GiB}]}\n",
    );
    let output = Command::new(env!("CARGO_BIN_EXE_model-pool"))
        .args(["check", "--config", "config.yaml"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    let warning = "pool.targets.7: no model has priority 7, so the target has no effect";
    assert!(out.contains(warning), "{out}");
    assert!(!out.contains("pool.targets.0:"), "{out}");
}
