//! Models in Ray Serve: the real binary, and a double of Ray's dashboard and Serve's proxy with recorded responses.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::remote::{chat, message, until_state, view};
use support::family::stub;
use support::ray_serve::RayServe;
use support::service::{Pool, wait_for};

const CONFIG: &str = "cluster: {name: lab}\n";
const FIRST: &str = "model-pool.lab.r1";
/// An application of another program in the same Serve.
const THEIRS: &str = r#"{"name": "theirs",  "import_path":"a:b", "args": {"x": 1.50}}"#;

/// The file of a model called `far`, with additional keys of `engine_config` and additional sections.
fn model(ray: &RayServe, engine: &str, sections: &str) -> (String, String) {
    let (name, text) = model_at("far", &ray.address());
    (name, format!("{text}{engine}{sections}"))
}

fn model_at(name: &str, address: &str) -> (String, String) {
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: RayServeEngine\n  address: {address}\n  import_path: lab.app:build\n"
    );
    (format!("{name}.yaml"), text)
}

fn complete(pool: &Pool) -> String {
    let (status, body) = pool.post("/v1/chat/completions", &chat(false));
    assert_eq!(status, 200, "{body}");
    body
}

/// Its metrics are up to a second old.
fn until_silent_rays(pool: &Pool, count: usize) {
    let line = format!("model_pool_ray_serve_unanswered {count}\n");
    wait_for(&format!("{count} silent Rays"), || {
        let (status, text, _) = pool.request("GET", "/metrics", "", None);
        assert_eq!(status, 200, "{text}");
        text.contains(&line)
    });
}

#[test]
fn a_model_is_deployed_next_to_other_applications_serves_and_is_removed() {
    let ray = RayServe::start();
    ray.deploy("theirs", THEIRS);
    let pool = Pool::with_models(&[model(&ray, "", "")], CONFIG);
    assert!(complete(&pool).contains(&format!("Hello from {FIRST}")));
    let stream = pool.stream("/v1/chat/completions", &chat(true)).whole();
    assert!(stream.contains("[DONE]"), "{stream}");
    assert_eq!(ray.names(), [FIRST, "theirs"]);
    assert!(ray.writes()[0].contains(THEIRS), "{:?}", ray.writes());
    let variables = &ray.config(FIRST)["runtime_env"]["env_vars"];
    assert_eq!(variables["MODEL_POOL_MODEL"], "far");

    until_state(&pool, "ready");
    let shown = view(&pool);
    assert_eq!(shown["engine"], "ray_serve", "{shown}");
    assert_eq!(shown["memory_truth"], false, "{shown}");
    assert_eq!(shown["needs"]["source"], "unseen", "{shown}");
    let elsewhere = json!([{"device": "elsewhere", "bytes": 0}]);
    assert_eq!(shown["replicas"][0]["devices"], elsewhere, "{shown}");
    assert!(pool.engine_pids().is_empty(), "nothing was started here");

    // The pool does not see the memory of a second model.
    let two = json!({"model": "far", "replicas": 2});
    let (status, refused) = pool.admin("POST", "/llm/admin/load", &two);
    assert_eq!(status, 400, "{refused}");
    let text = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(text.contains("pool_config.max_replicas"), "{refused}");

    let far = json!({"model": "far"});
    let (status, unloaded) = pool.admin("POST", "/llm/admin/unload", &far);
    assert_eq!(status, 200, "{unloaded}");
    assert_eq!(ray.names(), ["theirs"]);
    let (_, plan) = pool.admin("POST", "/llm/admin/plan", &far);
    let reason = plan["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("does not see its memory"), "{plan}");
}

#[test]
fn a_failed_deployment_is_reported_with_its_reason_and_removed() {
    let ray = RayServe::start();
    let fails = "  args: {fail: \"RuntimeError: the weights are not there\"}\n";
    let pool = Pool::with_models(&[model(&ray, fails, "")], CONFIG);
    let (status, body) = pool.post("/v1/chat/completions", &chat(false));
    assert_eq!(status, 503, "{body}");
    let text = message(&body);
    assert!(
        text.contains("engine: RuntimeError: the weights are not there"),
        "{text}"
    );
    wait_for("the application to be gone", || ray.names().is_empty());
}

#[test]
fn a_401_from_ray_is_reported_as_the_reason_of_the_failed_load() {
    let ray = RayServe::start();
    ray.require("the-token");
    let pool = Pool::with_models(&[model(&ray, "", "")], CONFIG);
    let (status, body) = pool.post("/v1/chat/completions", &chat(false));
    assert_eq!(status, 503, "{body}");
    let text = message(&body);
    assert!(text.contains("it wants a token (401)"), "{text}");
    assert!(text.contains("engine_config.token_file"), "{text}");
}

#[test]
fn after_kill_9_the_application_is_adopted_and_leftover_ones_are_removed() {
    let ray = RayServe::start();
    let mut pool = Pool::that_adopts(&[model(&ray, "", "")], CONFIG, "1m");
    complete(&pool);
    let writes = ray.writes().len();
    pool.kill();
    assert_eq!(ray.names(), [FIRST]);
    pool.restart();
    assert!(complete(&pool).contains(FIRST));
    assert_eq!(ray.writes().len(), writes, "nothing was deployed again");
    assert_eq!(view(&pool)["replicas"][0]["replica"], "r1");

    pool.kill();
    ray.deploy(
        "model-pool.lab.r99",
        &THEIRS.replace("theirs", "model-pool.lab.r99"),
    );
    ray.deploy("theirs", THEIRS);
    pool.restart();
    assert_eq!(ray.names(), [FIRST, "theirs"]);
    assert!(complete(&pool).contains(FIRST));
    // A shutdown leaves nothing.
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(30)));
    assert_eq!(ray.names(), ["theirs"]);
}

