//! vLLM's double with the real program on fake GPUs: loads, responses, stages, failures, and an engine that is not installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use super::assert_has;
use support::double::vllm_double;
use support::machine::{GIB, Machine};
use support::service::{Pool, wait_for};

const H100: &str = "NVIDIA H100 80GB HBM3";

/// A model of the double, with keys of `engine_config` and `pool_config` as inline YAML, and variables.
fn model(machine: &Machine, name: &str, engine: &str, pool: &str, env: &str) -> (String, String) {
    let state = machine.state_file().display().to_string();
    let program = vllm_double().display().to_string();
    let file = format!(
        "engine_config:\n  model_id: {name}\n  type: VLLMEngine\n  hf_model_id: org/{name}\n  fetch: engine\n  program: {program:?}\n  {engine}\n  env: {{MODEL_POOL_FAKE_NVML: {state:?}, {env}}}\npool_config: {{{pool}}}\n"
    );
    (format!("{name}.yaml"), file)
}

fn ask(pool: &Pool, model: &str, more: Value) -> (u16, String) {
    let mut body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]});
    for (key, value) in more.as_object().expect("keys") {
        body[key] = value.clone();
    }
    pool.post("/v1/chat/completions", &body.to_string())
}

#[test]
fn a_model_is_loaded_with_the_share_of_the_gpu_that_was_reserved() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(2, H100, 80 * GIB);
    let files = [
        model(
            &machine,
            "first",
            "max_total_tokens: 4096",
            "memory_gib: 40, aliases: [prime]",
            "VLLM_DOUBLE_LOAD_MS: '50'",
        ),
        model(
            &machine,
            "wide",
            "listen: socket",
            "memory_gib: 120, gpus_per_replica: 2, priority: 1",
            "VLLM_DOUBLE_LOAD_MS: '50'",
        ),
    ];
    let pool = Pool::on_gpus(&files, &machine.library(), "");
    let (status, text) = ask(&pool, "first", json!({}));
    assert_eq!(status, 200, "{text}");
    assert_has(&text, &["Hello from vLLM and goodbye"]);
    let (status, text) = ask(&pool, "prime", json!({}));
    assert_eq!(status, 200, "by its alias: {text}");
    let held = machine.used(0) + machine.used(1);
    assert!(
        held > 39 * GIB && held <= 40 * GIB,
        "{held} of {}",
        40 * GIB
    );
    // It needs both GPUs, and the first model has the lower priority.
    let (status, text) = ask(
        &pool,
        "wide",
        json!({"stream": true, "stream_options": {"include_usage": true}}),
    );
    assert_eq!(status, 200, "{text}");
    assert_has(&text, &["Hello", "goodbye", "[DONE]"]);
    for gpu in 0..2 {
        let held = machine.used(gpu);
        assert!(held > 59 * GIB && held <= 60 * GIB, "{held} on GPU {gpu}");
    }
}

#[test]
fn the_stages_of_a_load_are_read_from_its_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(1, H100, 80 * GIB);
    let files = [model(
        &machine,
        "slow",
        "max_total_tokens: 4096",
        "memory_gib: 40",
        "VLLM_DOUBLE_LOAD_MS: '2000'",
    )];
    let pool = Pool::on_gpus(&files, &machine.library(), "");
    let (status, response) = pool.admin(
        "POST",
        "/llm/admin/load",
        &json!({"model": "slow", "wait": false}),
    );
    assert!(status < 300, "{response}");
    let mut seen = Vec::new();
    wait_for("the graphs to be captured", || {
        let (_, response) = pool.admin("GET", "/llm/admin/models?model=slow", &Value::Null);
        seen.push(response.to_string());
        seen.iter().any(|text| text.contains("capturing graphs"))
    });
    assert!(
        seen.iter().any(|text| text.contains("reading weights")),
        "{seen:?}"
    );
}

