//! Models as applications of a real Ray Serve: deployed next to another program's, served, adopted after `kill -9`, and removed.

use std::fs;

use serde_json::{Value, json};
use support::service::Pool;

use super::server::{RayServer, is_inside, wait_for};

const FIRST: &str = "model-pool.lab.r1";
const APPLICATIONS: &str = "/api/serve/applications/";
/// Serves the chat route, always as a stream, as the pool requests it.
const APP: &str = r#"import json
from ray import serve
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse


@serve.deployment(ray_actor_options={"num_cpus": 0.1}, graceful_shutdown_timeout_s=2)
class Chat:
    def __init__(self, fail):
        if fail:
            raise RuntimeError(fail)

    async def __call__(self, request: Request):
        if request.url.path.endswith("/models"):
            return JSONResponse({"object": "list", "data": []})

        def events():
            for delta, end in [({"role": "assistant", "content": "Hello from Ray"}, None), ({}, "stop")]:
                choice = {"index": 0, "delta": delta, "finish_reason": end}
                chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
                yield f"data: {json.dumps(chunk)}\n\n"
            yield "data: [DONE]\n\n"

        return StreamingResponse(events(), media_type="text/event-stream")


def build(args):
    return Chat.bind(args.get("fail"))
"#;

fn model(ray: &RayServer, name: &str, engine: &str) -> (String, String) {
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: RayServeEngine\n  address: {}\n  import_path: pool_test_app:build\n  env: {{PYTHONPATH: {:?}}}\n{engine}",
        ray.address(),
        ray.path().join("apps")
    );
    (format!("{name}.yaml"), text)
}

fn chat(pool: &Pool, model: &str) -> (u16, String) {
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let body = json!({"model": model, "messages": messages});
    pool.post("/v1/chat/completions", &body.to_string())
}

/// Applications that are not being removed.
fn names(ray: &RayServer) -> Vec<String> {
    let list = ray.get(APPLICATIONS);
    let applications = list["applications"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let there = applications
        .iter()
        .filter(|(_, application)| application["status"] != "DELETING");
    let mut names: Vec<String> = there.map(|(name, _)| name.clone()).collect();
    names.sort();
    names
}

#[test]
fn a_model_is_deployed_next_to_other_applications_and_adopted_after_a_crash() {
    if !is_inside(
        "ray::serve::a_model_is_deployed_next_to_other_applications_and_adopted_after_a_crash",
    ) {
        return;
    }
    let ray = RayServer::start(None);
    fs::create_dir(ray.path().join("apps")).unwrap();
    fs::write(ray.path().join("apps/pool_test_app.py"), APP).unwrap();
    // Another pool represents another program.
    let theirs = Pool::with_models(&[model(&ray, "theirs", "")], "cluster: {name: theirs}\n");
    let (status, body) = chat(&theirs, "theirs");
    assert_eq!(status, 200, "{body}");
    let of_theirs = |ray: &RayServer| {
        let list = ray.get(APPLICATIONS);
        let app = &list["applications"]["model-pool.theirs.r1"];
        (
            app["deployed_app_config"].clone(),
            app["deployments"]["Chat"]["replicas"][0]["replica_id"].clone(),
        )
    };
    let before = of_theirs(&ray);
    assert!(before.1.is_string(), "{before:?}");

    let fails = "  args: {fail: the weights are not there}\n";
    let files = [model(&ray, "far", ""), model(&ray, "broken", fails)];
    let mut pool = Pool::that_adopts(&files, "cluster: {name: lab}\n", "1m");
    let (status, body) = chat(&pool, "far");
    assert_eq!(status, 200, "{body}");
    assert!(body.contains("Hello from Ray"), "{body}");
    let (status, body) = chat(&pool, "broken");
    assert_eq!(status, 503, "{body}");
    assert!(body.contains("the weights are not there"), "{body}");
    wait_for("the failed one to be gone", || {
        names(&ray) == [FIRST, "model-pool.theirs.r1"]
    });
    assert_eq!(
        of_theirs(&ray),
        before,
        "it was neither changed nor restarted"
    );

    pool.kill();
    pool.restart();
    let (status, body) = chat(&pool, "far");
    assert_eq!(status, 200, "{body}");
    let (_, models, _) = pool.request("GET", "/llm/admin/models", "", Some(&pool.admin_key()));
    let models: Value = serde_json::from_str(&models).unwrap();
    let far = models["models"]
        .as_array()
        .and_then(|all| all.iter().find(|model| model["model"] == "far"));
    assert_eq!(far.unwrap()["replicas"][0]["replica"], "r1", "{models}");

    // Serve continues while Ray's dashboard is down.
    let dashboard = ray.kill_dashboard();
    assert_eq!(chat(&pool, "far").0, 200);
    ray.start_dashboard(&dashboard);
    wait_for("Serve to be listed again", || {
        ray.get(APPLICATIONS)["applications"].is_object()
    });

    let unload = json!({"model": "far"}).to_string();
    let (status, body, _) = pool.request(
        "POST",
        "/llm/admin/unload",
        &unload,
        Some(&pool.admin_key()),
    );
    assert_eq!(status, 200, "{body}");
    assert_eq!(names(&ray), ["model-pool.theirs.r1"]);
    assert_eq!(of_theirs(&ray), before);
}
