//! Groups of callers in events, reports and charts, and the names that a viewer of a group sees.

use std::process::Command;

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

use crate::group_quotas::stream;
use crate::permissions::admin;

const GROUPS: &str = "auth: {inference: key}\ngroups: {physics: {}, lab: {parent: physics, models: [high], keys: [ann, screen]}, course: {keys: [eve]}}\n";

fn model(name: &str, tokens: &[&str], more: &str) -> (String, String) {
    let flags = [["--model", name].as_slice(), tokens].concat();
    support::stub::model(name, &flags, &format!("memory_gib: 10{more}"))
}

fn key(pool: &Pool, name: &str, role: &str) -> String {
    let wish = json!({"name": name, "role": role});
    let (status, made) = admin(pool, &pool.admin_key(), "POST", "/keys", &wish);
    assert_eq!(status, 200, "{made}");
    made["key"].as_str().unwrap().to_owned()
}

fn get(pool: &Pool, path: &str) -> Value {
    let (status, found) = admin(pool, &pool.admin_key(), "GET", path, &Value::Null);
    assert_eq!(status, 200, "{path}: {found}");
    found
}

fn chat(pool: &Pool, model: &str, key: &str) {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Hello"}]});
    let (status, text, _) =
        pool.request("POST", "/v1/chat/completions", &body.to_string(), Some(key));
    assert_eq!(status, 200, "{text}");
}

fn client(pool: &Pool, arguments: &[&str]) -> String {
    let server = format!("http://{}", pool.address());
    let run = Command::new(support::profile_dir().join("admin-client"))
        .args(arguments)
        .args(["--server", &server, "--key", &pool.admin_key()])
        .output()
        .unwrap();
    assert!(run.status.success(), "{run:?}");
    String::from_utf8(run.stdout).unwrap()
}

/// The kinds of the events of a group, with the groups of their callers.
fn events(pool: &Pool, group: &str) -> Vec<(String, String)> {
    let found = get(pool, &format!("/events?group={group}"));
    let events = found["events"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or("none").to_owned();
    events
        .map(|event| (text(&event["kind"]), text(&event["group"])))
        .collect()
}

#[test]
fn events_and_reports_name_the_group_of_the_caller_and_include_the_groups_below() {
    let short = ["--tokens", "2"];
    let models = [
        model("low", &short, ""),
        model("high", &short, ", priority: 1"),
    ];
    let pool = Pool::with_models(&models, GROUPS);
    let [ann, eve] = ["ann", "eve"].map(|name| key(&pool, name, "user"));
    chat(&pool, "low", &eve);
    chat(&pool, "high", &ann);
    let has = |group: &str, kind: &str, path: &str| {
        events(&pool, group).contains(&(kind.to_owned(), path.to_owned()))
    };
    wait_for("the eviction", || has("physics", "evict", "physics/lab"));
    wait_for("the loads", || {
        has("lab", "load", "physics/lab") && has("course", "load", "course")
    });
    let all = events(&pool, "physics");
    assert!(
        all.iter().all(|(_, group)| group == "physics/lab"),
        "{all:?}"
    );
    assert!(events(&pool, "absent").is_empty());
    let printed = client(&pool, &["events", "--group", "physics", "--kind", "evict"]);
    assert!(printed.contains("preempted by high"), "{printed}");
    let why = get(&pool, "/why?model=low");
    assert_eq!(why["group"], "physics/lab", "{why}");

    let of = |group: &str| {
        let report = get(&pool, "/report?from=2h");
        let mut groups = report["groups"].as_array().unwrap().iter();
        groups.find(|row| row["group"] == group).cloned()
    };
    wait_for("the requests of both groups", || {
        ["physics/lab", "course"]
            .iter()
            .all(|group| of(group).is_some_and(|row| row["requests"] == 1))
    });
    let lab = of("physics/lab").unwrap();
    assert_eq!(
        (&lab["waited"], &lab["cold_starts"]),
        (&json!(1), &json!(1)),
        "{lab}"
    );
    assert!(lab["waited_seconds"].as_f64() > Some(0.0), "{lab}");
    assert!(lab["tokens"].as_u64() > Some(2), "{lab}");
    let csv = client(&pool, &["report", "--week", "--csv", "--by-group"]);
    assert!(csv.starts_with("group,requests"), "{csv}");
    assert!(csv.contains("\"physics/lab\",1,1,"), "{csv}");
    let table = client(&pool, &["report", "--day"]);
    assert!(table.contains("physics/lab"), "{table}");
}

#[test]
fn charts_have_the_steps_of_their_period() {
    let pool = Pool::with_models(&[model("low", &["--tokens", "2"], "")], "");
    for (period, steps, seconds) in [("hour", 60, 60), ("day", 96, 900), ("week", 168, 3_600)] {
        let usage = get(&pool, &format!("/usage?charts={period}"));
        let points = usage["charts"].as_array().unwrap();
        assert_eq!(points.len(), steps);
        assert_eq!(points[0]["seconds"], seconds);
        assert_eq!(points[0]["first_token_p95_seconds"], Value::Null);
    }
    assert_eq!(get(&pool, "/usage")["charts"], Value::Null);
    let path = "/usage?charts=year";
    let (status, refused) = admin(&pool, &pool.admin_key(), "GET", path, &Value::Null);
    assert_eq!(status, 400, "{refused}");
}

#[test]
fn a_viewer_of_a_group_with_models_does_not_see_the_keys_of_other_groups() {
    let slow = ["--tokens", "4000", "--token-ms", "10"];
    let (name, text) = model("high", &slow, "");
    let text = text + "deployment_config: {max_ongoing_requests: 1}\n";
    let pool = Pool::with_models(&[(name, text)], GROUPS);
    let [ann, eve] = ["ann", "eve"].map(|name| key(&pool, name, "user"));
    let [screen, other] = ["screen", "other"].map(|name| key(&pool, name, "viewer"));
    let body =
        json!({"model": "high", "stream": true, "messages": [{"role": "user", "content": "x"}]});
    let _running = stream(&pool, &ann, &body);
    wait_for("the seat", || {
        get(&pool, "/models")["models"][0]["replicas"][0]["in_flight"] == 1
    });
    let _waiting = [stream(&pool, &ann, &body), stream(&pool, &eve, &body)];
    let names = |reader: &str| {
        let (status, queue) = admin(&pool, reader, "GET", "/queue", &Value::Null);
        assert_eq!(status, 200, "{queue}");
        let waiting = queue["waiting"].as_array().unwrap().iter();
        let mut names: Vec<String> = waiting
            .map(|waiting| format!("{} {}", waiting["key"], waiting["group"]).replace('"', ""))
            .collect();
        names.sort_unstable();
        names
    };
    wait_for("both requests", || names(&pool.admin_key()).len() == 2);
    let all = ["ann physics/lab", "eve course"];
    assert_eq!(names(&pool.admin_key()), all);
    assert_eq!(names(&other), all, "a viewer without a group sees all");
    assert_eq!(names(&screen), ["ann physics/lab", "another key null"]);
}
