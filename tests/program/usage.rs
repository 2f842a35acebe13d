//! The account of device time, with the real program: who used a device, who held it idle, and the time that no controller has seen.

use std::collections::BTreeSet;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use support::net::stub;
use support::service::{Pool, wait_for};

const STATES: [&str; 8] = [
    "used",
    "idle",
    "loading",
    "asleep",
    "foreign",
    "cordoned",
    "free",
    "not_known",
];

fn chat(pool: &Pool, key: &str, model: &str) {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hello"}]});
    let path = "/v1/chat/completions";
    let (status, text, _) = pool.request("POST", path, &body.to_string(), Some(key));
    assert_eq!(status, 200, "{text}");
}

fn usage(pool: &Pool, query: &str) -> Value {
    let (status, usage) = pool.admin("GET", &format!("/llm/admin/usage{query}"), &json!(null));
    assert_eq!(status, 200, "{usage}");
    usage
}

fn seconds(sums: &Value, state: &str) -> f64 {
    sums["seconds"][state].as_f64().unwrap()
}

fn row<'a>(usage: &'a Value, model: &str, name: &str) -> &'a Value {
    let rows = usage["rows"].as_array().unwrap();
    let found = rows
        .iter()
        .find(|row| row["model"] == model && row["name"] == name);
    found.unwrap_or_else(|| panic!("no row of {name} for {model}: {usage}"))
}

/// Ends the program, which writes the rest of the account, and starts it again.
fn restart(pool: &mut Pool) {
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(30)));
    pool.restart();
}

#[test]
fn device_time_is_charged_to_the_keys_that_used_and_held_it() {
    let slow = [
        "--tokens",
        "100",
        "--token-ms",
        "10",
        "--ready-after-ms",
        "500",
    ];
    let models = [stub("one", &slow), stub("two", &slow)];
    let config = "auth: {inference: key}\nusage: {prices: {device_hour: 3600}}\n\
        groups: {physics: {}, lab: {parent: physics, keys: [ann, '=bob()']}, course: {}}\n";
    let mut pool = Pool::with_models(&models, config);
    let (_, ann) = pool.new_key("ann");
    let (_, bob) = pool.new_key("=bob()");
    let (_, eve) = pool.new_key("eve");
    let key = |made: &Value| made["key"].as_str().unwrap().to_owned();
    chat(&pool, &key(&ann), "one");
    chat(&pool, &key(&bob), "one");
    chat(&pool, &key(&bob), "two");
    chat(&pool, &key(&eve), "two");
    restart(&mut pool);

    let all = usage(&pool, "");
    let used = |model, name| seconds(row(&all, model, name), "used");
    for (model, name) in [
        ("one", "ann"),
        ("one", "=bob()"),
        ("two", "=bob()"),
        ("two", "eve"),
    ] {
        assert!(used(model, name) > 0.0, "{model} {name}: {all}");
    }
    // Both requests take equally long. The machine may be busy.
    let (first, second) = (used("one", "ann"), used("one", "=bob()"));
    assert!(
        first / second > 0.1 && first / second < 10.0,
        "{first} {second}"
    );
    let loading = seconds(row(&all, "one", "ann"), "loading");
    assert!(loading > 0.0, "ann's request loaded the model: {all}");
    let row = row(&all, "one", "ann");
    let held: f64 = STATES.iter().map(|state| seconds(row, state)).sum();
    let cost = row["cost"].as_f64().unwrap();
    assert!((cost - held).abs() < 0.01, "a price of 1 per second: {row}");
    assert_eq!(row["energy_joules"], json!(null), "unknown is not zero");
    for device in all["devices"].as_array().unwrap() {
        let sum: f64 = STATES.iter().map(|state| seconds(device, state)).sum();
        let wall = device["wall_seconds"].as_f64().unwrap();
        assert!((sum - wall).abs() < 0.001 * wall, "{device}");
    }
    let only = usage(
        &pool,
        &format!("?of={}&model=two", bob["id"].as_str().unwrap()),
    );
    assert_eq!(only["rows"].as_array().unwrap().len(), 1);
    assert_eq!(row["group"], "physics/lab");
    let rows_of = |query: &str| {
        let rows = usage(&pool, query)["rows"].as_array().unwrap().clone();
        let names = rows
            .iter()
            .map(|row| row["name"].as_str().unwrap().to_owned());
        let names: BTreeSet<String> = names.collect();
        names.into_iter().collect::<Vec<_>>()
    };
    for group in ["lab", "physics", "physics/lab"] {
        assert_eq!(rows_of(&format!("?group={group}")), ["=bob()", "ann"]);
    }
    assert_eq!(rows_of("?group=lab&of=ann"), ["ann"]);
    assert!(rows_of("?group=course").is_empty());
    let path = "/llm/admin/usage?format=csv";
    let (status, csv, _) = pool.request("GET", path, "", Some(&pool.admin_key()));
    assert_eq!(status, 200);
    assert!(csv.contains("\"'=bob()\""), "{csv}");

    let (status, mine, _) = pool.request("GET", "/llm/me/usage", "", Some(&key(&ann)));
    assert_eq!(status, 200, "{mine}");
    let mine: Value = serde_json::from_str(&mine).unwrap();
    let time = mine["device_time"].as_array().unwrap();
    assert_eq!(time.len(), 1, "{mine}");
    assert_eq!(seconds(&time[0], "used"), first);

    for (query, param) in [
        ("?month=2026-13", "month"),
        ("?of=nobody", "of"),
        ("?group=nobody", "group"),
        ("?format=html", "format"),
    ] {
        let (status, refused) =
            pool.admin("GET", &format!("/llm/admin/usage{query}"), &json!(null));
        let found = refused["error"]["param"].as_str();
        assert_eq!((status, found), (400, Some(param)), "{refused}");
    }
}

