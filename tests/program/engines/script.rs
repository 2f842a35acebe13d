//! Runs the script of requests for the real vLLM (`tests/outside/vllm.rs`) with its double, and compares the double's behaviour
//! after its core is killed.

use serde_json::{Value, json};

use support::double::vllm_double;
use support::service::{Pool, wait_for};
use support::vllm_script;

/// A model of the double in host memory, with a folder that has a template.
fn model(folder: &std::path::Path, name: &str, env: &str) -> (String, String) {
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: VLLMEngine\n  model_path: {:?}\n  program: {:?}\n  max_total_tokens: 512\n  env: {{VLLM_DOUBLE_LOAD_MS: '50', {env}}}\npool_config: {{memory_gib: 4, min_resident: 0s}}\n",
        folder.display().to_string(),
        vllm_double().display().to_string()
    );
    (format!("{name}.yaml"), text)
}

fn with_template(template: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let demo = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("demo/models/tiny-guide");
    for entry in std::fs::read_dir(demo).expect("the demo model").flatten() {
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).expect("copied");
    }
    std::fs::write(folder.path().join("chat_template.jinja"), template).expect("written");
    folder
}

const HERMES: &str = "{{ tools }}<tool_call>{\"name\": n, \"arguments\": a}</tool_call>";

fn pool(files: &[(String, String)]) -> Pool {
    Pool::with_devices(
        files,
        "inventory: {provider: host, host_memory: 9GiB, headroom: 0%}\n",
    )
}

#[test]
fn the_double_passes_the_script_of_the_real_engine() {
    let folder = with_template(HERMES);
    let pool = pool(&[model(folder.path(), "double", "")]);
    vllm_script::run(&pool, "double");
}

#[test]
fn without_tool_support_in_the_template_only_a_required_call_is_refused() {
    let folder = with_template("{{ messages }}");
    let pool = pool(&[model(folder.path(), "double", "")]);
    let body = json!({
        "model": "double", "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    });
    let mut demanded = body.clone();
    demanded["tool_choice"] = json!("required");
    let send = |body: &Value| pool.request("POST", "/v1/chat/completions", &body.to_string(), None);
    let (status, text, head) = send(&body);
    assert_eq!(status, 200, "{text}");
    assert!(head.contains("x-model-pool-ignored: tools"), "{head}");
    let (status, text, _) = send(&demanded);
    assert_eq!(status, 400, "{text}");
}

#[test]
fn a_call_the_parser_does_not_recognize_stays_text() {
    let folder = with_template(HERMES);
    let (name, text) = model(folder.path(), "double", "");
    let kwargs = "  engine_kwargs: {enable_auto_tool_choice: true, tool_call_parser: mistral}\n";
    let text = text.replace("pool_config:", &format!("{kwargs}pool_config:"));
    let pool = pool(&[(name, text)]);
    let written = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
    let body = json!({
        "model": "double", "messages": [{"role": "user", "content": "Hi"}],
        "structured_outputs": {"choice": [written]},
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    });
    let (status, text) = pool.post("/v1/chat/completions", &body.to_string());
    assert_eq!(status, 200, "{text}");
    let response: Value = serde_json::from_str(&text).expect("JSON");
    let message = &response["choices"][0]["message"];
    assert_eq!(message["content"], written, "{text}");
    assert!(message["tool_calls"].is_null(), "{text}");
}

#[test]
fn a_request_whose_engine_dies_before_its_first_token_is_retried_on_another_replica() {
    let folder = with_template(HERMES);
    let died = tempfile::tempdir().expect("a folder");
    let mark = died.path().join("died").display().to_string();
    // The double with the first request ends. Its marker file keeps the other double alive.
    let (name, text) = model(
        folder.path(),
        "double",
        &format!("VLLM_DOUBLE_DIE_ONCE: {mark:?}"),
    );
    let text = format!(
        "{text}deployment_config: {{autoscaling_config: {{min_replicas: 2, max_replicas: 2}}}}\n"
    );
    let pool = pool(&[(name, text)]);
    let key = pool.admin_key();
    let load = json!({"model": "double"}).to_string();
    let (status, text, _) = pool.request("POST", "/llm/admin/load", &load, Some(&key));
    assert_eq!(status, 200, "{text}");
    wait_for("both to be ready", || {
        let (_, text, _) = pool.request(
            "GET",
            "/llm/admin/models?model=double",
            "",
            Some(&pool.admin_key()),
        );
        let shown: Value = serde_json::from_str(&text).expect("JSON");
        let replicas = shown["models"][0]["replicas"].as_array();
        let ready = |all: &Vec<Value>| {
            all.iter()
                .filter(|replica| replica["state"] == "ready")
                .count()
        };
        replicas.map_or(0, ready) == 2
    });
    let body = json!({"model": "double", "messages": [{"role": "user", "content": "Hi"}]});
    let (status, text) = pool.post("/v1/chat/completions", &body.to_string());
    assert_eq!(status, 200, "{text}\n{}", pool.log());
    assert!(text.contains("Hello"), "{text}");
    assert!(died.path().join("died").exists(), "one of them ended");
    pool.wait_for_log("crash double");
}

#[test]
fn without_another_replica_the_request_fails_with_the_reason_and_a_retry_time() {
    let folder = with_template(HERMES);
    let pool = pool(&[model(folder.path(), "double", "VLLM_DOUBLE_DIES: '1'")]);
    let body = json!({"model": "double", "messages": [{"role": "user", "content": "Hi"}]});
    let (status, text, head) =
        pool.request("POST", "/v1/chat/completions", &body.to_string(), None);
    assert_eq!(status, 503, "{text}");
    let error: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(error["error"]["code"], "engine_crashed", "{text}");
    assert!(text.contains("core is dead on purpose"), "{text}");
    assert!(head.contains("retry-after:"), "{head}");
    // Its last output is logged in one line with the replica's name.
    pool.wait_for_log("crash double (r1)");
    let log = pool.log();
    let crash = log.lines().find(|line| line.contains("crash double (r1)"));
    let crash = crash.unwrap_or_else(|| panic!("{log}"));
    assert!(crash.contains("core is dead on purpose"), "{crash}");
}

#[test]
fn a_stream_whose_engine_announces_its_end_is_cut_with_the_reason_and_without_done() {
    let folder = with_template(HERMES);
    let pool = pool(&[model(
        folder.path(),
        "double",
        "VLLM_DOUBLE_DIES_AFTER: '2'",
    )]);
    let body = json!({
        "model": "double", "stream": true, "messages": [{"role": "user", "content": "Hi"}],
    });
    let (status, text) = pool.post("/v1/chat/completions", &body.to_string());
    assert_eq!(status, 200, "{text}");
    assert!(text.contains("Hello"), "its first tokens came: {text}");
    assert!(text.contains("engine_crashed"), "{text}");
    assert!(text.contains("core is dead on purpose"), "{text}");
    assert!(!text.contains("See stack trace"), "{text}");
    assert!(!text.contains("[DONE]"), "{text}");
}
