//! Unknown sizes are looked up on the hub before a download; a reload retries models that failed because of their files; a load
//! with another number of devices is refused.

use std::path::Path;

use serde_json::{Value, json};
use support::hub::Hub;
use support::net::{chat, stub};
use support::service::{Pool, wait_for};
use support::stub::stub_engine;

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/models/tiny-chat");

/// The model as administrators see it.
fn view(pool: &Pool, name: &str) -> Value {
    let (_, all) = pool.admin_text("GET", "/llm/admin/models", "");
    let models = all["models"].as_array().unwrap().clone();
    models
        .into_iter()
        .find(|model| model["model"] == name)
        .unwrap()
}

#[test]
fn the_size_of_a_model_is_taken_from_the_hub_before_it_is_downloaded() {
    let hub = Hub::start();
    // The estimate from its name exceeds every device.
    hub.add_folder("lab/tiny-70b", Path::new(TINY));
    let cache = tempfile::tempdir().unwrap();
    let config = format!(
        "sources: {{cache_dir: {:?}, hub: {:?}, keep_free: 1MiB}}\ninventory: {{provider: fixed, devices: [{{name: gpu0, memory: 24GiB}}]}}\n",
        cache.path(),
        hub.url()
    );
    let file = "engine_config: {model_id: lab/tiny-70b, type: VLLMEngine, max_total_tokens: 64}\n";
    let files = [("m.yaml".to_owned(), file.to_owned())];
    let pool = Pool::with_devices(&files, &config);
    let fits = || {
        let needed = view(&pool, "lab/tiny-70b")["needs"]["bytes_per_device"].as_u64();
        needed.expect("a figure") < 24 << 30
    };
    let asked_for = |end: &str| {
        hub.asked()
            .iter()
            .any(|request| request.path.ends_with(end))
    };
    wait_for("its configuration to be read", || asked_for("config.json"));
    wait_for("the hub's own figure", fits);
    assert!(!asked_for(".safetensors"), "no weights were fetched for it");
    let asked = hub.listed();
    assert_eq!(pool.admin_text("POST", "/llm/admin/reload", "").0, 200);
    assert!(fits());
    assert_eq!(hub.listed(), asked, "what it said is kept");
}

#[test]
fn a_reload_retries_a_failed_model_only_if_its_files_have_changed() {
    let weights = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(TINY).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), weights.path().join(file.file_name())).unwrap();
    }
    let tokenizer = weights.path().join("tokenizer.json");
    std::fs::write(&tokenizer, "{").unwrap();
    let file = format!(
        "engine_config: {{model_id: tiny, type: CandleEngine, model_path: {:?}, max_total_tokens: 64}}\n",
        weights.path()
    );
    let pool = Pool::with_models(&[("tiny.yaml".to_owned(), file)], "");
    let chat =
        json!({"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1})
            .to_string();
    let state = || view(&pool, "tiny")["state"].as_str().unwrap().to_owned();
    wait_for("the load to fail", || {
        let (status, text) = pool.post("/v1/chat/completions", &chat);
        assert_ne!(status, 200, "{text}");
        state() == "cooling"
    });
    // Nothing has changed, so the next attempt must wait.
    assert_eq!(pool.admin_text("POST", "/llm/admin/reload", "").0, 200);
    assert_eq!(state(), "cooling");
    std::fs::copy(Path::new(TINY).join("tokenizer.json"), &tokenizer).unwrap();
    assert_eq!(pool.admin_text("POST", "/llm/admin/reload", "").0, 200);
    let (status, text) = pool.post("/v1/chat/completions", &chat);
    assert_eq!(status, 200, "{text}");
}

#[test]
fn a_load_with_a_different_number_of_devices_is_refused_while_the_model_is_loaded() {
    let program = stub_engine().display().to_string();
    let file = format!(
        "engine_config:\n  model_id: m\n  type: CommandEngine\n  listen: port\n  command: [{program:?}, \"--port\", \"{{{{ port }}}}\"]\npool_config: {{memory_gib: 1}}\n"
    );
    let config = "inventory: {provider: fixed, devices: [{name: a, memory: 24GiB, type: NVIDIA A10G}, {name: b, memory: 24GiB, type: NVIDIA A10G}]}\n";
    let pool = Pool::with_devices(&[("m.yaml".to_owned(), file)], config);
    let load = |gpus: u32| {
        let body = json!({"model": "m", "gpus": gpus, "wait": true}).to_string();
        pool.admin_text("POST", "/llm/admin/load", &body)
    };
    let (status, response) = load(1);
    assert_eq!(status, 200, "{response}");
    let (status, response) = load(2);
    let message = response["error"]["message"].as_str().unwrap_or_default();
    assert_eq!(
        (status, &response["error"]["code"]),
        (409, &json!("loaded_on_other_devices")),
        "{response}"
    );
    assert!(
        message.contains("2 devices per replica") && message.contains("loaded with 1"),
        "{message}"
    );
    assert_eq!(load(1).0, 200, "the same number is what it has");
    let body = json!({"model": "m"}).to_string();
    assert_eq!(pool.admin_text("POST", "/llm/admin/unload", &body).0, 200);
    wait_for("the model to be gone", || load(2).0 == 200);
    let (_, devices) = pool.admin_text("GET", "/llm/admin/devices", "");
    let owners = devices["devices"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|device| device["owners"][0]["model"] == "m");
    assert_eq!(owners.count(), 2, "{devices}");
    assert_eq!(devices["devices"][0]["name"], "NVIDIA A10G", "{devices}");
}

#[test]
fn a_model_that_may_use_no_device_is_refused_with_the_key_to_change() {
    let mut model = stub("nowhere", &[]);
    model.1 = model.1.replace("0.5}", "0.5, devices: {kinds: [H100]}}");
    let config =
        "inventory: {provider: fixed, devices: [{name: gpu0, memory: 8GiB, type: NVIDIA A10G}]}\n";
    let pool = Pool::with_devices(&[model], config);
    let words = "may use none of the pool's devices, by pool_config.devices in its model file (M6)";
    let (status, refused) = pool.admin_text("POST", "/llm/admin/plan", r#"{"model": "nowhere"}"#);
    assert!(refused.to_string().contains(words), "{status} {refused}");
    let (status, text, _) = pool.request(
        "POST",
        "/v1/chat/completions",
        &chat("nowhere", false),
        None,
    );
    assert_eq!(status, 503, "{text}");
    assert!(text.contains(words) && !text.contains("0 B"), "{text}");
}
