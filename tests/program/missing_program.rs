//! An engine whose program is missing: nothing is evicted for a load that would fail, and the model is served again as
//! soon as the program is back, without an administrator.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use support::service::Pool;
use support::stub::stub_engine;

fn model(name: &str, program: &Path, priority: u32) -> (String, String) {
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  listen: port\n  \
         command: [{program:?}, \"--port\", \"{{{{ port }}}}\"]\n\
         pool_config: {{memory_gib: 12, priority: {priority}}}\n"
    );
    (format!("{name}.yaml"), text)
}

fn chat(pool: &Pool, model: &str) -> (u16, String) {
    let question =
        json!({"model": model, "messages": [{"role": "user", "content": "x"}], "max_tokens": 2});
    pool.post("/v1/chat/completions", &question.to_string())
}

fn state(pool: &Pool, model: &str) -> Value {
    let path = format!("/llm/admin/models?model={model}");
    let (status, response) = pool.admin("GET", &path, &Value::Null);
    assert_eq!(status, 200, "{response}");
    response["models"][0]["state"].clone()
}

#[test]
fn a_missing_program_evicts_no_model_and_its_return_ends_the_quarantine() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("engine");
    let away = folder.path().join("away");
    let files = [
        model("here", &stub_engine(), 0),
        model("moved", &program, 1),
    ];
    let pool = Pool::with_models(&files, "");
    assert_eq!(chat(&pool, "here").0, 200);

    let refused = || {
        let (status, text) = chat(&pool, "moved");
        assert_eq!(status, 503, "{text}");
        let plan = json!({"model": "moved"});
        let (status, plan) = pool.admin("POST", "/llm/admin/plan", &plan);
        assert_eq!((status, &plan["feasible"]), (200, &json!(false)), "{plan}");
        let load = json!({"model": "moved", "wait": false});
        let (status, response) = pool.admin("POST", "/llm/admin/load", &load);
        assert_eq!(status, 409, "{response}");
        for text in [text, plan.to_string(), response.to_string()] {
            assert!(text.contains("program missing"), "{text}");
        }
        assert_eq!(state(&pool, "moved"), "quarantined");
        assert_eq!(state(&pool, "here"), "ready");
    };
    refused();
    fs::copy(stub_engine(), &program).expect("installed");
    let (status, text) = chat(&pool, "moved");
    assert_eq!(status, 200, "{text}");

    // The program vanishes while the service runs.
    let unload = json!({"model": "moved"});
    let (status, response) = pool.admin("POST", "/llm/admin/unload", &unload);
    assert_eq!(status, 200, "{response}");
    assert_eq!(chat(&pool, "here").0, 200);
    fs::rename(&program, &away).expect("moved away");
    refused();
    fs::rename(&away, &program).expect("moved back");
    let (status, response) = pool.admin("POST", "/llm/admin/load", &json!({"model": "moved"}));
    assert_eq!(status, 200, "{response}");
    let (_, events) = pool.admin("GET", "/llm/admin/events?kind=evict", &Value::Null);
    assert_eq!(
        events["events"].as_array().map(Vec::len),
        Some(2),
        "{events}"
    );
}
