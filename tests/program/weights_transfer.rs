//! Models with weights on other machines, with the real program: waiting requests see the progress, no replica is evicted for
//! weights still in transit, and finished downloads are never repeated.

mod users;

use std::path::Path;

use serde_json::{Value, json};
use support::hub::Hub;
use support::service::{Pool, wait_for};

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/models/tiny-chat");
/// The tiny model's weights.
const WEIGHTS: usize = 758_424;

fn model(name: &str, more: &str) -> (String, String) {
    let text = format!(
        "engine_config: {{model_id: {name}, type: CandleEngine, hf_model_id: lab/{name}, max_total_tokens: 64{more}}}\n"
    );
    (format!("{name}.yaml"), text)
}

/// A local folder.
fn local(name: &str) -> (String, String) {
    let text = format!(
        "engine_config: {{model_id: {name}, type: CandleEngine, model_path: {TINY:?}, max_total_tokens: 64}}\n"
    );
    (format!("{name}.yaml"), text)
}

struct Lab {
    hub: Hub,
    cache: tempfile::TempDir,
}

impl Lab {
    fn new() -> Lab {
        let hub = Hub::start();
        for name in ["far", "other"] {
            hub.add_folder(&format!("lab/{name}"), Path::new(TINY));
        }
        Lab {
            hub,
            cache: tempfile::tempdir().unwrap(),
        }
    }

    fn pool(&self, files: &[(String, String)], config: &str) -> Pool {
        self.pool_with(files, config, &[])
    }

    fn pool_with(&self, files: &[(String, String)], config: &str, more: &[(&str, &str)]) -> Pool {
        self.hub.pool(self.cache.path(), files, config, more)
    }
}

fn body(model: &str, stream: bool) -> String {
    json!({"model": model, "stream": stream, "max_tokens": 4,
        "messages": [{"role": "user", "content": "Hello"}]})
    .to_string()
}

fn admin(pool: &Pool, method: &str, path: &str, body: &Value) -> (u16, Value) {
    pool.admin(method, &format!("/llm/admin{path}"), body)
}

fn view(pool: &Pool, name: &str) -> Value {
    let (_, all) = admin(pool, "GET", "/models", &Value::Null);
    let models = all["models"].as_array().unwrap().clone();
    models
        .into_iter()
        .find(|model| model["model"] == name)
        .unwrap()
}

#[test]
fn a_waiting_request_reports_download_progress_and_is_then_served() {
    let lab = Lab::new();
    lab.hub
        .behave(|manners| manners.hold_after = Some(WEIGHTS / 2));
    let pool = lab.pool(&[model("far", "")], "");
    assert_eq!(view(&pool, "far")["weights"]["here"], json!(false));
    let stream = pool.stream("/v1/chat/completions", &body("far", true));
    wait_for("half of it to be reported", || {
        let text = stream.text();
        let percents = text.split("stage=fetching percent=").skip(1);
        percents
            .filter_map(|part| part.split(' ').next()?.parse::<u32>().ok())
            .max()
            >= Some(40)
    });
    let far = view(&pool, "far");
    assert_eq!(far["state"], "fetching");
    assert_eq!(far["weights"]["from"], "the hub's lab/far, revision main");
    let fetch = &far["weights"]["fetch"];
    assert!(
        fetch["bytes_total"].as_u64() > Some(WEIGHTS as u64),
        "{far}"
    );
    assert!(fetch["percent"].as_u64() < Some(90), "{far}");
    lab.hub.behave(|manners| manners.hold_after = None);
    let text = stream.whole();
    assert!(
        text.contains("\"content\"") && text.ends_with("data: [DONE]\n\n"),
        "{text}"
    );
    let far = view(&pool, "far");
    assert_eq!(
        far["weights"],
        json!({"from": "the hub's lab/far, revision main", "here": true, "fetch": null})
    );
    wait_for("the history to tell of all of it", || {
        let (_, events) = admin(&pool, "GET", "/events", &Value::Null);
        let events = events["events"].as_array().unwrap();
        ["fetch", "fetched", "load", "ready"]
            .iter()
            .all(|kind| events.iter().any(|event| event["kind"] == *kind))
    });
}

