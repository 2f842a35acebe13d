//! Changes in two steps: a plan shows the effect, and `apply` carries out exactly that, or refuses.

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

use super::{apply, code, key_of, load, planned, pool, rpc, state, tool, wait_until_ready};

#[test]
fn a_planned_load_is_applied_once_and_recorded_as_made_by_mcp() {
    let pool = pool();
    let admin = pool.admin_key();
    load(&pool, "low");
    let (plan, token) = planned(&pool, &admin, "plan_load", &json!({"model": "high"}));
    assert_eq!(plan["feasible"], true, "{plan}");
    assert_eq!(plan["victims"][0]["model"], "low", "{plan}");
    assert_eq!(state(&pool, "low"), "ready", "a plan changes nothing");

    let (done, result) = apply(&pool, &admin, &token);
    assert!(done, "{result}");
    assert_eq!(result["model"], "high", "{result}");
    wait_until_ready(&pool, "high");
    let (done, again) = apply(&pool, &admin, &token);
    assert!(!done);
    assert_eq!(code(&again), "unknown_token", "{again}");
    assert_eq!(again["error"]["param"], "token", "{again}");

    let (_, events) = pool.admin(
        "GET",
        "/llm/admin/events?kind=load&model=high",
        &Value::Null,
    );
    let event = &events["events"][0];
    let reason = event["reason"].as_str().unwrap();
    assert!(reason.ends_with("(by MCP)"), "{events}");
    assert_eq!(event["asked_by"], "k1", "{events}");
    let (_, audit) = pool.admin("GET", "/llm/admin/audit?path=/admin/load", &Value::Null);
    let entries = audit["entries"].as_array().unwrap();
    let by_mcp = entries.iter().find(|entry| entry["what"]["via"] == "mcp");
    let entry = by_mcp.expect("an entry of the apply");
    assert_eq!(entry["what"]["model"], "high", "{audit}");
    assert_eq!(entry["client"], "127.0.0.1", "{audit}");
}

#[test]
fn a_load_whose_victims_have_changed_is_refused_and_evicts_nothing() {
    let pool = pool();
    let admin = pool.admin_key();
    let (plan, token) = planned(&pool, &admin, "plan_load", &json!({"model": "high"}));
    assert_eq!(plan["victims"], json!([]), "{plan}");
    load(&pool, "low");
    let (done, result) = apply(&pool, &admin, &token);
    assert!(!done, "{result}");
    assert_eq!(code(&result), "plan_changed", "{result}");
    let message = result["error"]["message"].as_str().unwrap();
    assert!(message.contains("plan again"), "{message}");
    assert_eq!(state(&pool, "low"), "ready");
    assert_eq!(state(&pool, "high"), "cold");
    // A new plan has the new effect, and is carried out.
    let (plan, token) = planned(&pool, &admin, "plan_load", &json!({"model": "high"}));
    assert_eq!(plan["victims"][0]["model"], "low", "{plan}");
    assert!(apply(&pool, &admin, &token).0);
    wait_until_ready(&pool, "high");
}

#[test]
fn a_load_that_cannot_be_made_gets_a_plan_without_a_token() {
    let pool = pool();
    let admin = pool.admin_key();
    load(&pool, "high");
    let (status, _) = pool.set_priority("high", 2);
    assert_eq!(status, 200);
    let (done, result) = tool(&pool, &admin, "plan_load", &json!({"model": "low"}));
    assert!(done, "{result}");
    assert_eq!(result["plan"]["feasible"], false, "{result}");
    assert_eq!(result["token"], Value::Null, "{result}");
}