#[test]
fn time_without_a_controller_is_not_known_and_wall_time_has_no_gap() {
    let mut pool = Pool::with_models(&[stub("one", &[])], "");
    restart(&mut pool);
    let before = usage(&pool, "");
    let wall = |usage: &Value| usage["devices"][0]["wall_seconds"].as_f64().unwrap();
    let unknown = |usage: &Value| seconds(&usage["devices"][0], "not_known");
    assert!(wall(&before) > 0.0, "{before}");
    pool.kill_and_restart();
    restart(&mut pool);
    let after = usage(&pool, "");
    assert!(unknown(&after) > unknown(&before), "{before} {after}");
    assert!(wall(&after) > wall(&before));
}

/// Polls for longer than the minute between two writes.
fn wait_for_a_minute(what: &str, mut so: impl FnMut() -> bool) {
    let began = SystemTime::now();
    while !so() {
        let waited = began.elapsed().unwrap_or_default();
        assert!(
            waited < Duration::from_secs(120),
            "waited in vain for {what}"
        );
        thread::park_timeout(Duration::from_millis(100));
    }
}

#[test]
fn the_account_is_written_every_minute_and_shown_by_the_client() {
    let pool = Pool::with_models(&[stub("one", &[])], "");
    chat(&pool, &pool.admin_key(), "one");
    wait_for_a_minute("the account of a minute", || {
        !usage(&pool, "")["rows"].as_array().unwrap().is_empty()
    });
    let run = |arguments: &[&str]| {
        let output = Command::new(support::profile_dir().join("admin-client"))
            .args(arguments)
            .env("MODEL_POOL_SERVER", format!("http://{}", pool.address()))
            .env("MODEL_POOL_ADMIN_KEY", pool.admin_key())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let table = run(&["usage"]);
    for word in ["MODEL", "total", "one", "gpu0", "FREE"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    let csv = run(&["usage", "--model", "one", "--csv"]);
    assert!(
        csv.starts_with("month,model,group,key,name,used_seconds"),
        "{csv}"
    );
    let sample = "model_pool_device_seconds_total{device=\"gpu0\",state=\"free\"}";
    wait_for("the totals to be published", || {
        let (_, metrics, _) = pool.request("GET", "/metrics", "", None);
        metrics.contains(sample)
    });
}

#[test]
fn the_device_time_of_batches_is_a_part_of_the_used_time() {
    let pool = Pool::with_models(&[stub("one", &["--tokens", "20", "--token-ms", "10"])], "");
    let params = json!({"model": "one", "max_tokens": 20,
        "messages": [{"role": "user", "content": "hello"}]});
    let requests = json!([{"custom_id": "1", "params": params}]);
    let path = "/v1/messages/batches";
    let (status, batch) = pool.admin("POST", path, &json!({"requests": requests}));
    assert_eq!(status, 200, "{batch}");
    wait_for_a_minute("the account of the batch", || {
        seconds(&usage(&pool, "")["total"], "used_by_batches") > 0.0
    });
    let usage = usage(&pool, "");
    let sums = &usage["total"];
    assert!(
        seconds(sums, "used") >= seconds(sums, "used_by_batches"),
        "{usage}"
    );
}

#[test]
fn a_negative_price_is_refused_with_its_line() {
    let (code, text) = Pool::refused("usage:\n  prices:\n    device_hour: -1\n");
    assert_ne!(code, Some(0));
    assert!(
        text.contains("usage.prices.device_hour") && text.contains("is -1"),
        "{text}"
    );
    assert!(text.contains(":3") || text.contains("line"), "{text}");
}
