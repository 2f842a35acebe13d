//! Batches in metrics, in the usage of their keys, and in the limits of files.

use serde_json::{Value, json};
use support::service::Pool;

use super::{CHAT, created, ended, line, lines, model, shown, upload};

const MESSAGES: &str = "/v1/messages/batches";

/// The value of a sample of `/metrics`.
fn sample(pool: &Pool, name: &str) -> Option<f64> {
    let (status, text, _) = pool.request("GET", "/metrics", "", None);
    assert_eq!(status, 200, "{text}");
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|value| value.trim().parse().ok())
}

#[test]
fn metrics_have_the_batches_and_the_requests_by_result() {
    let pool = Pool::with_models(&[model("writer", 4, 1, &["--tokens", "2"])], "");
    let result = |result: &str| {
        let name = format!("model_pool_batch_requests_total{{result=\"{result}\"}}");
        sample(&pool, &name)
    };
    assert_eq!(result("completed"), Some(0.0));
    let requests = [line("1", "writer"), line("2", "writer"), line("3", "none")];
    let id = created(&pool, &lines(requests), "24h");
    ended(&pool, &id, "completed");
    assert_eq!(
        (result("completed"), result("failed")),
        (Some(2.0), Some(1.0))
    );
    let bytes = sample(&pool, "model_pool_batch_result_bytes_total");
    assert!(bytes.is_some_and(|bytes| bytes > 100.0), "{bytes:?}");
    let speed = sample(&pool, "model_pool_batch_requests_per_second");
    assert!(speed.is_some_and(|speed| speed > 0.0), "{speed:?}");
    let open = |state: &str| {
        let name = format!("model_pool_batch_open{{state=\"{state}\"}}");
        sample(&pool, &name)
    };
    for state in ["running", "waiting", "paused", "ending"] {
        assert_eq!(open(state), Some(0.0), "{state}");
    }
}

#[test]
fn the_usage_of_a_key_names_the_part_of_its_batches() {
    let pool = Pool::with_models(
        &[model("writer", 4, 1, &["--tokens", "2"])],
        "auth: {inference: key}\n",
    );
    let (_, made) = pool.new_key("ann");
    let key = made["key"].as_str().expect("a key");
    let messages = json!([{"role": "user", "content": "Name a river."}]);
    let body = json!({"model": "writer", "messages": messages});
    let (status, response) = pool.call(Some(key), "POST", CHAT, &body);
    assert_eq!(status, 200, "{response}");
    let params = json!({"model": "writer", "max_tokens": 5, "messages": messages});
    let requests = ["1", "2"].map(|id| json!({"custom_id": id, "params": params}));
    let (status, batch) = pool.call(Some(key), "POST", MESSAGES, &json!({"requests": requests}));
    assert_eq!(status, 200, "{batch}");
    let path = format!("{MESSAGES}/{}", batch["id"].as_str().expect("an id"));
    support::service::wait_for("the end of the batch", || {
        let (_, batch) = pool.call(Some(key), "GET", &path, &Value::Null);
        batch["processing_status"] == "ended"
    });
    let (status, usage) = pool.call(Some(key), "GET", "/llm/me/usage", &Value::Null);
    assert_eq!(status, 200, "{usage}");
    let used = &usage["days"][0]["models"][0];
    assert_eq!(used["requests"], 3, "{usage}");
    assert_eq!(used["batches"]["requests"], 2, "{usage}");
    let tokens = |part: &Value| part["completion_tokens"].as_u64().expect("a number");
    let of_batches = tokens(&used["batches"]);
    assert!(of_batches > 0 && of_batches < tokens(used), "{usage}");
}

#[test]
fn results_of_a_running_batch_count_for_the_limits_of_files() {
    let models = [
        model("small", 2, 6, &["--tokens", "20"]),
        model("large", 2, 14, &["--tokens", "2"]),
    ];
    let pool = Pool::with_models(
        &models,
        "batch: {hours: never, files_max: 2KiB, per_key_size: 4KiB}\n",
    );
    let messages = json!([{"role": "user", "content": "Stay."}]);
    let body = json!({"model": "small", "messages": messages});
    let (status, response) = pool.call(None, "POST", CHAT, &body);
    assert_eq!(status, 200, "{response}");
    // The last request waits for memory, which keeps the batch open.
    let requests = (0..10).map(|nth| line(&nth.to_string(), "small"));
    let text = lines(requests.chain([line("last", "large")]));
    let id = created(&pool, &text, "24h");
    support::service::wait_for("the results", || {
        shown(&pool, &id)["request_counts"]["completed"] == 10
    });
    assert_eq!(shown(&pool, &id)["status"], "in_progress");
    let (status, refused) = upload(&pool, &text);
    assert_eq!(status, 413, "{refused}");
    assert_eq!(refused["error"]["code"], "file_too_large", "{refused}");
}

#[test]
fn the_results_of_open_batches_count_as_files() {
    let models = [
        model("small", 2, 6, &["--tokens", "2"]),
        model("large", 2, 14, &["--tokens", "2"]),
    ];
    let pool = Pool::with_models(&models, "batch: {hours: never, per_key: 3}\n");
    let messages = json!([{"role": "user", "content": "Stay."}]);
    let body = json!({"model": "small", "messages": messages});
    let (status, response) = pool.call(None, "POST", CHAT, &body);
    assert_eq!(status, 200, "{response}");
    created(&pool, &lines([line("1", "large")]), "24h");
    let (status, refused) = upload(&pool, &lines([line("1", "small")]));
    assert_eq!(status, 429, "{refused}");
    assert_eq!(refused["error"]["code"], "too_many_files", "{refused}");
}