#[test]
fn an_unload_and_a_cleanup_end_exactly_the_replicas_of_their_plan() {
    let pool = pool();
    let admin = pool.admin_key();
    load(&pool, "low");
    let (plan, unload) = planned(&pool, &admin, "plan_unload", &json!({"model": "low"}));
    assert_eq!(plan["replicas"][0]["model"], "low", "{plan}");
    let (plan, cleanup) = planned(&pool, &admin, "plan_cleanup", &json!({"mode": "all"}));
    assert_eq!(plan["replicas"].as_array().unwrap().len(), 1, "{plan}");

    let (done, result) = apply(&pool, &admin, &unload);
    assert!(done, "{result}");
    assert_eq!(result["unloaded"].as_array().unwrap().len(), 1, "{result}");
    let (done, result) = apply(&pool, &admin, &cleanup);
    assert!(!done, "{result}");
    assert_eq!(code(&result), "plan_changed", "{result}");

    load(&pool, "high");
    let (_, cleanup) = planned(&pool, &admin, "plan_cleanup", &json!({}));
    let (done, result) = apply(&pool, &admin, &cleanup);
    assert!(done, "{result}");
    assert_eq!(result["replicas"][0]["model"], "high", "{result}");
    wait_for("an empty pool", || state(&pool, "high") == "cold");
    let (done, result) = tool(&pool, &admin, "plan_unload", &json!({"model": "high"}));
    assert!(!done, "{result}");
    assert_eq!(code(&result), "not_loaded", "{result}");
}

#[test]
fn an_unload_that_drains_for_long_returns_with_its_requests_and_continues() {
    // 15 seconds.
    let talk = ["--tokens", "300", "--token-ms", "50"];
    let files = [support::stub::model("talker", &talk, "memory_gib: 10")];
    let pool = Pool::with_devices(&files, super::ONE_DEVICE);
    let admin = pool.admin_key();
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let body = json!({"model": "talker", "stream": true, "max_tokens": 300, "messages": messages});
    let bearer = format!("Bearer {admin}");
    let lines = [("Authorization", bearer.as_str())];
    let stream = pool.stream_with("/v1/chat/completions", &body.to_string(), &lines);
    wait_for("the response", || stream.text().contains("content"));
    let (plan, token) = planned(&pool, &admin, "plan_unload", &json!({"model": "talker"}));
    assert_eq!(plan["replicas"][0]["in_flight"], 1, "{plan}");
    let (done, result) = apply(&pool, &admin, &token);
    assert!(done, "{result}");
    assert_eq!(result["status"], "draining", "{result}");
    assert_eq!(result["replicas"][0]["in_flight"], 1, "{result}");
    let message = result["message"].as_str().expect("a text");
    assert!(message.contains("still draining"), "{message}");
    let response = stream.whole();
    assert!(response.contains("[DONE]"), "{response}");
    wait_for("the unload", || state(&pool, "talker") == "cold");
}

#[test]
fn a_null_argument_is_the_same_as_none() {
    let pool = pool();
    let admin = pool.admin_key();
    let nulls = json!({"model": "low", "wait": null, "force": null, "priority": null});
    let (_, token) = planned(&pool, &admin, "plan_load", &nulls);
    let (done, result) = apply(&pool, &admin, &token);
    assert!(done, "{result}");
    assert_eq!(result["status"], "started", "it does not wait: {result}");
    wait_until_ready(&pool, "low");
    let (done, result) = tool(&pool, &admin, "models", &json!({"model": null}));
    assert!(done, "{result}");
    assert_eq!(
        result["models"].as_array().expect("a list").len(),
        2,
        "{result}"
    );
    let (done, result) = tool(&pool, &admin, "apply", &json!({"token": null}));
    assert!(!done, "{result}");
    assert_eq!(result["error"]["param"], "token", "{result}");
    // Null clears the setting.
    assert_eq!(pool.set_priority("low", 1).0, 200);
    let clear = json!({"model": "low", "priority": null});
    let (_, token) = planned(&pool, &admin, "plan_set", &clear);
    let (done, result) = apply(&pool, &admin, &token);
    assert!(done, "{result}");
    assert_eq!(result["priority"], 0, "{result}");
}

