//! The real llama-server and the embedded engine in one pool with a shared memory budget, with a tiny random model that the test
//! writes. `.ci/llama-server` builds the program; without it these tests report that they were skipped.

mod disconnects;
mod flags;
mod life;
mod requests;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use support::external_programs::skipped;
use support::service::{Pool, wait_for};

/// The program, if it has been built.
fn llama_server() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let named = std::env::var_os("LLAMA_SERVER").map(PathBuf::from);
    let path = named.unwrap_or_else(|| root.join("target/llama/bin/llama-server"));
    let there = path.is_file().then_some(path);
    if there.is_none() {
        skipped(
            "llama-server",
            "llama-server is missing. Build it with `.ci/llama-server`, or set LLAMA_SERVER, and run `cargo test --test outside llama_server::`",
        );
    }
    there
}

/// A model of llama-server with the weights in this file.
fn llama(program: &Path, name: &str, weights: &Path, pool: &str) -> (String, String) {
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: LlamaCppEngine\n  model_path: {:?}\n  program: {:?}\n  max_total_tokens: 256\npool_config: {{{pool}}}\n",
        weights.display().to_string(),
        program.display().to_string()
    );
    (format!("{name}.yaml"), text)
}

/// The only model of a test, with the full context of the file. Uses one thread: several threads wait for one another at each
/// token, which is slow on a busy machine.
fn only_model(program: &Path, weights: &Path, kwargs: &str) -> [(String, String); 1] {
    let (file, text) = llama(program, "real", weights, "memory_gib: 0.08, keep_hot: 1h");
    let kwargs = format!("max_total_tokens: 512\n  engine_kwargs: {{threads: 1, {kwargs}}}");
    [(file, text.replace("max_total_tokens: 256", &kwargs))]
}

/// The configuration of its pool, without probes of idle engines, which would count as requests.
const ONLY_MODEL: &str = "inventory: {provider: host, host_memory: 100MiB, headroom: 0%}\npool: {idle_probe: off, stall_after: 10s, first_token_after: 60s}\n";

/// A demo model on the embedded engine.
fn embedded(name: &str, pool: &str) -> (String, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("demo/models")
        .join(name);
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CandleEngine\n  model_path: {:?}\n  max_total_tokens: 512\npool_config: {{{pool}}}\n",
        folder.display().to_string()
    );
    (format!("{name}.yaml"), text)
}

/// A pool with this much host memory as its only device.
fn pool(files: &[(String, String)], mebibytes: u32) -> Pool {
    let config =
        format!("inventory: {{provider: host, host_memory: {mebibytes}MiB, headroom: 0%}}\n");
    Pool::with_devices(files, &config)
}

fn chat(model: &str, stream: bool, tokens: u32) -> String {
    json!({
        "model": model, "stream": stream, "max_tokens": tokens,
        "messages": [{"role": "user", "content": "What is keep-hot?"}],
    })
    .to_string()
}

fn ask(pool: &Pool, model: &str) -> Value {
    let (status, text) = pool.post("/v1/chat/completions", &chat(model, false, 16));
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).expect("JSON")
}

fn state(pool: &Pool, model: &str) -> String {
    let path = format!("/llm/admin/models?model={model}");
    let (_, text, _) = pool.request("GET", &path, "", Some(&pool.admin_key()));
    let response: Value = serde_json::from_str(&text).expect("JSON");
    let one = response["models"].get(0).unwrap_or(&response);
    one["state"]
        .as_str()
        .unwrap_or_else(|| panic!("{text}"))
        .to_owned()
}

fn reasons(pool: &Pool, kind: &str) -> String {
    let path = format!("/llm/admin/events?kind={kind}");
    let (_, text, _) = pool.request("GET", &path, "", Some(&pool.admin_key()));
    text
}

