//! The highest model priority that members of a group may request, with the real program.

use serde_json::{Value, json};
use support::net::stub;
use support::service::Pool;

use crate::admin_client::client;
use crate::permissions::admin;

const CONFIG: &str = "auth: {inference: key}\ncompat: {ncsa: true}\ngroups: {physics: {priority_max: 3}, lab: {parent: physics, priority_max: 1, keys: [lab]}, open: {keys: [open]}}\n";

fn pool() -> Pool {
    Pool::with_models(&[stub("one", &["--tokens", "5"])], CONFIG)
}

/// An admin key with this name.
fn key(pool: &Pool, name: &str) -> String {
    let wish = json!({"name": name, "role": "admin"});
    let (status, made) = admin(pool, &pool.admin_key(), "POST", "/keys", &wish);
    assert_eq!(status, 200, "{made}");
    made["key"].as_str().unwrap().to_owned()
}

fn document(priority: u32) -> Value {
    json!({"engine_config": {"model_id": "two", "type": "CommandEngine", "command": ["true", "{{ port }}"]},
        "pool_config": {"memory_gib": 1, "priority": priority}})
}

#[test]
fn a_priority_above_the_limit_of_the_group_is_refused_by_every_route_that_takes_one() {
    let pool = pool();
    let (lab, open) = (key(&pool, "lab"), key(&pool, "open"));
    let requests = |priority: u32| {
        [
            (
                "POST",
                "/load",
                json!({"model": "one", "priority": priority}),
            ),
            (
                "POST",
                "/load",
                json!({"model": "one", "priority": priority, "lease": "1h"}),
            ),
            (
                "PATCH",
                "/models?model=one",
                json!({"priority": priority, "lease": "1h"}),
            ),
            ("PUT", "/models", document(priority)),
            (
                "POST",
                "/get_model",
                json!({"model_name": "one", "model_type": "vllm_openai", "priority": priority}),
            ),
        ]
    };
    for (method, path, body) in requests(2) {
        let (status, refused) = admin(&pool, &lab, method, path, &body);
        let error = &refused["error"];
        assert_eq!(status, 403, "{method} {path}: {refused}");
        assert_eq!(error["code"], "priority_above_group", "{refused}");
        assert_eq!(error["param"], "priority", "{refused}");
        let message = error["message"].as_str().unwrap();
        for part in ["priority: 2", "above 1", "group lab"] {
            assert!(message.contains(part), "{message}");
        }
    }
    for (method, path, body) in requests(1) {
        let (status, response) = admin(&pool, &lab, method, path, &body);
        assert_eq!(status, 200, "{method} {path}: {response}");
    }
    for (method, path, body) in requests(7) {
        let (status, response) = admin(&pool, &open, method, path, &body);
        assert_eq!(status, 200, "without a limit, {method} {path}: {response}");
    }
    let cleared = json!({"priority": null});
    let (status, response) = admin(&pool, &lab, "PATCH", "/models?model=one", &cleared);
    assert_eq!(status, 200, "{response}");
}

#[test]
fn admin_client_sets_the_limit_and_members_and_administrators_see_it() {
    let pool = pool();
    let lab = key(&pool, "lab");
    let set = client(
        &pool,
        &[
            "groups",
            "set",
            "course",
            "--parent",
            "physics",
            "--priority-max",
            "0",
        ],
    );
    assert_eq!(set.status, 0, "{set:?}");
    let (_, list) = admin(&pool, &pool.admin_key(), "GET", "/groups", &Value::Null);
    let all = list["groups"].as_array().unwrap().iter();
    let limits: Vec<(&str, &Value)> = all
        .map(|group| (group["group"].as_str().unwrap(), &group["priority_max"]))
        .collect();
    assert_eq!(
        limits,
        [
            ("open", &Value::Null),
            ("physics", &json!(3)),
            ("course", &json!(0)),
            ("lab", &json!(1)),
        ]
    );
    let (_, text, _) = pool.request("GET", "/llm/me", "", Some(&lab));
    let me: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(me["group"]["priority_max"], 1, "{me}");
    let table = client(&pool, &["groups"]);
    assert_eq!(table.status, 0, "{table:?}");
    assert!(table.stdout.contains("priority up to 3"), "{table:?}");
    let set = json!({"priority_max": 1_000_001});
    let (status, refused) = admin(&pool, &pool.admin_key(), "PUT", "/groups/x", &set);
    assert_eq!(status, 400, "{refused}");
    assert!(
        refused.to_string().contains("groups.x.priority_max"),
        "{refused}"
    );
}