#[test]
fn a_dashboard_outage_leaves_applications_unknown_and_a_missing_application_is_gone() {
    let ray = RayServe::start();
    let pool = Pool::with_models(&[model(&ray, "", "")], CONFIG);
    complete(&pool);
    ray.set_down(true);
    assert!(complete(&pool).contains(FIRST), "Serve itself runs on");
    until_state(&pool, "ready");
    ray.set_down(false);
    ray.remove(FIRST);
    wait_for("the replica to be gone", || {
        view(&pool)["replicas"] == Value::Array(Vec::new())
    });
    // After its end the model cools down shortly.
    wait_for("an answer of another application", || {
        let (status, body) = pool.post("/v1/chat/completions", &chat(false));
        status == 200 && body.contains("model-pool.lab.r2")
    });
    assert_eq!(ray.names(), ["model-pool.lab.r2"]);
}

#[test]
fn two_replicas_of_one_model_are_two_applications() {
    let ray = RayServe::start();
    let sections = "pool_config: {max_replicas: 2}\n";
    let pool = Pool::with_models(&[model(&ray, "", sections)], CONFIG);
    let two = json!({"model": "far", "replicas": 2});
    let (status, loaded) = pool.admin("POST", "/llm/admin/load", &two);
    assert_eq!(status, 200, "{loaded}");
    assert_eq!(ray.names(), [FIRST, "model-pool.lab.r2"]);
    complete(&pool);
    let requests = ray.requests();
    assert!(
        requests
            .iter()
            .any(|request| request.starts_with(&format!("GET /{FIRST}/v1/models "))),
        "{requests:?}"
    );
}