#[test]
fn llama_server_serves_complete_and_streamed_responses_under_the_pools_model_name() {
    let Some(program) = llama_server() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let weights = folder.path().join("tiny.gguf");
    support::tiny_gguf::write(&weights, 1);
    let pool = pool(
        &[llama(&program, "nonsense", &weights, "memory_gib: 0.06")],
        100,
    );
    let response = ask(&pool, "nonsense");
    assert!(
        response["usage"]["completion_tokens"].as_u64() > Some(0),
        "{response}"
    );
    let (status, text) = pool.post("/v1/chat/completions", &chat("nonsense", true, 16));
    assert_eq!(status, 200, "{text}");
    assert!(text.trim_end().ends_with("data: [DONE]"), "{text}");
    let body = json!({"model": "nonsense", "prompt": "Once", "max_tokens": 4}).to_string();
    let (status, text) = pool.post("/v1/completions", &body);
    assert_eq!(status, 200, "{text}");
}

#[test]
fn llama_server_and_the_embedded_engine_evict_each_other_by_priority() {
    let Some(program) = llama_server() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let weights = folder.path().join("tiny.gguf");
    support::tiny_gguf::write(&weights, 2);
    // No two of the models fit into 100 MiB.
    let files = [
        llama(
            &program,
            "low",
            &weights,
            "memory_gib: 0.06, min_resident: 0s",
        ),
        embedded(
            "tiny-chat",
            "memory_gib: 0.06, priority: 1, min_resident: 0s, keep_hot: 1s",
        ),
        llama(
            &program,
            "high",
            &weights,
            "memory_gib: 0.06, priority: 2, keep_hot: 1s",
        ),
    ];
    let pool = pool(&files, 100);
    // As always-hot, it is loaded at the start; an administrator unloads it.
    wait_for("the highest to be loaded automatically", || {
        state(&pool, "high") == "ready"
    });
    let body = json!({"model": "high"}).to_string();
    let (status, text, _) =
        pool.request("POST", "/llm/admin/unload", &body, Some(&pool.admin_key()));
    assert!(status < 300, "{text}");
    ask(&pool, "low");
    ask(&pool, "tiny-chat");
    let evicted = reasons(&pool, "evict");
    assert!(
        evicted.contains("preempted by tiny-chat: priority 1 over 0 (P2)"),
        "{evicted}"
    );
    ask(&pool, "high");
    let evicted = reasons(&pool, "evict");
    assert!(
        evicted.contains("preempted by high: priority 2 over 1 (P2)"),
        "{evicted}"
    );
    openai_package(&pool, "tiny-chat", "high");
}

/// The `openai` package, if `.ci/run` has installed it.
fn openai_package(pool: &Pool, refused: &str, served: &str) {
    let Some(python) = std::env::var_os("OPENAI_PYTHON") else {
        skipped(
            "openai",
            "the openai package is missing; set OPENAI_PYTHON to a Python that has it",
        );
        return;
    };
    let script = format!(
        "from openai import OpenAI\nimport openai\nclient = OpenAI(base_url=\"http://{}/v1\", api_key=\"none\", max_retries=0)\nwords = lambda model, stream: client.chat.completions.create(model=model, stream=stream, max_tokens=8, messages=[{{\"role\": \"user\", \"content\": \"Hi\"}}])\nassert words({served:?}, False).usage.completion_tokens > 0\nassert len(list(words({served:?}, True))) > 1\ntry:\n    words({refused:?}, False)\n    raise SystemExit(\"the lower one was served\")\nexcept openai.InternalServerError as error:\n    assert error.status_code == 503, error\nprint(\"served and refused\")\n",
        pool.address()
    );
    let done = Command::new(python)
        .arg("-c")
        .arg(script)
        .output()
        .expect("Python runs");
    let printed = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{printed}");
}