#[test]
fn a_setting_is_applied_unless_another_came_first() {
    let pool = pool();
    let admin = pool.admin_key();
    let change = json!({"model": "low", "priority": 1, "lease": "2h"});
    let (plan, token) = planned(&pool, &admin, "plan_set", &change);
    assert_eq!(plan["before"]["priority"], 0, "{plan}");
    assert!(plan["consequences"]["leaving"].is_array(), "{plan}");
    assert_eq!(pool.set_priority("low", 0).0, 200);
    let (done, result) = apply(&pool, &admin, &token);
    assert!(!done, "{result}");
    assert_eq!(code(&result), "plan_changed", "{result}");

    let (plan, token) = planned(&pool, &admin, "plan_set", &change);
    assert_eq!(plan["before"]["override"]["priority"], 0, "{plan}");
    let (done, result) = apply(&pool, &admin, &token);
    assert!(done, "{result}");
    assert_eq!(result["priority"], 1, "{result}");
}

#[test]
fn a_token_is_only_for_the_key_that_planned() {
    let pool = pool();
    let admin = pool.admin_key();
    let (_, token) = planned(&pool, &admin, "plan_load", &json!({"model": "high"}));
    let other = key_of(&pool, &json!({"name": "second", "role": "admin"}));
    let (done, result) = apply(&pool, &other, &token);
    assert!(!done, "{result}");
    assert_eq!(code(&result), "unknown_token", "{result}");
    let user = key_of(&pool, &json!({"name": "ann", "role": "user"}));
    let (done, result) = apply(&pool, &user, &token);
    assert!(!done, "{result}");
    assert_eq!(code(&result), "not_an_admin", "{result}");
    assert!(apply(&pool, &admin, &token).0, "others have not used it up");
}

#[test]
fn many_plans_of_a_key_displace_only_its_own_oldest() {
    let pool = pool();
    let (admin, unload) = (pool.admin_key(), json!({"model": "low"}));
    load(&pool, "low");
    let other = key_of(&pool, &json!({"name": "second", "role": "admin"}));
    let (_, of_other) = planned(&pool, &other, "plan_unload", &unload);
    let (_, first) = planned(&pool, &admin, "plan_unload", &unload);
    for _ in 0..32 {
        planned(&pool, &admin, "plan_unload", &unload);
    }
    let (done, result) = apply(&pool, &admin, &first);
    assert!(!done, "{result}");
    assert_eq!(code(&result), "unknown_token", "{result}");
    let (done, result) = apply(&pool, &other, &of_other);
    assert!(done, "{result}");
}

#[test]
fn administrators_of_a_group_change_only_what_the_admin_api_permits() {
    let config = "auth: {inference: key}\ngroups: {lab: {priority_max: 1, models: [one]}}\n";
    let files = ["one", "two"].map(|name| support::stub::model(name, &[], "memory_gib: 0.5"));
    let pool = Pool::with_models(&files, config);
    let wish = json!({"name": "tutor", "role": "group-admin", "group": "lab"});
    let tutor = key_of(&pool, &wish);
    for (name, arguments, wanted) in [
        ("models", json!({}), "only_a_group_admin"),
        (
            "plan_set",
            json!({"model": "one", "priority": 1}),
            "only_a_group_admin",
        ),
        ("plan_cleanup", json!({}), "only_a_group_admin"),
        ("plan_load", json!({"model": "two"}), "model_not_found"),
        (
            "plan_load",
            json!({"model": "one", "priority": 2}),
            "priority_above_group",
        ),
    ] {
        let (done, result) = tool(&pool, &tutor, name, &arguments);
        assert!(!done, "{name}: {result}");
        assert_eq!(code(&result), wanted, "{name}: {result}");
    }
    let (_, token) = planned(&pool, &tutor, "plan_load", &json!({"model": "one"}));
    let (done, result) = apply(&pool, &tutor, &token);
    assert!(done, "{result}");
    wait_until_ready(&pool, "one");
    let (_, token) = planned(&pool, &tutor, "plan_unload", &json!({"model": "one"}));
    assert!(apply(&pool, &tutor, &token).0);
    let (status, _) = rpc(&pool, &tutor, "ping", &json!({}));
    assert_eq!(status, 200);
}