#[test]
fn no_model_is_evicted_for_one_that_is_still_downloading_and_the_plan_says_so() {
    let lab = Lab::new();
    lab.hub.behave(|manners| manners.hold_after = Some(1000));
    let here = local("here");
    let far = (
        "far.yaml".to_owned(),
        format!(
            "{}pool_config: {{priority: 1, memory_gib: 12}}\n",
            model("far", "").1
        ),
    );
    let here = (
        here.0,
        format!("{}pool_config: {{memory_gib: 12}}\n", here.1),
    );
    let pool = lab.pool(&[here, far], "");
    assert_eq!(
        pool.post("/v1/chat/completions", &body("here", false)).0,
        200
    );
    let stream = pool.stream("/v1/chat/completions", &body("far", true));
    wait_for("the fetch", || view(&pool, "far")["state"] == "fetching");
    let (status, plan) = admin(&pool, "POST", "/plan", &json!({"model": "far"}));
    assert_eq!(status, 200, "{plan}");
    assert!(
        plan["waits_for"][0]
            .as_str()
            .unwrap()
            .starts_with("the download of its weights from the hub's lab/far"),
        "{plan}"
    );
    assert_eq!(plan["victims"][0]["model"], "here", "{plan}");
    assert_eq!(
        pool.post("/v1/chat/completions", &body("here", false)).0,
        200
    );
    assert_eq!(view(&pool, "here")["state"], "ready");
    lab.hub.behave(|manners| manners.hold_after = None);
    assert!(stream.whole().ends_with("data: [DONE]\n\n"));
    assert_ne!(view(&pool, "here")["state"], "ready");
}

#[test]
fn a_pool_killed_during_a_download_resumes_it_and_then_needs_no_hub() {
    let lab = Lab::new();
    lab.hub
        .behave(|manners| manners.hold_after = Some(WEIGHTS / 2));
    let mut pool = lab.pool(&[model("far", "")], "");
    let stream = pool.stream("/v1/chat/completions", &body("far", true));
    wait_for("half of it", || {
        let fetch = &view(&pool, "far")["weights"]["fetch"];
        fetch["bytes_done"].as_u64() > Some(WEIGHTS as u64 / 3)
    });
    pool.kill();
    drop(stream);
    lab.hub.behave(|manners| manners.hold_after = None);
    pool.restart();
    assert_eq!(view(&pool, "far")["weights"]["here"], json!(false));
    let (status, text) = pool.post("/v1/chat/completions", &body("far", false));
    assert_eq!(status, 200, "{text}");
    let last = lab
        .hub
        .asked()
        .into_iter()
        .rfind(|request| request.path.ends_with(".safetensors"));
    assert!(
        last.unwrap().from > WEIGHTS / 3,
        "it restarted from the beginning"
    );
    // Downloaded weights are still present after the next start.
    let listed = lab.hub.listed();
    pool.kill_and_restart();
    assert_eq!(view(&pool, "far")["weights"]["here"], json!(true));
    assert_eq!(
        pool.post("/v1/chat/completions", &body("far", false)).0,
        200
    );
    assert_eq!(lab.hub.listed(), listed);
}

#[test]
fn a_gated_model_is_refused_with_advice_and_an_administrator_can_retry() {
    let lab = Lab::new();
    lab.hub
        .behave(|manners| manners.token = Some("hf_secret".into()));
    let pool = lab.pool(&[model("far", ", env: {HF_TOKEN: hf_wrong}")], "");
    let (status, text) = pool.post("/v1/chat/completions", &body("far", false));
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("accept its licence at"), "{text}");
    let (status, text) = pool.post("/v1/chat/completions", &body("far", false));
    assert!(status == 503 && text.contains("quarantined"), "{text}");
    let (status, response) = admin(&pool, "POST", "/load", &json!({"model": "far"}));
    assert_eq!(status, 409, "{response}");
    lab.hub
        .behave(|manners| manners.token = Some("hf_wrong".into()));
    let (status, response) = admin(
        &pool,
        "POST",
        "/load",
        &json!({"model": "far", "wait": true}),
    );
    assert_eq!(status, 200, "{response}");
    let log = pool.log();
    assert!(!log.contains("hf_wrong"), "{log}");
}