#[test]
fn two_spellings_of_one_ray_address_do_not_remove_each_others_applications() {
    let ray = RayServe::start();
    let address = ray.address();
    let port = address.rsplit(':').next().unwrap();
    let files = [
        model_at("far", &address.replace("http", "HTTP")),
        model_at("near", &format!("http://LocalHost:{port}/")),
    ];
    let mut pool = Pool::that_adopts(&files, CONFIG, "1m");
    complete(&pool);
    let near = json!({"model": "near"});
    let (status, loaded) = pool.admin("POST", "/llm/admin/load", &near);
    assert_eq!(status, 200, "{loaded}");
    let both = [FIRST, "model-pool.lab.r2"];
    assert_eq!(ray.names(), both);
    let writes = ray.writes().len();

    // Both addresses list both applications; neither counts as a leftover of the other.
    pool.kill();
    pool.restart();
    assert_eq!(ray.names(), both);
    assert!(complete(&pool).contains(FIRST));
    assert_eq!(ray.writes().len(), writes, "{:?}", ray.writes());
    let (status, unloaded) = pool.admin("POST", "/llm/admin/unload", &near);
    assert_eq!(status, 200, "{unloaded}");
    assert_eq!(ray.names(), [FIRST]);
    assert!(complete(&pool).contains(FIRST));
}

#[test]
fn an_application_of_a_deleted_model_is_removed_even_if_ray_was_down_at_the_start() {
    let ray = RayServe::start();
    ray.deploy("theirs", THEIRS);
    let mut pool = Pool::that_adopts(&[model(&ray, "", "")], CONFIG, "1m");
    complete(&pool);
    pool.kill();
    // Only the store knows the address now.
    std::fs::remove_file(pool.models().join("far.yaml")).unwrap();
    ray.set_down(true);
    pool.restart();
    assert_eq!(ray.names(), [FIRST, "theirs"]);
    ray.set_down(false);
    wait_for("the application to be gone", || ray.names() == ["theirs"]);
}

#[test]
fn an_application_is_adopted_once_a_ray_that_was_silent_at_the_start_responds() {
    let ray = RayServe::start();
    let mut pool = Pool::that_adopts(&[model(&ray, "", "")], CONFIG, "1m");
    complete(&pool);
    let writes = ray.writes().len();
    pool.kill();
    ray.set_down(true);
    pool.restart();
    assert_eq!(view(&pool)["replicas"], json!([]));
    until_silent_rays(&pool, 1);
    ray.set_down(false);
    until_state(&pool, "ready");
    until_silent_rays(&pool, 0);
    assert_eq!(view(&pool)["replicas"][0]["replica"], "r1");
    assert!(complete(&pool).contains(FIRST));
    assert_eq!(ray.writes().len(), writes, "{:?}", ray.writes());
}

#[test]
fn requests_waiting_for_a_silent_ray_are_served_by_the_existing_application() {
    let ray = RayServe::start();
    let mut pool = Pool::that_adopts(&[model(&ray, "", "")], CONFIG, "1m");
    complete(&pool);
    pool.kill();
    ray.set_down(true);
    pool.restart();
    let writes = ray.writes().len();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| complete(&pool));
        wait_for("the load to begin", || {
            view(&pool)["replicas"][0]["replica"] == "r2"
        });
        ray.set_down(false);
        let body = waiting.join().expect("a response");
        assert!(body.contains(FIRST), "{body}");
    });
    wait_for("the load to be gone", || {
        let shown = view(&pool);
        let replicas = shown["replicas"].as_array();
        replicas.is_some_and(|replicas| replicas.len() == 1 && replicas[0]["replica"] == "r1")
    });
    assert!(
        complete(&pool).contains(FIRST),
        "the model does not cool down"
    );
    assert_eq!(ray.names(), [FIRST]);
    assert_eq!(ray.writes().len(), writes, "{:?}", ray.writes());
}

#[test]
fn a_load_waits_for_a_used_ray_without_serve_and_adopts_its_application() {
    let ray = RayServe::start();
    let mut pool = Pool::that_adopts(&[model(&ray, "", "")], CONFIG, "1m");
    complete(&pool);
    pool.kill();
    ray.set_without_serve(true);
    pool.restart();
    let writes = ray.writes().len();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| complete(&pool));
        wait_for("the load to find that there is no Serve", || {
            let words = view(&pool)["replicas"][0]["stage_words"].clone();
            words
                .as_str()
                .is_some_and(|words| words.contains("refuses"))
        });
        ray.set_without_serve(false);
        let body = waiting.join().expect("a response");
        assert!(body.contains(FIRST), "{body}");
    });
    assert_eq!(ray.writes().len(), writes, "{:?}", ray.writes());
}

