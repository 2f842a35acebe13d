//! Remote endpoints as models of the pool: the real binary, the stub engine as the remote side, plain and behind TLS, and small
//! servers with a fixed response that record the request.

mod failures;
mod operation;

use serde_json::{Value, json};

use support::servers::KEY;
use support::service::Pool;

/// The value of an additional secret header.
pub const TEAM: &str = "team-9f8e7d6c5b4a";

pub fn chat(stream: bool) -> String {
    let messages = json!([{"role": "user", "content": "Hello"}]);
    json!({"model": "far", "stream": stream, "messages": messages}).to_string()
}

/// The file of a model called `far`, with additional keys of `engine_config` and additional sections.
pub fn far(url: &str, engine: &str, sections: &str) -> (String, String) {
    let text = format!(
        "engine_config:\n  model_id: far\n  type: RemoteEngine\n  url: {url}\n{engine}{sections}"
    );
    ("far.yaml".to_owned(), text)
}

/// With the key in the variable `FAR_KEY`, and another header.
pub fn keyed(url: &str, sections: &str) -> (String, String) {
    let engine = format!("  api_key_env: FAR_KEY\n  headers: {{X-Team: {TEAM}}}\n");
    far(url, &engine, sections)
}

pub fn pool_of(file: (String, String)) -> Pool {
    Pool::with_env(&[file], "", &[("FAR_KEY", KEY)])
}

/// The administrators' view of the model.
pub fn view(pool: &Pool) -> Value {
    let (_, models) = pool.admin("GET", "/llm/admin/models", &Value::Null);
    models["models"][0].clone()
}

/// Readers may see an older snapshot for some milliseconds.
pub fn until_state(pool: &Pool, state: &str) {
    support::service::wait_for(&format!("the model to be {state}"), || {
        view(pool)["state"] == json!(state)
    });
}

pub fn message(body: &str) -> String {
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    body["error"]["message"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// Neither the key nor the header's value appears in responses, logs or stored data.
pub fn assert_secrets_are_kept(pool: &Pool) {
    let mut said = vec![("the log".to_owned(), pool.log())];
    for path in [
        "/metrics",
        "/llm/hot-models",
        "/llm/admin/models",
        "/llm/admin/devices",
        "/llm/admin/events",
        "/llm/admin/config",
        "/llm/admin/logs?model=far",
    ] {
        let (_, text, _) = pool.request("GET", path, "", Some(&pool.admin_key()));
        said.push((path.to_owned(), text));
    }
    let mut folders = vec![pool.folder().join("data")];
    while let Some(folder) = folders.pop() {
        for item in std::fs::read_dir(folder).unwrap().flatten() {
            match item.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(item.path()),
                _ => {
                    let bytes = std::fs::read(item.path()).unwrap_or_default();
                    let text = String::from_utf8_lossy(&bytes).into_owned();
                    said.push((item.path().display().to_string(), text));
                }
            }
        }
    }
    for (place, text) in said {
        let holds = text.contains(KEY) || text.contains(TEAM);
        assert!(!holds, "a secret stands in {place}");
    }
}
