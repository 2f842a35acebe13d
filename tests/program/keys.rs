//! Permissions, limits and lifetimes of keys, with the real program.

mod limits;

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

/// A model with responses of ten tokens that take `token_ms` each.
fn model(name: &str, token_ms: u32) -> (String, String) {
    let program = support::stub::stub_engine().display().to_string();
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  command: [{program:?}, --port, \"{{{{ port }}}}\", --model, {name}, --tokens, \"10\", --token-ms, \"{token_ms}\"]\n  ready_path: /health\npool_config: {{memory_gib: 4}}\n"
    );
    (format!("{name}.yaml"), text)
}

fn pool(config: &str) -> Pool {
    Pool::with_models(
        &[model("small", 1), model("other", 1), model("slow", 200)],
        config,
    )
}

const CLOSED: &str = "auth: {inference: key}\n";

fn admin(pool: &Pool, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let text = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let path = format!("/llm/admin{path}");
    let (status, text, _) = pool.request(method, &path, &text, Some(&pool.admin_key()));
    (status, serde_json::from_str(&text).unwrap_or(Value::Null))
}

/// A key and its id.
fn key(pool: &Pool, mut wish: Value) -> (String, String) {
    wish["name"] = json!("course");
    wish["role"] = wish.get("role").cloned().unwrap_or(json!("user"));
    let (status, made) = admin(pool, "POST", "/keys", &wish);
    assert_eq!(status, 200, "{made}");
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("key"), text("id"))
}

fn chat(pool: &Pool, model: &str, key: &str) -> (u16, Value, String) {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Hello"}]});
    let (status, text, head) =
        pool.request("POST", "/v1/chat/completions", &body.to_string(), Some(key));
    (
        status,
        serde_json::from_str(&text).unwrap_or(Value::Null),
        head,
    )
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let line = head
        .lines()
        .find(|line| line.starts_with(&format!("{name}:")))?;
    Some(line.split_once(':')?.1.trim())
}

#[test]
fn a_key_for_some_models_sees_no_others() {
    let pool = pool(CLOSED);
    let (key, id) = key(&pool, json!({"models": ["small", "sl*"]}));
    assert_eq!(chat(&pool, "small", &key).0, 200);
    let (status, refused, _) = chat(&pool, "other", &key);
    assert_eq!(status, 404, "the same as for a missing one: {refused}");
    assert_eq!(refused["error"]["code"], "model_not_found");
    let (_, listed, _) = pool.request("GET", "/v1/models", "", Some(&key));
    assert!(
        listed.contains("small") && listed.contains("slow"),
        "{listed}"
    );
    assert!(!listed.contains("other"), "{listed}");
    let one = |name: &str| {
        pool.request("GET", &format!("/v1/models/{name}"), "", Some(&key))
            .0
    };
    assert_eq!((one("small"), one("other")), (200, 404));

    let (status, changed) = admin(
        &pool,
        "PATCH",
        &format!("/keys?id={id}"),
        &json!({"models": null, "name": "all"}),
    );
    assert_eq!(
        (status, &changed["name"], &changed["models"]),
        (200, &json!("all"), &json!([]))
    );
    assert_eq!(chat(&pool, "other", &key).0, 200);
}

#[test]
fn a_key_restricted_to_routes_is_refused_on_others_under_every_prefix() {
    let pool = pool(CLOSED);
    let (user, _) = key(&pool, json!({"routes": ["/v1/models"]}));
    let get = |path: &str, key: &str| pool.request("GET", path, "", Some(key)).0;
    assert_eq!(
        (get("/v1/models", &user), get("/llm/v1/models", &user)),
        (200, 200)
    );
    let (status, refused, _) = chat(&pool, "small", &user);
    assert_eq!(
        (status, &refused["error"]["code"]),
        (403, &json!("route_not_allowed"))
    );
    let (planner, _) = key(
        &pool,
        json!({"role": "admin", "routes": ["/admin/plan", "/admin/models"]}),
    );
    assert_eq!(get("/llm/admin/models", &planner), 200);
    assert_eq!(get("/llm/admin/keys", &planner), 403);
    let load = json!({"model": "small"}).to_string();
    let post = |path: &str| pool.request("POST", path, &load, Some(&planner)).0;
    assert_eq!(
        (post("/llm/admin/plan"), post("/llm/admin/load")),
        (200, 403)
    );
}