#[test]
fn a_failed_load_is_reported_with_advice() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(1, H100, 80 * GIB);
    let fails = "VLLM_DOUBLE_LOAD_MS: '20', VLLM_DOUBLE_FAIL: \"huggingface_hub.errors.GatedRepoError: 401 Client Error.\"";
    let files = [
        model(
            &machine,
            "gated",
            "max_total_tokens: 4096",
            "memory_gib: 40",
            fails,
        ),
        model(
            &machine,
            "tight",
            "max_total_tokens: 4096",
            "memory_gib: 9",
            "VLLM_DOUBLE_LOAD_MS: '20'",
        ),
    ];
    let pool = Pool::on_gpus(&files, &machine.library(), "");
    let (status, text) = ask(&pool, "gated", json!({}));
    assert!(status >= 500, "{status} {text}");
    assert_has(&text, &["GatedRepoError", "HF_TOKEN"]);
    let (status, text) = ask(&pool, "tight", json!({}));
    assert!(status >= 500, "{status} {text}");
    assert_has(
        &text,
        &[
            "No available memory for the cache blocks",
            "max_total_tokens",
        ],
    );
    assert_eq!(machine.used(0), 0);
}

#[test]
fn an_engine_that_is_not_installed_says_how_to_install_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(1, H100, 80 * GIB);
    let file = "engine_config: {model_id: none, type: SGLangEngine, hf_model_id: org/none, fetch: engine, program: /nowhere/python3}\npool_config: {memory_gib: 40}\n";
    let files = [("none.yaml".to_owned(), file.to_owned())];
    let pool = Pool::on_gpus(&files, &machine.library(), "");
    let (status, text) = ask(&pool, "none", json!({}));
    assert!(status >= 500, "{status} {text}");
    assert_has(
        &text,
        &[
            "/nowhere/python3",
            "pip install sglang",
            "engine_config.program",
        ],
    );
}

/// A stand-in for docker: `run` executes the words after the image as another process's child; `inspect` prints its process id;
/// `rm` ends it after a delay and records the name.
fn docker(folder: &Path, rm_seconds: u32) -> String {
    let path = folder.join("docker");
    let notes = folder.join("removed");
    let script = format!(
        "#!/bin/sh\ncd {home}\ncase \"$1\" in\nrm) kill -9 $(cat pid); touch removing; sleep {rm_seconds}; echo \"$3\" >> {notes}; exit 0;;\ninspect) cat pid; exit;;\nesac\nwhile [ \"$1\" != image ]; do shift; done\nshift\nsetsid sh -c 'echo $$ > pid; exec \"$@\"' box \"$@\" &\nwait\n",
        home = folder.display(),
        notes = notes.display()
    );
    fs::write(&path, script).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
    path.display().to_string()
}

/// A ready model in a container, and the file with the names of removed containers.
fn boxed(folder: &Path) -> (Pool, std::path::PathBuf) {
    boxed_with(folder, 0)
}

fn boxed_with(folder: &Path, rm_seconds: u32) -> (Pool, std::path::PathBuf) {
    let machine = Machine::new(folder).gpus(1, H100, 80 * GIB);
    let docker = docker(folder, rm_seconds);
    let prefix = format!(
        "command_prefix: [{docker:?}, run, --name, \"{{{{ container }}}}\", \"{{{{ env }}}}\", image]"
    );
    let files = [model(
        &machine,
        "boxed",
        &prefix,
        "memory_gib: 40",
        "VLLM_DOUBLE_LOAD_MS: '20'",
    )];
    let pool = Pool::on_gpus(&files, &machine.library(), "");
    let (status, text) = ask(&pool, "boxed", json!({}));
    assert_eq!(status, 200, "{text}");
    let removed = folder.join("removed");
    assert!(!removed.exists());
    (pool, removed)
}

#[test]
fn the_memory_of_a_container_is_attributed_to_its_replica_only() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pool, _) = boxed(folder.path());
    wait_for("its memory to be known for its own", || {
        let (_, response) = pool.admin("GET", "/llm/admin/devices", &Value::Null);
        let device = &response["devices"][0];
        let used = device["used_bytes"].as_u64().unwrap_or_default();
        used > 30 * GIB && device["foreign_bytes"] == 0
    });
}

#[test]
fn a_container_is_removed_even_if_the_service_was_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mut pool, removed) = boxed(folder.path());
    pool.kill();
    wait_for("the container to be removed", || {
        fs::read_to_string(&removed).is_ok_and(|text| text.starts_with("model-pool-"))
    });
}

