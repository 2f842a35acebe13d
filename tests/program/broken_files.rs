//! Invalid model files: the service starts and serves everything else, administrators see the error, users learn whom to contact,
//! and a corrected file takes effect with a reload.

use serde_json::{Value, json};
use support::service::Pool;

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/models/tiny-chat");

fn model(file: &str, name: &str, more: &str) -> (String, String) {
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CandleEngine\n  model_path: {TINY:?}\n  max_total_tokens: 64\n{more}"
    );
    (file.to_owned(), text)
}

fn file(name: &str, text: &str) -> (String, String) {
    (name.to_owned(), text.to_owned())
}

/// One broken file of each kind.
fn broken() -> Vec<(String, String)> {
    vec![
        file(
            "syntax.yaml",
            "engine_config: {model_id: lab/syntax, type: [\n",
        ),
        file(
            "engine.yaml",
            "engine_config:\n  model_id: lab/engine\n  type: Foo\n",
        ),
        file(
            "contradiction.yaml",
            "engine_config:\n  model_id: lab/contradiction\n  type: VLLMEngine\n  command: [serve]\n",
        ),
        model("second.yaml", "good", ""),
        file("nameless.yaml", "engine_config: [\n"),
    ]
}

fn reload(pool: &Pool) -> Value {
    let (status, response) = pool.admin_text("POST", "/llm/admin/reload", "");
    assert_eq!(status, 200, "{response}");
    response
}

/// State and file error of each model.
fn states(pool: &Pool) -> Vec<(String, String, Option<String>)> {
    let (status, response) = pool.admin_text("GET", "/llm/admin/models", "");
    assert_eq!(status, 200, "{response}");
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let models = response["models"].as_array().unwrap().iter();
    models
        .map(|model| {
            let state = text(&model["state"]).unwrap();
            (
                text(&model["model"]).unwrap(),
                state,
                text(&model["file_error"]),
            )
        })
        .collect()
}