#[test]
fn with_a_new_database_a_load_finds_an_application_under_the_same_replica_id() {
    let ray = RayServe::start();
    let mut former = Pool::that_adopts(&[model(&ray, "", "")], CONFIG, "1m");
    complete(&former);
    former.kill();
    let writes = ray.writes().len();
    ray.set_down(true);
    let pool = Pool::that_adopts(&[model(&ray, "", "")], CONFIG, "1m");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| complete(&pool));
        wait_for("the load to begin", || {
            view(&pool)["replicas"][0]["replica"] == "r1"
        });
        ray.set_down(false);
        let body = waiting.join().expect("a response");
        assert!(body.contains(FIRST), "{body}");
    });
    assert_eq!(ray.names(), [FIRST]);
    assert_eq!(ray.writes().len(), writes, "{:?}", ray.writes());
}

#[test]
fn with_a_new_database_an_application_is_not_adopted_under_a_reused_replica_id() {
    let ray = RayServe::start();
    let mut former = Pool::that_adopts(&[model(&ray, "", "")], CONFIG, "1m");
    complete(&former);
    former.kill();
    ray.set_down(true);
    let files = [model(&ray, "", ""), stub("near", &[])];
    let pool = Pool::that_adopts(&files, CONFIG, "1m");
    for order in ["load", "unload"] {
        let near = json!({"model": "near"});
        let (status, done) = pool.admin("POST", &format!("/llm/admin/{order}"), &near);
        assert_eq!(status, 200, "{done}");
    }
    ray.set_down(false);
    wait_for("the application to be gone", || ray.names().is_empty());
    assert_eq!(view(&pool)["replicas"], json!([]));
    assert!(complete(&pool).contains("model-pool.lab.r2"));
}

#[test]
fn a_failed_load_is_reported_immediately_even_if_a_write_may_still_be_carried_out() {
    let ray = RayServe::start();
    ray.cut_off_next_write();
    let fails = "  args: {fail: \"RuntimeError: the weights are not there\"}\n";
    let pool = Pool::with_models(&[model(&ray, fails, "")], CONFIG);
    let began = SystemTime::now();
    let (status, body) = pool.post("/v1/chat/completions", &chat(false));
    let took = began.elapsed().unwrap_or_default();
    assert_eq!(status, 503, "{body}");
    assert!(
        message(&body).contains("the weights are not there"),
        "{body}"
    );
    assert!(took < Duration::from_secs(30), "{took:.1?}");
    ray.carry_out_late();
    wait_for("the late application to be gone", || ray.names().is_empty());
}

#[test]
fn the_file_of_used_rays_of_an_earlier_version_is_imported_and_removed() {
    let (ray, other) = (RayServe::start(), RayServe::start());
    let mut pool = Pool::that_adopts(&[model(&ray, "", "")], CONFIG, "1m");
    pool.kill();
    let (file, name) = (pool.data().join("ray-serve.json"), "model-pool.lab.r99");
    let used = json!([{
        "address": other.address(), "prefix": "model-pool.lab.r", "token_file": null,
        "timeout_ms": 5000, "section": "engine_config",
    }]);
    std::fs::write(&file, used.to_string()).unwrap();
    other.deploy(name, &THEIRS.replace("theirs", name));
    other.set_down(true);
    pool.restart();
    assert!(!file.exists());
    // Only the store knows the address from now on.
    pool.kill();
    other.set_down(false);
    pool.restart();
    assert!(other.names().is_empty());

    pool.kill();
    std::fs::write(&file, "[{\"address\":").unwrap();
    pool.restart();
    assert!(!file.exists());
    let aside = std::fs::read_to_string(pool.data().join("ray-serve.unreadable")).unwrap();
    assert_eq!(aside, "[{\"address\":");
}
