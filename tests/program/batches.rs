//! Files and batches with the real program: uploads, results, exactly once across kills, room that interactive requests leave, free
//! memory, cancellation, ownership, Anthropic's form, and files in a bucket.

mod accounts;
mod bucket;
mod commands;
mod forms;
mod parallel;
mod scheduling;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

const FILES: &str = "/v1/files";
const BATCHES: &str = "/v1/batches";
const CHAT: &str = "/v1/chat/completions";

/// A model whose engine has these flags and this number of seats.
fn model(name: &str, seats: u32, memory_gib: u32, flags: &[&str]) -> (String, String) {
    let pool = format!("memory_gib: {memory_gib}");
    let (file, text) = support::stub::model(name, flags, &pool);
    let seats = format!("deployment_config: {{max_ongoing_requests: {seats}}}\n");
    (file, text + &seats)
}

/// A request of a batch.
fn line(custom_id: &str, model: &str) -> Value {
    let body = json!({"model": model, "messages": [{"role": "user", "content": custom_id}]});
    json!({"custom_id": custom_id, "method": "POST", "url": CHAT, "body": body})
}

fn lines(requests: impl IntoIterator<Item = Value>) -> String {
    let lines = requests.into_iter().map(|request| format!("{request}\n"));
    lines.collect()
}

fn upload(pool: &Pool, text: &str) -> (u16, Value) {
    let body = format!(
        "--x\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"prompts.jsonl\"\r\nContent-Type: application/jsonl\r\n\r\n{text}\r\n--x--\r\n"
    );
    let (status, response, _) = pool.request_as("multipart/form-data; boundary=x", FILES, &body);
    let response = serde_json::from_str(&response).unwrap_or_else(|_| json!(response));
    (status, response)
}

/// Creates a batch of these lines, and returns its id.
fn created(pool: &Pool, text: &str, window: &str) -> String {
    let (status, file) = upload(pool, text);
    assert_eq!(status, 200, "{file}");
    let body = json!({"input_file_id": file["id"], "endpoint": CHAT, "completion_window": window});
    let (status, batch) = pool.call(None, "POST", BATCHES, &body);
    assert_eq!(status, 200, "{batch}");
    batch["id"].as_str().expect("an id").to_owned()
}

fn shown(pool: &Pool, id: &str) -> Value {
    let (status, batch) = pool.call(None, "GET", &format!("{BATCHES}/{id}"), &json!(null));
    assert_eq!(status, 200, "{batch}");
    batch
}

/// Waits until the batch has this status, and returns it.
fn ended(pool: &Pool, id: &str, status: &str) -> Value {
    wait_for("the end of the batch", || {
        shown(pool, id)["status"] == status
    });
    shown(pool, id)
}

/// The lines of a file by `custom_id`, each of which occurs once.
fn results(pool: &Pool, file: &Value) -> BTreeMap<String, Value> {
    let Some(file) = file.as_str() else {
        return BTreeMap::new();
    };
    let path = format!("{FILES}/{file}/content");
    let (status, text, _) = pool.request("GET", &path, "", None);
    assert_eq!(status, 200, "{text}");
    let mut results = BTreeMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).expect("a line of JSON");
        let custom_id = line["custom_id"].as_str().expect("an id").to_owned();
        assert!(results.insert(custom_id, line).is_none(), "twice: {text}");
    }
    results
}

#[test]
fn a_batch_runs_each_request_once_and_separates_responses_from_errors() {
    let pool = Pool::with_models(&[model("writer", 4, 1, &["--tokens", "2"])], "");
    let mut requests: Vec<Value> = (0..20)
        .map(|nth| line(&nth.to_string(), "writer"))
        .collect();
    requests.push(line("unknown", "nothing-like-it"));
    let mut wrong = line("wrong", "writer");
    wrong["body"]["messages"] = json!("no list");
    requests.push(wrong);
    let id = created(&pool, &lines(requests), "24h");
    let batch = ended(&pool, &id, "completed");
    let counts = json!({"total": 22, "completed": 20, "failed": 2});
    assert_eq!(batch["request_counts"], counts, "{batch}");
    let output = results(&pool, &batch["output_file_id"]);
    assert_eq!(output.len(), 20);
    let first = &output["0"]["response"];
    assert_eq!(first["status_code"], 200, "{first}");
    assert_eq!(first["body"]["object"], "chat.completion", "{first}");
    assert_eq!(output["0"]["error"], Value::Null);
    let errors = results(&pool, &batch["error_file_id"]);
    let status = |custom_id: &str| errors[custom_id]["response"]["status_code"].clone();
    assert_eq!(
        (status("unknown"), status("wrong")),
        (json!(404), json!(400))
    );
    let (_, list) = pool.call(None, "GET", BATCHES, &json!(null));
    assert_eq!(list["data"][0], batch);
    let (_, files) = pool.call(None, "GET", FILES, &json!(null));
    assert_eq!(files["data"].as_array().map(Vec::len), Some(3), "{files}");
}

