//! Files that change while the service runs: changes take effect, engines that must restart are drained first, and nothing else is
//! affected. Model files are tested here, the configuration in `settings`.

mod settings;

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

fn model(name: &str, context: u32, priority: u32) -> (String, String) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/models/tiny-chat");
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CandleEngine\n  model_path: {folder:?}\n  max_total_tokens: {context}\n  generation: {{generate_kwargs: {{ignore_eos: true}}}}\npool_config: {{priority: {priority}}}\n"
    );
    (format!("{name}.yaml"), text)
}

fn write(pool: &Pool, (name, text): (String, String)) {
    std::fs::write(pool.models().join(name), text).unwrap();
}

fn reload(pool: &Pool) -> (u16, Value) {
    let key = pool.admin_key();
    let (status, text, _) = pool.request("POST", "/llm/admin/reload", "", Some(&key));
    (
        status,
        serde_json::from_str(&text).unwrap_or(Value::String(text)),
    )
}

fn body(model: &str, stream: bool) -> String {
    json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": "Hello"}]})
        .to_string()
}

/// Tokens of the longest response, limited by the context.
fn longest(pool: &Pool, model: &str) -> u64 {
    let (status, text) = pool.post("/v1/chat/completions", &body(model, false));
    assert_eq!(status, 200, "{text}");
    let response: Value = serde_json::from_str(&text).unwrap();
    response["usage"]["total_tokens"].as_u64().unwrap()
}

#[test]
fn a_changed_priority_restarts_nothing_and_a_changed_context_only_its_own_model() {
    let pool = Pool::with_models(&[model("a", 64, 0), model("b", 64, 0)], "");
    assert_eq!((longest(&pool, "a"), longest(&pool, "b")), (64, 64));
    let before = pool.engine_pids();
    write(&pool, model("a", 64, 1));
    let (status, response) = reload(&pool);
    assert_eq!(status, 200, "{response}");
    assert_eq!(response["changed"], json!(["a"]));
    assert_eq!(longest(&pool, "a"), 64);
    assert_eq!(pool.engine_pids(), before, "a priority starts nothing");

    write(&pool, model("a", 96, 1));
    reload(&pool);
    assert_eq!(
        longest(&pool, "a"),
        96,
        "the new context takes effect immediately"
    );
    assert_eq!(longest(&pool, "b"), 64);
    wait_for("one engine to be another", || {
        let now = pool.engine_pids();
        now.len() == 2 && before.iter().filter(|pid| now.contains(pid)).count() == 1
    });
    pool.wait_for_log("file was changed");
}

#[test]
fn a_response_in_progress_is_finished_by_the_engine_that_started_it() {
    let pool = Pool::with_models(&[model("a", 512, 0)], "");
    let stream = pool.stream("/v1/chat/completions", &body("a", true));
    wait_for("the answer to begin", || stream.text().contains("content"));
    write(&pool, model("a", 96, 0));
    let (status, response) = reload(&pool);
    assert_eq!(status, 200, "{response}");
    let text = stream.whole();
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert!(!text.contains("\"error\""), "{text}");
    assert_eq!(longest(&pool, "a"), 96);
}

#[test]
fn a_reload_names_a_broken_model_file_and_applies_the_others() {
    let pool = Pool::with_models(&[model("a", 64, 0)], "");
    assert_eq!(longest(&pool, "a"), 64);
    write(
        &pool,
        (
            "broken.yaml".to_owned(),
            "engine_config: {model_id: c, type: VLLMEngin}\n".to_owned(),
        ),
    );
    write(&pool, model("a", 96, 0));
    let (status, response) = reload(&pool);
    assert_eq!(status, 200, "{response}");
    assert_eq!(response["changed"], json!(["a"]), "{response}");
    let broken = &response["broken"][0];
    assert_eq!(broken["model"], "c", "{response}");
    let error = broken["error"].as_str().unwrap();
    assert!(error.contains("broken.yaml: line 1"), "{response}");
    assert!(error.contains("did you mean `VLLMEngine`?"), "{response}");
    assert_eq!(longest(&pool, "a"), 96);
}
