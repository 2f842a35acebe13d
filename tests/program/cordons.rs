//! Devices out of service (M7), with the real program: orders over HTTP, their effect on engines, and restarts.

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

const TWO_DEVICES: &str =
    "inventory: {provider: fixed, devices: [{name: d0, memory: 16GiB}, {name: d1, memory: 16GiB}]}
";

/// A model of 10 GiB whose engine is the stub.
fn stub(name: &str, flags: &[&str]) -> (String, String) {
    support::stub::model(name, flags, "memory_gib: 10")
}

fn chat(model: &str, stream: bool) -> String {
    json!({"model": model, "stream": stream, "messages": [{"role": "user", "content": "x"}]})
        .to_string()
}

fn device(pool: &Pool, name: &str) -> Value {
    let (_, list) = pool.admin("GET", "/llm/admin/devices", &Value::Null);
    let devices = list["devices"].as_array().expect("devices").clone();
    devices
        .into_iter()
        .find(|device| device["device"] == name)
        .expect("the device")
}

/// The device of the model's replica, once it is listed.
fn stands_on(pool: &Pool, model: &str) -> String {
    let mut found = None;
    wait_for("the replica to be seen", || {
        let path = format!("/llm/admin/models?model={model}");
        let (_, shown) = pool.admin("GET", &path, &Value::Null);
        let device = &shown["models"][0]["replicas"][0]["devices"][0]["device"];
        found = device.as_str().map(str::to_owned);
        found.is_some()
    });
    found.expect("just seen")
}

#[test]
fn a_cordoned_device_is_emptied_and_the_next_load_uses_another() {
    let pool = Pool::with_devices(&[stub("one", &[])], TWO_DEVICES);
    assert_eq!(
        pool.post("/v1/chat/completions", &chat("one", false)).0,
        200
    );
    let on = stands_on(&pool, "one");
    let (status, response) = pool.admin(
        "POST",
        "/llm/admin/devices/cordon",
        &json!({"device": on, "reason": "new fan", "until": "2h"}),
    );
    assert_eq!(status, 200, "{response}");
    assert_eq!(
        response["left"].as_array().map(Vec::len),
        Some(1),
        "{response}"
    );
    assert_eq!(response["draining"], json!([]));
    let shown = device(&pool, &on);
    assert_eq!(shown["cordon"]["reason"], "new fan", "{shown}");
    assert!(shown["cordon"]["until_at"].is_string(), "{shown}");
    assert_eq!(
        (&shown["free_bytes"], &shown["owners"]),
        (&json!(0), &json!([]))
    );
    assert_eq!(
        pool.post("/v1/chat/completions", &chat("one", false)).0,
        200
    );
    assert_ne!(stands_on(&pool, "one"), on);
    let (status, plan) = pool.admin(
        "POST",
        "/llm/admin/plan",
        &json!({"model": "one", "replicas": 2}),
    );
    assert_eq!(status, 200, "{plan}");
}

#[test]
fn a_cordon_without_waiting_reports_what_drains_and_lets_a_stream_finish() {
    let talk = ["--tokens", "150", "--token-ms", "40"];
    let pool = Pool::with_devices(&[stub("talker", &talk)], TWO_DEVICES);
    let stream = pool.stream("/v1/chat/completions", &chat("talker", true));
    wait_for("the first chunk", || stream.text().contains("data: "));
    let on = stands_on(&pool, "talker");
    let (status, response) = pool.admin(
        "POST",
        "/llm/admin/devices/cordon",
        &json!({"device": on, "wait": false}),
    );
    assert_eq!(status, 202, "{response}");
    assert_eq!(response["draining"][0]["model"], "talker", "{response}");
    assert_eq!(response["draining"][0]["in_flight"], 1, "{response}");
    assert!(response["cut_at"].is_string(), "{response}");
    assert!(
        response["cordon"]["reason"]
            .as_str()
            .is_some_and(|reason| reason.starts_with("cordoned by "))
    );
    assert!(stream.whole().trim_end().ends_with("data: [DONE]"));
    wait_for("the device to be empty", || {
        device(&pool, &on)["owners"] == json!([])
    });
}

