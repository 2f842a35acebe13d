//! Files and batches of several keys, and batches in Anthropic's form.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

use super::{BATCHES, CHAT, FILES, created, ended, line, lines, model, upload};

const MESSAGES: &str = "/v1/messages/batches";

fn message(custom_id: &str, model: &str) -> Value {
    let params = json!({"model": model, "max_tokens": 5,
        "messages": [{"role": "user", "content": custom_id}]});
    json!({"custom_id": custom_id, "params": params})
}

#[test]
fn a_batch_of_messages_runs_and_its_results_have_anthropics_form() {
    let pool = Pool::with_models(&[model("writer", 4, 1, &["--tokens", "2"])], "");
    let body = json!({"requests": [message("a", "writer"), message("b", "nothing-like-it")]});
    let (status, batch) = pool.call(None, "POST", MESSAGES, &body);
    assert_eq!(status, 200, "{batch}");
    assert_eq!(batch["processing_status"], "in_progress");
    let path = format!("{MESSAGES}/{}", batch["id"].as_str().expect("an id"));
    wait_for("the end of the batch", || {
        let (_, batch) = pool.call(None, "GET", &path, &json!(null));
        batch["processing_status"] == "ended"
    });
    let (_, batch) = pool.call(None, "GET", &path, &json!(null));
    let counts =
        json!({"processing": 0, "succeeded": 1, "errored": 1, "canceled": 0, "expired": 0});
    assert_eq!(batch["request_counts"], counts, "{batch}");
    let url = batch["results_url"].as_str().expect("a route");
    let (status, text, _) = pool.request("GET", url, "", None);
    assert_eq!(status, 200, "{text}");
    let lines = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        (
            line["custom_id"].as_str().expect("an id").to_owned(),
            line["result"].clone(),
        )
    });
    let results: BTreeMap<String, Value> = lines.collect();
    assert_eq!(results["a"]["type"], "succeeded", "{text}");
    assert_eq!(results["a"]["message"]["type"], "message", "{text}");
    assert_eq!(results["b"]["type"], "errored", "{text}");
    assert_eq!(
        results["b"]["error"]["error"]["type"], "not_found_error",
        "{text}"
    );
    let (_, files) = pool.call(None, "GET", FILES, &json!(null));
    assert_eq!(files["data"], json!([]), "files of messages are not listed");
    let (_, batches) = pool.call(None, "GET", BATCHES, &json!(null));
    assert_eq!(batches["data"], json!([]));
    let (status, deleted) = pool.call(None, "DELETE", &path, &json!(null));
    assert_eq!(
        (status, &deleted["type"]),
        (200, &json!("message_batch_deleted"))
    );
    let (status, gone) = pool.call(None, "GET", &path, &json!(null));
    assert_eq!(
        (status, &gone["error"]["type"]),
        (404, &json!("not_found_error"))
    );
    let (status, wrong) = pool.call(None, "POST", MESSAGES, &json!({"requests": []}));
    assert_eq!((status, &wrong["type"]), (400, &json!("error")));
}

#[test]
fn files_and_batches_are_invisible_to_other_keys_and_end_with_their_own() {
    let pool = Pool::with_models(
        &[model(
            "writer",
            1,
            1,
            &["--tokens", "50", "--token-ms", "20"],
        )],
        "",
    );
    let requests = (0..20).map(|nth| line(&nth.to_string(), "writer"));
    let id = created(&pool, &lines(requests), "24h");
    let (_, file) = upload(&pool, &lines([line("1", "writer")]));
    let file = format!("{FILES}/{}", file["id"].as_str().expect("an id"));
    let (_, key) = pool.new_key("other");
    let key = key["key"].as_str().expect("a key").to_owned();
    for path in [
        format!("{BATCHES}/{id}"),
        file.clone(),
        format!("{file}/content"),
    ] {
        let (status, response) = pool.call(Some(&key), "GET", &path, &json!(null));
        assert_eq!(status, 404, "{path}: {response}");
    }
    let (status, _) = pool.call(Some(&key), "DELETE", &file, &json!(null));
    assert_eq!(status, 404);
    let (_, batch) = pool.call(None, "GET", &format!("{BATCHES}/{id}"), &json!(null));
    let input = format!(
        "{FILES}/{}",
        batch["input_file_id"].as_str().expect("an id")
    );
    let (status, in_use) = pool.call(None, "DELETE", &input, &json!(null));
    assert_eq!(
        (status, &in_use["error"]["code"]),
        (409, &json!("file_in_use"))
    );
    let (status, deleted) = pool.call(None, "DELETE", &file, &json!(null));
    assert_eq!((status, &deleted["deleted"]), (200, &json!(true)));
    let cancel = format!("{BATCHES}/{id}/cancel");
    assert_eq!(pool.call(None, "POST", &cancel, &json!(null)).0, 200);
    ended(&pool, &id, "cancelled");
    let (status, deleted) = pool.call(None, "DELETE", &input, &json!(null));
    assert_eq!((status, &deleted["deleted"]), (200, &json!(true)));
}

#[test]
fn a_batch_for_another_route_than_its_file_is_refused() {
    let pool = Pool::with_models(&[model("writer", 1, 1, &[])], "");
    let (_, file) = upload(&pool, &lines([line("1", "writer")]));
    for (endpoint, window, param) in [
        ("/v1/embeddings", "24h", "endpoint"),
        ("/v1/nothing", "24h", "endpoint"),
        (CHAT, "0s", "completion_window"),
        (CHAT, "soon", "completion_window"),
    ] {
        let body =
            json!({"input_file_id": file["id"], "endpoint": endpoint, "completion_window": window});
        let (status, response) = pool.call(None, "POST", BATCHES, &body);
        assert_eq!(
            (status, &response["error"]["param"]),
            (400, &json!(param)),
            "{response}"
        );
    }
    let body =
        json!({"input_file_id": "file-unknown", "endpoint": CHAT, "completion_window": "24h"});
    assert_eq!(pool.call(None, "POST", BATCHES, &body).0, 404);
}