#[test]
fn a_container_is_removed_by_its_name_when_the_replica_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pool, removed) = boxed(folder.path());
    let (status, response) = pool.admin("POST", "/llm/admin/unload", &json!({"model": "boxed"}));
    assert_eq!(status, 200, "{response}");
    wait_for("the container to be removed", || {
        fs::read_to_string(&removed).is_ok_and(|text| text.starts_with("model-pool-"))
    });
}

#[test]
fn a_crashed_engine_gets_no_requests_while_its_container_is_removed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pool, removed) = boxed_with(folder.path(), 4);
    let pid = fs::read_to_string(folder.path().join("pid")).expect("its process");
    let killed = std::process::Command::new("kill")
        .args(["-9", pid.trim()])
        .status();
    assert!(killed.expect("kill").success());
    wait_for("the container to be on its way out", || {
        folder.path().join("removing").exists()
    });
    let (status, text) = ask(&pool, "boxed", json!({}));
    assert!(removed.exists(), "it waited for the end of it: {text}");
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("cooling_down"), "{text}");
    assert!(
        text.contains("the engine crashed after it was ready"),
        "{text}"
    );
}

#[test]
fn engine_load_metrics_have_the_same_name_for_all_engines() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(1, H100, 80 * GIB);
    let files = [model(
        &machine,
        "told",
        "max_total_tokens: 4096",
        "memory_gib: 40",
        "VLLM_DOUBLE_LOAD_MS: '20'",
    )];
    let pool = Pool::on_gpus(&files, &machine.library(), "");
    let (status, text) = ask(&pool, "told", json!({}));
    assert_eq!(status, 200, "{text}");
    wait_for("its numbers to be read", || {
        let (_, text, _) = pool.request("GET", "/metrics", "", None);
        text.contains(r#"model_pool_engine_requests{model="told",replica="r1",state="waiting"} 0"#)
            && text.contains(r#"model_pool_engine_cache_used_ratio{model="told",replica="r1"} 0"#)
    });
    let (_, shown) = pool.admin("GET", "/llm/admin/models?model=told", &Value::Null);
    assert_eq!(
        shown["models"][0]["replicas"][0]["engine_waiting"], 0,
        "{shown}"
    );
}

#[test]
fn a_model_with_sleep_enabled_is_served_over_a_unix_socket() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(1, H100, 80 * GIB);
    let files = [model(
        &machine,
        "sleeper",
        "max_total_tokens: 4096",
        "memory_gib: 40, sleep: weights",
        "VLLM_DOUBLE_LOAD_MS: '20'",
    )];
    let pool = Pool::on_gpus(&files, &machine.library(), "");
    let (status, text) = ask(&pool, "sleeper", json!({}));
    assert_eq!(status, 200, "{text}");
    let line = "Starting vLLM server on unix domain socket";
    pool.wait_for_engine_log("sleeper", &[line]);
}

#[test]
fn an_adapter_is_requested_by_its_own_name_at_the_replica_of_its_base() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(1, H100, 80 * GIB);
    let adapters = "lora_adapters: [{name: \"base:polite:7\", path: /srv/polite}]";
    let files = [model(
        &machine,
        "base",
        adapters,
        "memory_gib: 20",
        "X: '1'",
    )];
    let pool = Pool::on_gpus(&files, &machine.library(), "");
    for name in ["base", "base:polite:7"] {
        let (status, text) = ask(&pool, name, json!({}));
        assert_eq!(status, 200, "{text}");
        let response: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(response["model"], name);
    }
    let (_, all) = pool.admin("GET", "/llm/admin/models", &Value::Null);
    assert_eq!(all["models"].as_array().expect("models").len(), 1);
    assert_eq!(
        all["models"][0]["replicas"]
            .as_array()
            .expect("replicas")
            .len(),
        1
    );
    let (_, text, _) = pool.request("GET", "/v1/models", "", None);
    let listed: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(listed["data"][1]["id"], "base:polite:7");
    assert_eq!(listed["data"][1]["parent"], "base");
    let (status, text) = ask(&pool, "base:other:1", json!({}));
    assert_eq!(status, 404, "{text}");
}