fn ask(pool: &Pool, model: &str) -> (u16, Value) {
    let body = json!({"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "Hello"}]});
    let (status, text) = pool.post("/v1/chat/completions", &body.to_string());
    (status, serde_json::from_str(&text).unwrap())
}

#[test]
fn broken_files_do_not_stop_the_service_and_are_reported_to_administrators() {
    let mut files = broken();
    files.push(model("good.yaml", "good", ""));
    let pool = Pool::with_models(&files, "");
    assert_eq!(ask(&pool, "good").0, 200);

    let states = states(&pool);
    let seen: Vec<(&str, &str)> = states
        .iter()
        .map(|(name, state, _)| (name.as_str(), state.as_str()))
        .collect();
    let expected = [
        ("good", "ready"),
        ("lab/contradiction", "broken"),
        ("lab/engine", "broken"),
        ("lab/syntax", "broken"),
        ("nameless.yaml", "broken"),
        ("second.yaml", "broken"),
    ];
    assert_eq!(seen, expected);
    let error = |name: &str| {
        let found = states.iter().find(|state| state.0 == name).unwrap();
        found.2.clone().unwrap_or_default()
    };
    for (name, parts) in [
        ("lab/syntax", ["syntax.yaml: line", "not closed"]),
        (
            "lab/engine",
            ["engine.yaml: line 3: engine_config.type", "`Foo`"],
        ),
        (
            "lab/contradiction",
            ["contradiction.yaml: line 4", "command"],
        ),
        ("second.yaml", ["good.yaml", "second.yaml"]),
    ] {
        for part in parts {
            assert!(error(name).contains(part), "{name}: {}", error(name));
        }
        let log = pool.log();
        assert!(log.contains(parts[0]), "`{}` is not in {log}", parts[0]);
    }
    let (status, one) = pool.admin_text("GET", "/llm/admin/models?model=lab/engine", "");
    assert_eq!(
        (status, &one["models"][0]["state"]),
        (200, &json!("broken"))
    );

    let (status, ready, _) = pool.request("GET", "/llm/ready", "", None);
    assert_eq!(status, 200, "{ready}");
    let ready: Value = serde_json::from_str(&ready).unwrap();
    let details = ready["details"][0].as_str().unwrap();
    assert!(details.starts_with("5 model files are broken"), "{ready}");
    assert!(
        !ready.to_string().contains("lab/"),
        "anybody may ask: {ready}"
    );
}

#[test]
fn users_of_a_broken_model_are_referred_to_administrators_who_see_the_reason() {
    let mut files = broken();
    files.push(model("good.yaml", "good", ""));
    let pool = Pool::with_models(&files, "");
    for name in ["lab/engine", "lab/syntax", "nameless", "nameless.yaml"] {
        let (status, response) = ask(&pool, name);
        assert_eq!(status, 503, "{response}");
        let message = response["error"]["message"].as_str().unwrap();
        assert_eq!(response["error"]["code"], "model_file_broken", "{response}");
        assert!(
            message.contains(name) && message.contains("administrator"),
            "{message}"
        );
        for detail in ["models/", ".yaml:", "line", "Foo"] {
            assert!(
                !message.contains(detail),
                "`{detail}` is for administrators: {message}"
            );
        }
    }
    let (status, _, _) = pool.request("GET", "/v1/models/lab/engine", "", None);
    assert_eq!(status, 503);
    let (_, list, _) = pool.request("GET", "/v1/models", "", None);
    assert!(!list.contains("lab/"), "{list}");
    assert_eq!(ask(&pool, "lab/engin").0, 404);

    for (method, path, body) in [
        ("POST", "/llm/admin/load", r#"{"model": "lab/engine"}"#),
        ("POST", "/llm/admin/plan", r#"{"model": "lab/engine"}"#),
        (
            "PATCH",
            "/llm/admin/models?model=lab/engine",
            r#"{"priority": 1}"#,
        ),
    ] {
        let (status, response) = pool.admin_text(method, path, body);
        assert_eq!(status, 409, "{method} {path}: {response}");
        let message = response["error"]["message"].as_str().unwrap();
        assert!(message.contains("engine.yaml: line 3"), "{message}");
        assert!(message.contains("fix the file and reload"), "{message}");
    }
    let register = json!({"engine_config": {"model_id": "lab/engine", "type": "CandleEngine", "model_path": TINY}});
    let (status, response) = pool.admin_text("PUT", "/llm/admin/models", &register.to_string());
    assert_eq!(
        status, 409,
        "the file would have the name again: {response}"
    );
}

#[test]
fn with_strict_one_broken_file_refuses_the_start() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("engine.yaml"), &broken()[1].1).unwrap();
    let config = folder.path().join("pool.yml.config");
    let text = format!(
        "server: {{listen: \"127.0.0.1:0\"}}\nstate: {{dir: {:?}}}\ncatalog: {{models_dir: {:?}}}\n",
        folder.path().join("data"),
        folder.path()
    );
    std::fs::write(&config, text).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_model-pool"))
        .args(["serve", "--strict", "--config"])
        .arg(&config)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("engine.yaml: line 3: engine_config.type"),
        "{said}"
    );
    assert!(
        said.contains("without --strict everything else is served"),
        "{said}"
    );
}

#[test]
fn a_corrected_file_takes_effect_and_a_removed_one_disappears() {
    let (name, text) = broken().remove(1);
    let pool = Pool::with_models(&[(name.clone(), text)], "");
    assert_eq!(ask(&pool, "lab/engine").0, 503);
    let (_, mended) = model(&name, "lab/engine", "");
    std::fs::write(pool.models().join(&name), mended).unwrap();
    let response = reload(&pool);
    assert_eq!(response["added"], json!(["lab/engine"]), "{response}");
    assert_eq!(response["broken"], json!([]), "{response}");
    assert_eq!(ask(&pool, "lab/engine").0, 200);
    std::fs::write(pool.models().join("late.yaml"), "engine_config: [\n").unwrap();
    let response = reload(&pool);
    assert_eq!(response["broken"][0]["model"], "late.yaml", "{response}");
    assert_eq!(ask(&pool, "late").0, 503);
    std::fs::remove_file(pool.models().join("late.yaml")).unwrap();
    assert_eq!(reload(&pool)["broken"], json!([]));
    assert_eq!(ask(&pool, "late").0, 404);
}

#[test]
fn the_last_valid_version_is_served_while_its_file_is_broken() {
    let pool = Pool::with_models(
        &[
            model("a.yaml", "a", "pool_config: {aliases: [gpt-4]}\n"),
            model("b.yaml", "b", ""),
        ],
        "",
    );
    assert_eq!((ask(&pool, "a").0, ask(&pool, "b").0), (200, 200));
    let engines = pool.engine_pids();
    // Each is broken in another way; the second also contains another name.
    std::fs::write(pool.models().join("a.yaml"), "engine_config: [\n").unwrap();
    let text = "engine_config: {model_id: c, type: Foo}\n";
    std::fs::write(pool.models().join("b.yaml"), text).unwrap();
    let response = reload(&pool);
    assert_eq!(response["removed"], json!([]), "{response}");
    assert_eq!(response["changed"], json!([]), "{response}");
    for (nth, name) in ["a", "b"].into_iter().enumerate() {
        let told = &response["broken"][nth];
        assert_eq!(told["model"], name, "{response}");
        assert_eq!(told["serves_last_good"], true, "{response}");
    }
    assert_eq!((ask(&pool, "gpt-4").0, ask(&pool, "b").0), (200, 200));
    assert_eq!(pool.engine_pids(), engines, "no engine was restarted");
    let states = states(&pool);
    assert!(
        states
            .iter()
            .all(|state| state.1 == "ready" && state.2.is_some()),
        "{states:?}"
    );
    pool.wait_for_log("its last good version is served");

    // A second reload also changes nothing, and a corrected file is read.
    assert_eq!(reload(&pool)["broken"].as_array().unwrap().len(), 2);
    let (_, text) = model("a.yaml", "a", "pool_config: {aliases: [gpt-5]}\n");
    std::fs::write(pool.models().join("a.yaml"), text).unwrap();
    let response = reload(&pool);
    assert_eq!(response["changed"], json!(["a"]), "{response}");
    assert_eq!((ask(&pool, "gpt-5").0, ask(&pool, "gpt-4").0), (200, 404));
}

#[test]
fn a_second_file_for_a_served_model_is_refused_and_the_first_stays_in_use() {
    let pool = Pool::with_models(&[model("second.yaml", "a", "")], "");
    assert_eq!(ask(&pool, "a").0, 200);
    let engines = pool.engine_pids();
    let (name, text) = model("first.yaml", "a", "");
    std::fs::write(pool.models().join(&name), text).unwrap();
    let response = reload(&pool);
    assert_eq!(response["broken"][0]["model"], "first.yaml", "{response}");
    assert_eq!(response["changed"], json!([]), "{response}");
    assert_eq!(ask(&pool, "a").0, 200);
    assert_eq!(pool.engine_pids(), engines);

    // The other file does not take over when the file of the served model breaks.
    std::fs::write(pool.models().join("second.yaml"), "engine_config: [\n").unwrap();
    let response = reload(&pool);
    assert_eq!(response["broken"][0]["model"], "a", "{response}");
    assert_eq!(
        response["broken"][0]["serves_last_good"], true,
        "{response}"
    );
    assert_eq!(response["broken"][1]["model"], "first.yaml", "{response}");
    assert_eq!(response["changed"], json!([]), "{response}");
    assert_eq!(pool.engine_pids(), engines);
}

#[test]
fn an_adapter_is_kept_while_its_file_or_its_bases_is_broken() {
    let folder = tempfile::tempdir().unwrap();
    let base = "engine_config: {model_id: base, type: VLLMEngine, model_path: /nowhere/base}\npool_config: {memory_gib: 4}\n";
    let adapter = format!(
        "base_model_id: base\nmodel_id: base-fine\nlora_path: {:?}\n",
        folder.path()
    );
    let files = [file("base.yaml", base), file("fine.yaml", &adapter)];
    let pool = Pool::with_models(&files, "");
    let names = || {
        let (_, list, _) = pool.request("GET", "/v1/models", "", None);
        let list: Value = serde_json::from_str(&list).unwrap();
        let ids = list["data"].as_array().unwrap().iter();
        ids.map(|model| model["id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names(), ["base", "base-fine"]);
    for (broken, whole) in [("base.yaml", base), ("fine.yaml", &adapter)] {
        std::fs::write(pool.models().join(broken), "a: [\n").unwrap();
        let response = reload(&pool);
        assert_eq!(response["changed"], json!([]), "{broken}: {response}");
        let told = response["broken"].as_array().unwrap();
        assert_eq!(told.len(), 1, "{response}");
        assert_eq!(told[0]["serves_last_good"], true, "{response}");
        assert_eq!(names(), ["base", "base-fine"], "{broken}");
        std::fs::write(pool.models().join(broken), whole).unwrap();
        assert_eq!(reload(&pool)["broken"], json!([]));
    }
}

#[test]
fn a_takeover_is_refused_if_it_would_lose_a_model_that_is_loaded() {
    let mut pool = Pool::that_adopts(&[model("a.yaml", "a", "")], "", "30s");
    assert_eq!(ask(&pool, "a").0, 200);
    let engines = pool.engine_pids();
    std::fs::write(pool.models().join("a.yaml"), "engine_config: [\n").unwrap();
    // Only the file name identifies the model.
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_model-pool"))
        .args(["serve", "--takeover", "--config"])
        .arg(pool.folder().join("config.yaml"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("a.yaml: line 1"), "{said}");
    assert!(
        said.contains("a is loaded, and a takeover would stop it"),
        "{said}"
    );
    assert_eq!(ask(&pool, "a").0, 200, "the old one continues");

    // A broken file of an unloaded model does not prevent a takeover.
    std::fs::write(pool.models().join("a.yaml"), model("a.yaml", "a", "").1).unwrap();
    std::fs::write(pool.models().join("other.yaml"), "engine_config: [\n").unwrap();
    let mut old = pool.take_over();
    old.wait().unwrap();
    assert_eq!((ask(&pool, "a").0, ask(&pool, "other").0), (200, 503));
    assert_eq!(pool.engine_pids(), engines);
}