#[test]
fn an_unload_aborts_a_download_and_two_models_of_one_repository_share_it() {
    let lab = Lab::new();
    lab.hub
        .behave(|manners| manners.hold_after = Some(WEIGHTS / 2));
    let twin = (
        "twin.yaml".to_owned(),
        "engine_config: {model_id: twin, type: CandleEngine, hf_model_id: lab/far, max_total_tokens: 64}\n".to_owned(),
    );
    let pool = lab.pool(&[model("far", ""), twin], "");
    let (status, response) = admin(
        &pool,
        "POST",
        "/load",
        &json!({"model": "far", "wait": false}),
    );
    assert_eq!(status, 202, "{response}");
    wait_for("the fetch", || {
        view(&pool, "far")["weights"]["fetch"]["percent"].as_u64() > Some(30)
    });
    let (status, response) = admin(&pool, "POST", "/unload", &json!({"model": "far"}));
    assert_eq!(status, 200, "{response}");
    wait_for("its end", || view(&pool, "far")["state"] == "cold");
    // A waiting request would start the download again.
    let waiting = pool.stream("/v1/chat/completions", &body("far", true));
    wait_for("the fetch again", || {
        view(&pool, "far")["state"] == "fetching"
    });
    let (status, response) = admin(&pool, "POST", "/unload", &json!({"model": "far"}));
    assert_eq!(status, 200, "{response}");
    let text = waiting.whole();
    assert!(text.contains("was ended by order"), "{text}");
    let far = pool.stream("/v1/chat/completions", &body("far", true));
    let twin = pool.stream("/v1/chat/completions", &body("twin", true));
    wait_for("both to fetch", || {
        ["far", "twin"]
            .iter()
            .all(|name| view(&pool, name)["state"] == "fetching")
    });
    lab.hub.behave(|manners| manners.hold_after = None);
    assert!(far.whole().ends_with("data: [DONE]\n\n"));
    assert!(twin.whole().ends_with("data: [DONE]\n\n"));
}

#[test]
fn deleted_weights_are_fetched_again() {
    let lab = Lab::new();
    let pool = lab.pool(&[model("far", "")], "");
    assert_eq!(
        pool.post("/v1/chat/completions", &body("far", false)).0,
        200
    );
    let (status, _) = admin(&pool, "POST", "/unload", &json!({"model": "far"}));
    assert_eq!(status, 200);
    std::fs::remove_dir_all(lab.cache.path().join("models--lab--far")).unwrap();
    // The load that finds no file fails, and the pool examines the cause.
    let (status, text) = pool.post("/v1/chat/completions", &body("far", false));
    assert_eq!(status, 503, "{text}");
    wait_for("it to be missed", || {
        view(&pool, "far")["weights"]["here"] == json!(false)
    });
    assert_eq!(
        pool.post("/v1/chat/completions", &body("far", false)).0,
        200
    );
}

#[test]
fn a_hub_model_without_a_file_is_loaded_only_for_permitted_callers() {
    let lab = Lab::new();
    for (who, of_user, of_admin, register) in [
        ("refuse", 404, 404, 403),
        ("admin", 404, 200, 200),
        ("anyone", 200, 200, 200),
    ] {
        let env = [
            ("MODEL_POOL__CATALOG__ON_UNKNOWN", who),
            ("MODEL_POOL__CATALOG__UNKNOWN_LIMIT", "1"),
        ];
        let pool = lab.pool_with(&[model("unused", "")], "", &env);
        let ask = |name: &str| pool.post("/v1/chat/completions", &body(name, false));
        let (status, text) = ask("lab/nothing");
        assert_eq!(status, 404, "{who}: {text}");
        let is_looked_up = text.contains("there is no lab/nothing at");
        assert_eq!(is_looked_up, who == "anyone", "{who}: {text}");
        assert_eq!(ask("nothing").0, 404);
        let (status, text) = ask("lab/other");
        assert_eq!(status, of_user, "{who}: {text}");
        let load = json!({"model": "lab/far", "wait": true});
        let (status, response) = admin(&pool, "POST", "/load", &load);
        assert_eq!(status, of_admin, "{who}: {response}");
        let document = json!({"engine_config": {"model_id": "own", "type": "CandleEngine", "model_path": TINY}});
        let (status, response) = admin(&pool, "PUT", "/models", &document);
        assert_eq!(status, register, "{who}: {response}");
        if who == "anyone" {
            lab.hub.add_folder("lab/third", Path::new(TINY));
            let (status, text) = ask("lab/third");
            assert_eq!(status, 503, "{text}");
            assert!(text.contains("catalog.unknown_limit"), "{text}");
        }
    }
}
