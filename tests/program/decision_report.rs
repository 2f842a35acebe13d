//! The decision behind an event, the filters of the history, and the report, over the API and the command line.

use std::process::Command;

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

use crate::permissions::{admin, key};

fn model(name: &str, more: &str) -> (String, String) {
    let flags = ["--model", name, "--tokens", "2"];
    support::stub::model(name, &flags, &format!("memory_gib: 10{more}"))
}

fn get(pool: &Pool, path: &str) -> (u16, Value) {
    admin(pool, &pool.admin_key(), "GET", path, &Value::Null)
}

fn chat(pool: &Pool, model: &str, key: &str) {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Hello"}]});
    let (status, text, _) =
        pool.request("POST", "/v1/chat/completions", &body.to_string(), Some(key));
    assert_eq!(status, 200, "{text}");
}

fn client(pool: &Pool, arguments: &[&str]) -> (Option<i32>, String, String) {
    let run = Command::new(support::profile_dir().join("admin-client"))
        .args(arguments)
        .args([
            "--server",
            &format!("http://{}", pool.address()),
            "--key",
            &pool.admin_key(),
        ])
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (run.status.code(), text(run.stdout), text(run.stderr))
}

/// `low` was evicted by a request for `high` with the key `ann`.
fn evicted() -> (Pool, String) {
    let pool = Pool::with_models(&[model("low", ""), model("high", ", priority: 1")], "");
    let ann = key(&pool, json!({"role": "user"}));
    chat(&pool, "low", &pool.admin_key());
    chat(&pool, "high", &ann);
    wait_for("the eviction in the history", || {
        get(&pool, "/events?kind=evict").1["events"]
            .as_array()
            .is_some_and(|events| !events.is_empty())
    });
    (pool, ann)
}

