//! Wrong requests: unknown tools and arguments, missing keys, pages of other sites, and bodies that are too large.

use serde_json::{Value, json};

use super::{ROUTE, code, initialize, key_of, pool, rpc, tool};

#[test]
fn wrong_arguments_are_refused_with_the_name_of_the_field() {
    let pool = pool();
    let admin = pool.admin_key();
    for (name, arguments, param) in [
        ("models", json!({"modle": "low"}), "modle"),
        ("devices", json!({"x": 1}), "x"),
        ("models", json!({"model": ["low"]}), "model"),
        ("events", json!({"limit": 0}), "limit"),
        ("events", json!({"follow": true}), "follow"),
        ("why", json!({}), "event"),
        ("plan_load", json!({}), "model"),
        (
            "plan_load",
            json!({"model": "low", "priority": -1}),
            "priority",
        ),
        (
            "plan_load",
            json!({"model": "low", "replicas": 2}),
            "replicas",
        ),
        ("plan_load", json!({"model": "nothing"}), "model"),
        (
            "plan_unload",
            json!({"model": "low", "replica": "x"}),
            "replica",
        ),
        ("plan_set", json!({"priority": 1}), "model"),
        ("plan_set", json!({"model": "low", "lease": "1y"}), "lease"),
        ("plan_cleanup", json!({"mode": "some"}), "mode"),
        ("apply", json!({}), "token"),
        ("apply", json!({"token": "plan-0"}), "token"),
        ("apply", json!({"token": 7}), "token"),
    ] {
        let (done, result) = tool(&pool, &admin, name, &arguments);
        assert!(!done, "{name} {arguments}: {result}");
        assert_eq!(
            result["error"]["param"], param,
            "{name} {arguments}: {result}"
        );
    }
    // Arguments that are not an object are an error of the protocol.
    let params = json!({"name": "models", "arguments": [1]});
    let (status, message) = rpc(&pool, &admin, "tools/call", &params);
    assert!(
        status >= 400 || message["error"]["code"].is_i64(),
        "{message}"
    );
    assert!(!pool.log().contains("panicked"), "{}", pool.log());
}

#[test]
fn an_unknown_tool_is_an_error_that_lists_the_tools() {
    let pool = pool();
    let params = json!({"name": "unload_everything", "arguments": {}});
    let (status, message) = rpc(&pool, &pool.admin_key(), "tools/call", &params);
    assert_eq!(status, 200, "{message}");
    assert_eq!(message["error"]["code"], -32602, "{message}");
    let text = message["error"]["message"].as_str().unwrap();
    assert!(
        text.contains("unload_everything") && text.contains("plan_load"),
        "{text}"
    );
}

#[test]
fn a_user_gets_its_own_data_and_a_clear_refusal_of_the_rest() {
    let pool = pool();
    let user = key_of(&pool, &json!({"name": "ann", "role": "user"}));
    let (done, me) = tool(&pool, &user, "me", &json!({}));
    assert!(done, "{me}");
    assert_eq!(me["name"], "ann", "{me}");
    for name in ["models", "events", "plan_cleanup"] {
        let (done, result) = tool(&pool, &user, name, &json!({}));
        assert!(!done, "{name}: {result}");
        assert_eq!(code(&result), "not_an_admin", "{name}: {result}");
    }
    let viewer = key_of(&pool, &json!({"name": "eve", "role": "viewer"}));
    let (done, result) = tool(&pool, &viewer, "plan_load", &json!({"model": "low"}));
    assert!(!done, "{result}");
}

#[test]
fn requests_without_a_valid_key_and_pages_of_other_sites_are_refused() {
    let pool = pool();
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize()});
    let body = body.to_string();
    for key in [None, Some("mp-wrong"), Some("sk-other")] {
        let (status, text, _) = pool.request("POST", ROUTE, &body, key);
        assert_eq!(status, 401, "{key:?}: {text}");
    }
    let bearer = format!("Bearer {}", pool.admin_key());
    let authorized = ("Authorization", bearer.as_str());
    for line in [
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
        ("Sec-Fetch-Site", "cross-site"),
    ] {
        let (status, text, _) = pool.request_with("POST", ROUTE, &body, &[authorized, line]);
        assert_eq!(status, 403, "{line:?}: {text}");
        let failure: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(code(&failure), "cross_site", "{line:?}: {text}");
    }
    let own = format!("http://{}", pool.address());
    let lines = [authorized, ("Origin", own.as_str())];
    let (status, text, _) = pool.request_with("POST", ROUTE, &body, &lines);
    assert_eq!(status, 200, "{text}");
}

#[test]
fn bodies_that_are_too_large_or_not_messages_are_refused() {
    let pool = pool();
    let admin = pool.admin_key();
    let long = "x".repeat(2 << 20);
    let params = json!({"name": "models", "arguments": {"model": long}});
    let (status, message) = rpc(&pool, &admin, "tools/call", &params);
    assert_eq!(status, 413, "{message}");
    // Within the limit of the body, and longer than a query can be.
    let params = json!({"name": "models", "arguments": {"model": "x".repeat(100_000)}});
    let (status, message) = rpc(&pool, &admin, "tools/call", &params);
    assert_eq!(status, 200, "{message}");
    assert_eq!(message["result"]["isError"], true, "{message}");
    for body in ["", "{", "[]", "7", r#"{"jsonrpc":"2.0"}"#] {
        let (status, text, _) = pool.request("POST", ROUTE, body, Some(&admin));
        assert!((400..500).contains(&status), "{body}: {status} {text}");
    }
    let deep = "[".repeat(100_000);
    let (status, text, _) = pool.request("POST", ROUTE, &deep, Some(&admin));
    assert!((400..500).contains(&status), "{status} {text}");
    assert_eq!(rpc(&pool, &admin, "ping", &json!({})).0, 200);
    assert!(!pool.log().contains("panicked"), "{}", pool.log());
}