#[test]
fn a_truncated_file_is_reported_and_starts_no_llama_server() {
    let Some(program) = llama_server() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let weights = folder.path().join("cut.gguf");
    let whole = support::tiny_gguf::bytes(3);
    std::fs::write(&weights, &whole[..whole.len() / 2]).expect("written");
    let pool = pool(&[llama(&program, "cut", &weights, "memory_gib: 0.06")], 100);
    let (status, text) = pool.post("/v1/chat/completions", &chat("cut", false, 4));
    assert_eq!(status, 503, "{text}");
    assert!(
        text.contains("its weights are damaged") && text.contains("it is cut off"),
        "{text}"
    );
    assert!(pool.engine_pids().is_empty(), "it was found before a start");
}

#[test]
fn killing_llama_server_mid_response_ends_the_stream_with_an_error() {
    let Some(program) = llama_server() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let weights = folder.path().join("tiny.gguf");
    support::tiny_gguf::write(&weights, 4);
    let pool = pool(
        &[llama(&program, "nonsense", &weights, "memory_gib: 0.06")],
        100,
    );
    ask(&pool, "nonsense");
    let body = json!({
        "model": "nonsense", "stream": true, "max_tokens": 240, "ignore_eos": true,
        "messages": [{"role": "user", "content": "Go on"}],
    });
    let stream = pool.stream("/v1/chat/completions", &body.to_string());
    wait_for("the first words", || stream.text().contains("data:"));
    for pid in pool.engine_pids() {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).expect("a process"));
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
    }
    let text = stream.whole();
    // The random model is fast: a response may be complete before the kill.
    let finished = text.contains("[DONE]");
    assert!(finished || text.contains("\"error\""), "{text}");
    wait_for("its end to be known", || {
        state(&pool, "nonsense") != "ready"
    });
    // It crashed soon after it was ready, so it cools down (L3); administrators need not wait.
    let body = json!({"model": "nonsense"}).to_string();
    let (status, text, _) = pool.request("POST", "/llm/admin/load", &body, Some(&pool.admin_key()));
    assert_eq!(status, 200, "{text}");
    let response = ask(&pool, "nonsense");
    assert!(response["choices"][0]["message"].is_object(), "{response}");
}

#[test]
fn a_prompt_format_and_embeddings_work_with_llama_server() {
    let Some(program) = llama_server() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let weights = folder.path().join("tiny.gguf");
    support::tiny_gguf::write(&weights, 1);
    let of = |name: &str, more: &str| {
        let (file, text) = llama(&program, name, &weights, "memory_gib: 0.04");
        (
            file,
            text.replace("pool_config", &format!("{more}\npool_config")),
        )
    };
    let format = "  generation: {prompt_format: {system: \"{instruction}\", user: \"Q: {instruction} A:\", assistant: \"{instruction}\", trailing_assistant: \"\"}, generate_kwargs: {do_sample: false, ignore_eos: true}, stopping_sequences: [\"never said\"]}";
    let files = [
        of("formatted", format),
        of(
            "embedder",
            "  engine_kwargs: {embedding: true, pooling: mean}",
        ),
    ];
    let pool = pool(&files, 100);
    let response = ask(&pool, "formatted");
    let body = json!({"model": "formatted", "prompt": "Q: What is keep-hot? A:", "max_tokens": 16});
    let (status, text) = pool.post("/v1/completions", &body.to_string());
    assert_eq!(status, 200, "{text}");
    let text: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(response["object"], "chat.completion");
    assert_eq!(
        response["choices"][0]["message"]["content"],
        text["choices"][0]["text"]
    );
    assert_eq!(response["usage"]["completion_tokens"], 16);
    let body = json!({"model": "embedder", "input": ["one", "two words"]});
    let (status, text) = pool.post("/v1/embeddings", &body.to_string());
    assert_eq!(status, 200, "{text}");
    let response: Value = serde_json::from_str(&text).expect("JSON");
    let vectors = response["data"].as_array().expect("a list");
    assert_eq!(vectors.len(), 2);
    assert!(
        vectors.iter().all(|item| item["embedding"]
            .as_array()
            .is_some_and(|vector| vector.len() > 8)),
        "{text}"
    );
    assert_eq!(response["model"], "embedder");
}