#[test]
fn an_eviction_names_the_requester_the_comparison_and_the_memory() {
    let (pool, _) = evicted();
    let (status, why) = get(&pool, "/why?model=low");
    assert_eq!(status, 200, "{why}");
    assert_eq!(
        (&why["what"], &why["model"], &why["asked_by"]),
        (&json!("evict"), &json!("low"), &json!("made"))
    );
    let low = &why["candidates"][0];
    assert_eq!(
        (&low["model"], &low["chosen"], &low["priority"]),
        (&json!("low"), &json!(true), &json!(0))
    );
    assert_eq!(low["memory_bytes"], 10_u64 << 30);
    assert!(
        low["words"]
            .as_str()
            .unwrap()
            .starts_with("leaves: priority 0"),
        "{why}"
    );
    assert!(why["memory"][0]["after_bytes"].as_u64() > Some(0), "{why}");
    assert!(
        why["words"].to_string().contains("high, priority 1, needs"),
        "{why}"
    );

    // The replica's end refers to the eviction, and the load that caused it shares the decision.
    wait_for("the end of the replica", || {
        !get(&pool, "/events?model=low&kind=gone").1["events"]
            .as_array()
            .unwrap()
            .is_empty()
    });
    let gone = get(&pool, "/events?model=low&kind=gone").1["events"][0]["id"].clone();
    let (_, end) = get(&pool, &format!("/why?event={gone}"));
    assert_eq!(
        (&end["decided_by"], &end["candidates"]),
        (&why["event"], &why["candidates"])
    );
    let (_, load) = get(&pool, "/why?model=high");
    assert_eq!(
        (&load["what"], &load["candidates"]),
        (&json!("load"), &why["candidates"])
    );

    let (status, text, errors) = client(&pool, &["why", "low"]);
    assert_eq!(status, Some(0), "{errors}");
    for part in [
        "evict low",
        "asked by",
        "made",
        "Compared",
        "left",
        "Memory in use or reserved",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (status, text, _) = client(&pool, &["why", &why["event"].to_string()]);
    assert!(
        status == Some(0) && text.contains("preempted by high"),
        "{text}"
    );
    let (status, _, errors) = client(&pool, &["why", "999999"]);
    assert!(
        status == Some(1) && errors.contains("event 999999 does not exist"),
        "{errors}"
    );
}

#[test]
fn a_refusal_is_explained_by_the_obstacle() {
    let models = [
        model("hot", ", priority: 2"),
        model("late", ", queue_timeout: 1s"),
    ];
    let pool = Pool::with_models(&models, "");
    wait_for("the always-hot model", || {
        get(&pool, "/models?model=hot").1["models"][0]["state"] == "ready"
    });
    let (status, refused) = admin(
        &pool,
        &pool.admin_key(),
        "POST",
        "/load",
        &json!({"model": "late"}),
    );
    assert_eq!(status, 409, "{refused}");
    wait_for("the refusal in the history", || {
        get(&pool, "/why?model=late").0 == 200
    });
    let (_, why) = get(&pool, "/why?model=late");
    assert_eq!(why["what"], "refuse");
    let hot = &why["candidates"][0];
    assert_eq!(
        (&hot["model"], &hot["chosen"]),
        (&json!("hot"), &json!(false))
    );
    assert!(
        hot["words"].as_str().unwrap().contains("always-hot (P4)"),
        "{why}"
    );
}

#[test]
fn the_history_is_filtered_by_time_reason_and_key() {
    let (pool, _) = evicted();
    let count = |filter: &str| {
        let (status, list) = get(&pool, &format!("/events?{filter}"));
        assert_eq!(status, 200, "{list}");
        list["events"].as_array().unwrap().len()
    };
    assert_eq!(count("since=1h&model=low&reason=preempted&by=made"), 1);
    assert_eq!(count("reason=preempted&model=high"), 0);
    assert_eq!(count("until=1h"), 0, "nothing happened before");
    assert_eq!(
        count("reason=requests&by=k1"),
        1,
        "the first administrator's request for low"
    );
    for (wrong, word) in [
        ("since=soon", "2d"),
        ("reason=bad", "preempted"),
        ("by=nobody", "key"),
    ] {
        let (status, refused) = get(&pool, &format!("/events?{wrong}"));
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(status == 400 && message.contains(word), "{message}");
    }
    let arguments = [
        "events",
        "--since",
        "2d",
        "--model",
        "low",
        "--reason",
        "preempted",
        "--by",
        "made",
    ];
    let (status, text, errors) = client(&pool, &arguments);
    assert!(
        status == Some(0) && text.contains("preempted by high"),
        "{text}{errors}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn the_report_matches_the_recorded_events() {
    let (mut pool, _) = evicted();
    // Requests are counted per minute, and at the end.
    pool.terminate();
    assert!(pool.wait(std::time::Duration::from_secs(60)));
    pool.restart();
    let (status, report) = get(&pool, "/report?from=1h");
    assert_eq!(status, 200, "{report}");
    let of = |name: &str| {
        let models = report["models"].as_array().unwrap();
        models
            .iter()
            .find(|model| model["model"] == name)
            .cloned()
            .unwrap()
    };
    assert_eq!(
        (&of("low")["cold_starts"], &of("low")["loads"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(of("low")["evictions"], json!({"preempted": 1}));
    assert_eq!(
        (&of("high")["requests"], &of("high")["waited"]),
        (&json!(1), &json!(1))
    );
    assert!(
        of("high")["waited_seconds"].as_f64() > Some(0.0),
        "{report}"
    );
    assert_eq!(
        (&report["total"]["requests"], &report["total"]["loads"]),
        (&json!(2), &json!(2))
    );
    let (_, csv, errors) = client(&pool, &["report", "--week", "--csv"]);
    assert!(csv.starts_with("model,requests"), "{csv}{errors}");
    assert_eq!(csv.lines().count(), 4, "{csv}");
    let (_, page, _) = client(&pool, &["report", "--html"]);
    assert!(
        page.starts_with("<!doctype html>") && page.contains("preempted 1"),
        "{page}"
    );
    let (_, table, _) = client(&pool, &["report", "--day"]);
    assert!(
        table.contains("total") && table.contains("evicted preempted 1"),
        "{table}"
    );
    assert_eq!(get(&pool, "/report?from=1h&to=2h").0, 400);
}
