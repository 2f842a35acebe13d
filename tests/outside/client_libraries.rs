//! Client libraries over every API they support, with the real program and a scripted engine: scripts in tests/clients test them
//! and print rows of the table in docs/guides/clients.md. Responses are validated with the schemas published by OpenAI and
//! Anthropic.

use std::path::Path;

use serde_json::{Value, json};
use support::service::Pool;

use super::clients::{brought, root, run, user_key};
use super::table;

/// The engine's turns that the scripts expect.
fn turns() -> Value {
    let fact = json!({"city": "Ulm", "degrees": 21});
    json!({
        "turns": [{"call": "", "arguments": fact}, {"say": "It is 21 degrees in Ulm."}],
        "json": fact,
        "plain": "Hello from the engine.",
    })
}

/// A pool that requires keys, with the model `writer` and its alias `gpt-5.5`. Its engine reasons and then follows the file.
pub fn pool(turns: &Path) -> Pool {
    Pool::with_models(&[writer(turns)], "auth: {inference: key}\n")
}

/// A pool with Ollama's API, for local clients without a key.
pub fn open_pool(turns: &Path) -> Pool {
    Pool::with_models(&[writer(turns)], "compat: {ollama: true}\n")
}

fn writer(turns: &Path) -> (String, String) {
    let turns = turns.to_str().expect("a path");
    let words = ["--reasoning", "I look.", "--turns", turns];
    model("writer", &words, ", aliases: [gpt-5.5]")
}

fn model(name: &str, words: &[&str], more: &str) -> (String, String) {
    support::stub::model(name, words, &format!("memory_gib: 1{more}"))
}

/// Output of a script, run against a separate pool that also has these models.
fn printed(program: &Path, name: &str, more: &[(String, String)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("turns.json");
    std::fs::write(&file, turns().to_string()).unwrap();
    let models = [&[writer(&file)], more].concat();
    let pool = Pool::with_models(&models, "auth: {inference: key}\n");
    let script = root().join("tests/clients").join(name);
    let modules = root().join("target/clients/node_modules");
    let url = format!("http://{}", pool.address());
    let text = run(
        program,
        &[script.to_str().unwrap()],
        &[
            ("MODEL_POOL_URL", &url),
            ("MODEL_POOL_KEY", &user_key(&pool)),
            ("MODEL_POOL_NODE_MODULES", modules.to_str().unwrap()),
        ],
    );
    println!("{text}");
    assert!(text.trim_end().ends_with(" passed, 0 failed"), "{text}");
    assert!(!pool.log().contains("panicked"), "{}", pool.log());
    text
}

fn script(program: &Path, name: &str) {
    table::check(&printed(program, name, &[]));
}

#[test]
fn openai_anthropic_langchain_and_pydantic_ai_work_over_every_wire() {
    if let Some(program) = brought("venv/bin/python") {
        script(&program, "wires_python.py");
    }
}

#[test]
fn instructor_and_llama_index_work() {
    if let Some(program) = brought("structured/bin/python") {
        script(&program, "wires_structured.py");
    }
}

#[test]
fn the_openai_package_of_npm_and_the_ai_sdk_work_over_every_wire() {
    if brought("node_modules/@ai-sdk/openai").is_some() {
        script(Path::new("node"), "wires_node.mjs");
    }
}

#[test]
fn outlines_inspect_ai_and_lm_eval_work() {
    if let Some(program) = brought("evaluations/bin/python") {
        script(&program, "wires_evaluations.py");
    }
}

#[test]
fn aiperf_loads_the_pool_and_measures_it() {
    if let Some(program) = brought("load/bin/python") {
        script(&program, "wires_load.py");
    }
}

#[test]
fn responses_and_events_with_reasoning_and_tools_match_the_published_schemas() {
    let Some(program) = brought("venv/bin/python") else {
        return;
    };
    let dies = [
        "--tokens",
        "50",
        "--token-ms",
        "20",
        "--crash-mid-stream",
        "5",
    ];
    let models = [
        model("broken", &dies, ""),
        model("fragile", &dies, ""),
        model("late", &["--ready-after-ms", "3000"], ""),
    ];
    let text = printed(&program, "published_wires.py", &models);
    assert!(
        text.contains("ok: a message and its events: thinking"),
        "{text}"
    );
}
