//! Ollama's API (`compat.ollama`) with the real program: called as Ollama's clients do, with the demo models and stub engines.

mod bad_input;
mod guide;
mod keep_alive;
mod lists;
mod responses;
mod streams;

use serde_json::{Value, json};
use support::service::Pool;

const ON: &str = "compat: {ollama: true}\n";

/// A model whose engine is the stub; `more` goes into its `pool_config`.
fn stub(name: &str, flags: &[&str], more: &str) -> (String, String) {
    let words: Vec<String> = flags.iter().map(|flag| format!(", {flag:?}")).collect();
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  listen: port\n  command: [{:?}, --port, \"{{{{ port }}}}\", --model, {name}{}]\n  served_model_name: {name}\npool_config: {{memory_gib: 1{more}}}\n",
        support::stub::stub_engine().display().to_string(),
        words.concat()
    );
    (format!("{}.yaml", name.replace(['/', ':'], "-")), text)
}

/// The three models of the repository.
fn demo() -> Pool {
    Pool::demo_with("evening: {cleanup: null, reopen: null}\ncompat: {ollama: true}\n")
}

fn pool(name: &str, flags: &[&str]) -> Pool {
    Pool::with_models(&[stub(name, flags, "")], ON)
}

/// Status, response and head.
fn ask(pool: &Pool, path: &str, body: &Value, key: Option<&str>) -> (u16, Value, String) {
    let (status, text, head) = pool.request("POST", path, &body.to_string(), key);
    let response = serde_json::from_str(&text);
    (status, response.unwrap_or(Value::String(text)), head)
}

/// The response of a successful request.
fn response_to(pool: &Pool, path: &str, body: &Value) -> Value {
    let (status, response, _) = ask(pool, path, body, None);
    assert_eq!(status, 200, "{path} {body}: {response}");
    response
}

fn get(pool: &Pool, path: &str) -> Value {
    let (status, text, _) = pool.request("GET", path, "", None);
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).unwrap()
}

/// Only lines of JSON.
fn lines(text: &str) -> Vec<Value> {
    assert!(text.ends_with('\n'), "{text:?}");
    let read = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line:?}"));
    text.lines().map(read).collect()
}

/// Names of loaded models.
fn loaded(pool: &Pool) -> Vec<String> {
    let running = get(pool, "/api/ps");
    let models = running["models"].as_array().unwrap().iter();
    models
        .map(|model| model["name"].as_str().unwrap().to_owned())
        .collect()
}

fn user_key(pool: &Pool) -> String {
    let body = json!({"name": "student", "role": "user"});
    let admin = pool.admin_key();
    let (status, made, _) = ask(pool, "/llm/admin/keys", &body, Some(&admin));
    assert_eq!(status, 200, "{made}");
    made["key"].as_str().unwrap().to_owned()
}