#[test]
fn a_revoked_or_expired_key_is_refused() {
    let pool = pool(CLOSED);
    let (revoked, id) = key(&pool, json!({}));
    let (short, _) = key(&pool, json!({"expires": "1s"}));
    assert_eq!(chat(&pool, "small", &revoked).0, 200);
    admin(&pool, "DELETE", &format!("/keys?id={id}"), &Value::Null);
    assert_eq!(chat(&pool, "small", &revoked).0, 401);
    wait_for("the key to expire", || {
        chat(&pool, "small", &short).0 == 401
    });
    let (_, keys) = admin(&pool, "GET", "/keys", &Value::Null);
    assert!(
        !keys.to_string().contains(&short[9..]),
        "only the beginning is shown"
    );
}

#[test]
fn the_last_full_admin_key_cannot_be_removed_in_any_way() {
    let pool = pool(CLOSED);
    let refused = |method: &str, change: &Value| {
        let (status, text) = admin(&pool, method, "/keys?id=k1", change);
        (status, text["error"]["code"].clone())
    };
    let last = (409, json!("last_admin_key"));
    assert_eq!(refused("DELETE", &Value::Null), last);
    for change in [json!({"routes": ["/admin/plan"]}), json!({"expires": "1s"})] {
        assert_eq!(refused("PATCH", &change), last, "{change}");
    }
    key(&pool, json!({"role": "admin", "routes": ["/admin/keys"]}));
    assert_eq!(
        refused("DELETE", &Value::Null),
        last,
        "that one is for little"
    );
    key(&pool, json!({"role": "admin"}));
    assert_eq!(
        refused("PATCH", &json!({"expires": "1h"})),
        (200, Value::Null)
    );
    let (status, text) = admin(&pool, "DELETE", "/keys?id=k1", &Value::Null);
    assert_eq!((status, &text["error"]["code"]), (409, &json!("own_key")));
    let (status, text) = admin(&pool, "DELETE", "/keys?id=k1&confirm=true", &Value::Null);
    assert_eq!(status, 200, "{text}");
}

#[test]
fn a_client_that_refuses_to_wait_gets_503_immediately_and_causes_no_load() {
    let pool = pool("");
    let body =
        json!({"model": "small", "messages": [{"role": "user", "content": "Hello"}]}).to_string();
    let ask =
        |lines: &[(&str, &str)]| pool.request_with("POST", "/v1/chat/completions", &body, lines);
    let (status, text, head) = ask(&[("x-model-pool-wait", "false")]);
    assert_eq!(status, 503, "{text}");
    assert!(text.contains("not_ready"), "{text}");
    assert!(header(&head, "retry-after").is_some());
    assert!(!pool.log().contains("load small"));
    let (status, _, head) = ask(&[]);
    assert_eq!(
        (status, header(&head, "x-model-pool-loaded")),
        (200, Some("true"))
    );
    assert_eq!(header(&head, "x-model-pool-replica"), Some("r1"));
    let (status, _, head) = ask(&[("x-model-pool-wait", "false")]);
    assert_eq!(
        (status, header(&head, "x-model-pool-loaded")),
        (200, Some("false"))
    );
    let waited_ms: u64 = header(&head, "x-model-pool-waited-ms")
        .and_then(|waited| waited.parse().ok())
        .expect("a number");
    assert!(waited_ms < 1000, "nothing was loaded: {waited_ms} ms");
    let (status, text, _) = ask(&[("x-model-pool-wait", "perhaps")]);
    assert_eq!(status, 400, "{text}");
}

#[test]
fn a_response_that_exceeds_its_timeout_is_aborted() {
    let pool = pool("");
    let ask = |stream: bool| {
        let body = json!({"model": "slow", "stream": stream, "messages": [{"role": "user", "content": "Hello"}]});
        pool.request_with(
            "POST",
            "/v1/chat/completions",
            &body.to_string(),
            &[("x-request-timeout", "1s")],
        )
    };
    let (status, text, _) = ask(false);
    assert_eq!(status, 504, "{text}");
    assert!(text.contains("deadline_exceeded"), "{text}");
    let (status, text, _) = ask(true);
    assert_eq!(status, 200);
    assert!(
        text.contains("deadline_exceeded") && !text.contains("[DONE]"),
        "{text}"
    );
    wait_for("nothing to be in flight", || {
        let (_, models) = admin(&pool, "GET", "/models?model=slow", &Value::Null);
        models["models"][0]["replicas"][0]["in_flight"] == 0
    });
}
