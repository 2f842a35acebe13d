//! The Model Context Protocol with the real program: tools by role, plans that are applied exactly or refused, and wrong requests.

mod changes;
mod refused;

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

const ROUTE: &str = "/llm/mcp";
/// A device with room for either of the models.
const ONE_DEVICE: &str = "inventory: {provider: fixed, headroom: 0%, devices: [{name: d0, memory: 16GiB}]}\nauth: {inference: key}\n";

fn pool() -> Pool {
    let files = [
        support::stub::model("low", &[], "memory_gib: 10"),
        support::stub::model("high", &[], "memory_gib: 10, priority: 1"),
    ];
    Pool::with_devices(&files, ONE_DEVICE)
}

/// Calls a method of the protocol, and returns the status and the message.
fn rpc(pool: &Pool, key: &str, method: &str, params: &Value) -> (u16, Value) {
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    pool.call(Some(key), "POST", ROUTE, &body)
}

/// Calls a tool, and returns whether it succeeded and its structured result.
fn tool(pool: &Pool, key: &str, name: &str, arguments: &Value) -> (bool, Value) {
    let params = json!({"name": name, "arguments": arguments});
    let (status, message) = rpc(pool, key, "tools/call", &params);
    assert_eq!(status, 200, "{message}");
    let result = &message["result"];
    let is_error = result["isError"].as_bool().expect("a result");
    let text = result["content"][0]["text"].as_str().expect("a text");
    assert!(!text.is_empty());
    (!is_error, result["structuredContent"].clone())
}

/// Plans a change, and returns the plan and its token.
fn planned(pool: &Pool, key: &str, name: &str, arguments: &Value) -> (Value, String) {
    let (done, result) = tool(pool, key, name, arguments);
    assert!(done, "{result}");
    let token = result["token"].as_str().expect("a token").to_owned();
    assert_eq!(result["expires_in_seconds"], 60, "{result}");
    (result["plan"].clone(), token)
}

fn apply(pool: &Pool, key: &str, token: &str) -> (bool, Value) {
    tool(pool, key, "apply", &json!({"token": token}))
}

fn code(result: &Value) -> &str {
    result["error"]["code"].as_str().unwrap_or_default()
}

fn load(pool: &Pool, model: &str) {
    let (status, loaded) = pool.admin("POST", "/llm/admin/load", &json!({"model": model}));
    assert_eq!(status, 200, "{loaded}");
}

fn state(pool: &Pool, model: &str) -> String {
    let path = format!("/llm/admin/models?model={model}");
    let (_, list) = pool.admin("GET", &path, &Value::Null);
    list["models"][0]["state"].as_str().unwrap().to_owned()
}

fn wait_until_ready(pool: &Pool, model: &str) {
    wait_for(&format!("{model} to be ready"), || {
        state(pool, model) == "ready"
    });
}

fn key_of(pool: &Pool, wish: &Value) -> String {
    let (status, made) = pool.admin("POST", "/llm/admin/keys", wish);
    assert_eq!(status, 200, "{made}");
    made["key"].as_str().unwrap().to_owned()
}

fn tools_of(pool: &Pool, key: &str) -> Vec<String> {
    let (status, message) = rpc(pool, key, "tools/list", &json!({}));
    assert_eq!(status, 200, "{message}");
    let tools = message["result"]["tools"].as_array().expect("a list");
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
    names.map(str::to_owned).collect()
}

fn initialize() -> Value {
    json!({
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    })
}

#[test]
fn a_client_initializes_without_a_session_and_lists_the_tools_of_its_role() {
    let pool = pool();
    let admin = pool.admin_key();
    let body = json!({"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": initialize()});
    let bearer = format!("Bearer {admin}");
    let lines = [
        ("Authorization", bearer.as_str()),
        ("Accept", "application/json, text/event-stream"),
    ];
    for _ in 0..50 {
        let (status, text, head) = pool.request_with("POST", ROUTE, &body.to_string(), &lines);
        assert_eq!(status, 200, "{text}");
        assert!(head.contains("content-type: application/json"), "{head}");
        assert!(!head.contains("mcp-session-id"), "{head}");
        let message: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(message["id"], "a");
        let result = &message["result"];
        assert_eq!(result["protocolVersion"], "2025-06-18", "{text}");
        assert_eq!(result["serverInfo"]["name"], "model-pool", "{text}");
        assert!(result["capabilities"]["tools"].is_object(), "{text}");
    }
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let (status, text, _) = pool.request("POST", ROUTE, &notification.to_string(), Some(&admin));
    assert_eq!((status, text.as_str()), (202, ""));
    // The server opens no streams and has no sessions to end.
    for method in ["GET", "DELETE"] {
        assert_eq!(pool.request(method, ROUTE, "", Some(&admin)).0, 405);
    }

    let all = tools_of(&pool, &admin);
    for name in [
        "models",
        "devices",
        "queue",
        "events",
        "why",
        "plan",
        "report",
        "usage",
        "plan_load",
        "plan_unload",
        "plan_set",
        "plan_cleanup",
        "apply",
    ] {
        assert!(all.iter().any(|tool| tool == name), "{name}: {all:?}");
    }
    let user = key_of(&pool, &json!({"name": "ann", "role": "user"}));
    assert_eq!(tools_of(&pool, &user), ["me", "my_usage"]);
    let viewer = key_of(&pool, &json!({"name": "eve", "role": "viewer"}));
    let seen = tools_of(&pool, &viewer);
    assert!(seen.contains(&"models".to_owned()), "{seen:?}");
    assert!(!seen.contains(&"apply".to_owned()), "{seen:?}");
}

#[test]
fn read_tools_return_what_the_admin_api_returns() {
    let pool = pool();
    let admin = pool.admin_key();
    load(&pool, "low");
    let (done, models) = tool(&pool, &admin, "models", &json!({"model": "low"}));
    assert!(done, "{models}");
    assert_eq!(models["models"][0]["model"], "low", "{models}");
    assert_eq!(models["models"][0]["state"], "ready", "{models}");
    for (name, arguments, field) in [
        ("devices", json!({}), "devices"),
        ("queue", json!({}), "orders"),
        ("events", json!({"kind": "load", "limit": 1}), "events"),
        ("why", json!({"model": "low"}), "words"),
        ("report", json!({"from": "1h"}), "total"),
        ("usage", json!({}), "rows"),
        ("plan", json!({"model": "high"}), "victims"),
        ("me", json!({}), "models"),
        ("my_usage", json!({"days": 2}), "days"),
    ] {
        let (done, result) = tool(&pool, &admin, name, &arguments);
        assert!(done, "{name}: {result}");
        assert!(result.get(field).is_some(), "{name}: {result}");
    }
    // Reading changes nothing and is not in the audit log, except for the plan, which the admin API records as well.
    let (_, audit) = pool.admin("GET", "/llm/admin/audit", &Value::Null);
    let entries = audit["entries"].as_array().unwrap();
    let by_mcp = entries.iter().filter(|entry| entry["what"]["via"] == "mcp");
    let paths: Vec<_> = by_mcp.map(|entry| &entry["path"]).collect();
    assert_eq!(paths, ["/admin/plan"], "{audit}");
}