#[test]
fn wrong_lines_are_refused_with_their_numbers_and_nothing_is_stored() {
    let pool = Pool::with_models(&[model("writer", 4, 1, &[])], "");
    let good = line("1", "writer").to_string();
    let same = format!("{good}\n{good}\n");
    let stream = good.replace("\"model\"", "\"stream\":true,\"model\"");
    for (text, words) in [
        (format!("{good}\n{{\n"), "line 2"),
        (same, "line 2"),
        (format!("\n\n{stream}\n"), "line 3: `body.stream`"),
        (String::new(), "no request"),
        (format!("{good}\n{}\n", "x".repeat(30 << 20)), "line 2"),
    ] {
        let (status, response) = upload(&pool, &text);
        let message = response["error"]["message"].to_string();
        assert!(
            status == 400 && message.contains(words),
            "{words}: {response}"
        );
        assert_eq!(response["error"]["param"], "file");
    }
    let (_, files) = pool.call(None, "GET", FILES, &json!(null));
    assert_eq!(files["data"], json!([]));
    let left = std::fs::read_dir(pool.data().join("files")).expect("the folder");
    let left = left.flatten().map(|entry| entry.path());
    let left: Vec<_> = left
        .filter(|path| path.extension().is_none_or(|extension| extension != "lock"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn after_three_kills_and_a_takeover_each_request_has_exactly_one_result() {
    const REQUESTS: usize = 400;
    let flags = ["--tokens", "8", "--token-ms", "10"];
    let mut pool = Pool::that_adopts(&[model("writer", 8, 1, &flags)], "", "1m");
    let requests = (0..REQUESTS).map(|nth| line(&format!("line {nth}"), "writer"));
    let id = created(&pool, &lines(requests), "24h");
    let done = |pool: &Pool| {
        let counts = shown(pool, &id)["request_counts"].clone();
        counts["completed"].as_u64().expect("a number")
    };
    for nth in 1..=3 {
        let before = done(&pool);
        wait_for("some results", || done(&pool) > before);
        pool.kill_and_restart();
        assert!(done(&pool) < REQUESTS as u64, "kill {nth} came too late");
    }
    let before = done(&pool);
    wait_for("some results", || done(&pool) > before);
    let mut earlier = pool.take_over();
    let batch = ended(&pool, &id, "completed");
    earlier.wait().expect("the earlier process ends");
    let counts = json!({"total": REQUESTS, "completed": REQUESTS, "failed": 0});
    assert_eq!(batch["request_counts"], counts);
    let output = results(&pool, &batch["output_file_id"]);
    assert_eq!(output.len(), REQUESTS);
}

#[test]
fn a_request_that_ends_its_engine_twice_becomes_an_error_and_the_others_run() {
    let flags = ["--crash-on", "poison", "--tokens", "2"];
    let pool = Pool::with_models(&[model("writer", 4, 1, &flags)], "");
    let names = ["a", "b", "poison", "c", "d"];
    let requests = names.map(|name| line(name, "writer"));
    let id = created(&pool, &lines(requests), "24h");
    // A model that has crashed cools down; an administrator's load ends that.
    wait_for("the end of the batch", || {
        let load = json!({"model": "writer", "wait": false});
        pool.admin("POST", "/llm/admin/load", &load);
        shown(&pool, &id)["status"] == "completed"
    });
    let batch = shown(&pool, &id);
    assert_eq!(batch["request_counts"]["failed"], 1, "{batch}");
    let errors = results(&pool, &batch["error_file_id"]);
    assert_eq!(errors["poison"]["error"]["code"], "engine_crashed");
}

#[test]
fn a_cancelled_batch_keeps_its_results_and_gives_the_others_an_error() {
    let flags = ["--tokens", "20", "--token-ms", "20"];
    let pool = Pool::with_models(&[model("writer", 2, 1, &flags)], "");
    let requests = (0..50).map(|nth| line(&nth.to_string(), "writer"));
    let id = created(&pool, &lines(requests), "24h");
    wait_for("some results", || {
        shown(&pool, &id)["request_counts"]["completed"].as_u64() > Some(0)
    });
    let path = format!("{BATCHES}/{id}/cancel");
    let (status, cancelling) = pool.call(None, "POST", &path, &json!(null));
    assert_eq!(status, 200, "{cancelling}");
    let batch = ended(&pool, &id, "cancelled");
    let output = results(&pool, &batch["output_file_id"]);
    let errors = results(&pool, &batch["error_file_id"]);
    assert!(
        !output.is_empty() && output.len() + errors.len() == 50,
        "{batch}"
    );
    let is_cancelled = |line: &Value| line["error"]["code"] == "batch_cancelled";
    assert!(errors.values().all(is_cancelled), "{errors:?}");
    let (status, again) = pool.call(None, "POST", &path, &json!(null));
    assert_eq!((status, &again["status"]), (200, &json!("cancelled")));
}

#[test]
fn requests_that_have_not_run_within_the_window_expire() {
    let flags = ["--tokens", "150", "--token-ms", "20"];
    let pool = Pool::with_models(&[model("writer", 1, 1, &flags)], "");
    let requests = ["1", "2", "3"].map(|name| line(name, "writer"));
    let id = created(&pool, &lines(requests), "2s");
    let batch = ended(&pool, &id, "expired");
    let output = results(&pool, &batch["output_file_id"]);
    let errors = results(&pool, &batch["error_file_id"]);
    assert_eq!(output.len() + errors.len(), 3, "{batch}");
    let is_expired = |line: &Value| line["error"]["code"] == "batch_expired";
    assert!(
        !errors.is_empty() && errors.values().all(is_expired),
        "{errors:?}"
    );
}