#[test]
fn a_cordon_survives_kill_9_until_it_is_lifted() {
    let mut pool = Pool::with_devices(&[stub("one", &[])], TWO_DEVICES);
    let cordon = |pool: &Pool, path: &str, body: Value| pool.admin("POST", path, &body);
    for name in ["d0", "1"] {
        let body = json!({"device": name, "reason": "moved"});
        assert_eq!(cordon(&pool, "/llm/admin/devices/cordon", body).0, 200);
    }
    pool.kill_and_restart();
    for name in ["d0", "d1"] {
        assert_eq!(device(&pool, name)["cordon"]["reason"], "moved");
    }
    let (status, refused) = cordon(&pool, "/llm/admin/load", json!({"model": "one"}));
    assert_eq!(status, 409, "{refused}");
    let candidates = refused["plan"]["candidates"]
        .as_array()
        .expect("candidates");
    let says = |candidate: &Value| {
        candidate["verdict"]
            .as_str()
            .is_some_and(|text| text.contains("moved"))
    };
    assert!(
        !candidates.is_empty() && candidates.iter().all(says),
        "{refused}"
    );
    let (status, response) = cordon(
        &pool,
        "/llm/admin/devices/uncordon",
        json!({"device": "d1"}),
    );
    assert_eq!((status, &response["device"]), (200, &json!("d1")));
    assert_eq!(
        pool.post("/v1/chat/completions", &chat("one", false)).0,
        200
    );
    assert_eq!(stands_on(&pool, "one"), "d1");
    pool.kill_and_restart();
    assert_eq!(device(&pool, "d1")["cordon"], Value::Null);
    assert_eq!(device(&pool, "d0")["cordon"]["reason"], "moved");
    let (_, events) = pool.admin("GET", "/llm/admin/events", &Value::Null);
    let kinds: Vec<&str> = events["events"]
        .as_array()
        .expect("events")
        .iter()
        .filter_map(|event| event["kind"].as_str())
        .collect();
    assert!(
        kinds.contains(&"cordon") && kinds.contains(&"uncordon"),
        "{kinds:?}"
    );
}

#[test]
fn an_invalid_cordon_is_refused_with_the_existing_devices() {
    let pool = Pool::with_devices(&[stub("one", &[])], TWO_DEVICES);
    let cases = [
        (
            "cordon",
            json!({"device": "gpu7"}),
            404,
            "d0 (index 0), d1 (index 1)",
        ),
        ("cordon", json!({}), 400, "device"),
        (
            "cordon",
            json!({"device": "d0", "until": "soon"}),
            400,
            "until",
        ),
        (
            "cordon",
            json!({"device": "d0", "untl": "2h"}),
            400,
            "did you mean until?",
        ),
        ("uncordon", json!({"device": "d0"}), 409, "d0"),
        ("uncordon", json!({"device": "gpu7"}), 404, "d0 (index 0)"),
    ];
    for (what, body, status, words) in cases {
        let path = format!("/llm/admin/devices/{what}");
        let (got, response) = pool.admin("POST", &path, &body);
        assert_eq!(got, status, "{what} {body}: {response}");
        let message = response["error"]["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{what} {body}: {message}");
    }
}

/// Runs `admin-client` and returns its output, including standard error.
fn client(pool: &Pool, words: &[&str]) -> (Option<i32>, String) {
    let output = std::process::Command::new(support::profile_dir().join("admin-client"))
        .args(words)
        .env("MODEL_POOL_SERVER", format!("http://{}", pool.address()))
        .env("MODEL_POOL_ADMIN_KEY", pool.admin_key())
        .stdin(std::process::Stdio::null())
        .output()
        .expect("admin-client is built with the tests");
    let stderr = String::from_utf8(output.stderr).expect("UTF-8");
    (output.status.code(), stderr)
}

#[test]
fn the_client_reports_waiting_only_after_the_order_was_accepted() {
    let talk = ["--tokens", "150", "--token-ms", "40"];
    let pool = Pool::with_devices(&[stub("talker", &talk)], TWO_DEVICES);
    for words in [
        &["cordon", "gpu9"][..],
        &["unload", "talkr"],
        &["unload", "talker", "--replica", "r9"],
    ] {
        let (status, stderr) = client(&pool, words);
        assert_eq!(status, Some(1), "{words:?}: {stderr}");
        assert!(stderr.starts_with("error: "), "{words:?}: {stderr}");
    }
    let waiting = "Waiting for the requests in flight to end";
    for words in [
        &["cordon", "DEVICE"][..],
        &["unload", "talker"],
        &["cleanup", "--yes"],
    ] {
        let stream = pool.stream("/v1/chat/completions", &chat("talker", true));
        wait_for("the first chunk", || stream.text().contains("data: "));
        let on = stands_on(&pool, "talker");
        let words: Vec<&str> = words
            .iter()
            .map(|word| if *word == "DEVICE" { &on } else { *word })
            .collect();
        let (status, stderr) = client(&pool, &words);
        assert_eq!(status, Some(0), "{words:?}: {stderr}");
        assert!(stderr.contains(waiting), "{words:?}: {stderr}");
        assert!(stream.whole().trim_end().ends_with("data: [DONE]"));
    }
}
