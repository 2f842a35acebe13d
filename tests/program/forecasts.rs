//! Forecasts of waits on the real binary: comments of a waiting stream, the queue, plans, metrics and the report.

use std::thread;

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

use crate::permissions::admin;

/// The time of a load in milliseconds: waits of a second or longer are compared with their forecasts.
const LOAD_MS: &str = "5000";

fn model(name: &str) -> (String, String) {
    let flags = [
        "--model",
        name,
        "--tokens",
        "2",
        "--ready-after-ms",
        LOAD_MS,
    ];
    support::stub::model(name, &flags, "memory_gib: 10")
}

fn read(pool: &Pool, route: &str) -> Value {
    let (status, response) = admin(pool, &pool.admin_key(), "GET", route, &Value::Null);
    assert_eq!(status, 200, "{route}: {response}");
    response
}

fn counted(pool: &Pool, series: &str) -> f64 {
    let (status, text, _) = pool.request("GET", "/metrics", "", None);
    assert_eq!(status, 200, "{text}");
    let value = text.lines().find_map(|line| line.strip_prefix(series));
    let value = value.unwrap_or_else(|| panic!("{series} is missing: {text}"));
    value.trim().parse().expect("a number")
}

#[test]
fn waits_are_forecast_and_the_forecasts_are_compared_with_them() {
    let models = [model("one"), model("two")];
    let pool = Pool::with_models(&models, "");
    let body = |model: &str| json!({"model": model, "stream": true, "messages": [{"role": "user", "content": "Hello"}]});
    // The models exclude each other: the second one waits for the load and the request of the first.
    let streams = thread::scope(|scope| {
        let chats = ["one", "two"].map(|name| {
            let (pool, body) = (&pool, body(name).to_string());
            scope.spawn(move || pool.post("/v1/chat/completions", &body))
        });
        wait_for("a forecast of both waits", || {
            let queue = read(&pool, "/queue");
            let waiting = queue["waiting"].as_array().expect("a list");
            let is_known = |request: &Value| request["expected_ms"].as_u64() > Some(0);
            waiting.len() == 2 && waiting.iter().all(is_known)
        });
        chats.map(|chat| chat.join().expect("it ends"))
    });
    for (status, text) in &streams {
        assert_eq!(*status, 200, "{text}");
        let comments = text.lines().filter(|line| line.starts_with(": waiting"));
        let expected: Vec<&str> = comments
            .filter_map(|line| line.split("expected_seconds=").nth(1))
            .collect();
        assert!(!expected.is_empty(), "{text}");
    }
    let waits = counted(&pool, "model_pool_wait_forecast_ratio_count");
    assert!(waits >= 2.0, "{waits}");
    let results = ["right", "wrong"].map(|result| {
        counted(
            &pool,
            &format!("model_pool_wait_forecasts_total{{result=\"{result}\"}}"),
        )
    });
    assert_eq!(results[0] + results[1], waits);
    let forecasts = &read(&pool, "/report?from=1h")["forecasts"];
    assert_eq!(forecasts["waits"].as_f64(), Some(waits), "{forecasts}");
    assert!(forecasts["mean_ratio"].as_f64() > Some(0.0), "{forecasts}");

    // The load of the model that left is measured, and its victim leaves quickly. Either request may have come first.
    let left = ["one", "two"].into_iter().find_map(|model| {
        let request = json!({"model": model});
        let (status, plan) = admin(&pool, &pool.admin_key(), "POST", "/plan", &request);
        assert_eq!(status, 200, "{plan}");
        (plan["already_loaded"] == false).then_some(plan)
    });
    let plan = left.expect("one of them left");
    assert!(plan["expected_seconds"].as_f64() >= Some(2.0), "{plan}");
}
