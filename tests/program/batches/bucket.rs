//! Files of batches in a bucket: put before they count, fetched when the disk has none, and deleted even after an outage.

use std::fs;

use serde_json::{Value, json};
use support::buckets::SECRET;
use support::object_server::ObjectServer;
use support::service::{Pool, wait_for};

use super::{BATCHES, CHAT, FILES, ended, line, lines, model, results, shown, upload};

const BUCKET: &str = "batch: {bucket: 's3://lab/files/'}\n";

fn pool(server: &ObjectServer) -> Pool {
    let env = server.env();
    let env = env.each_ref().map(|(name, value)| (*name, value.as_str()));
    let models = [model("writer", 4, 1, &["--tokens", "2"])];
    Pool::with_env(&models, BUCKET, &env)
}

fn requests(count: u32) -> String {
    lines((0..count).map(|nth| line(&nth.to_string(), "writer")))
}

/// Uploads these lines and returns the id of the file.
fn uploaded(pool: &Pool, text: &str) -> String {
    let (status, file) = upload(pool, text);
    assert_eq!(status, 200, "{file}");
    file["id"].as_str().expect("an id").to_owned()
}

fn content(pool: &Pool, file: &str) -> (u16, String) {
    let path = format!("{FILES}/{file}/content");
    let (status, text, _) = pool.request("GET", &path, "", None);
    (status, text)
}

fn delete(pool: &Pool, file: &str) -> (u16, Value) {
    pool.call(None, "DELETE", &format!("{FILES}/{file}"), &json!(null))
}

/// The names of files of lines in the local folder.
fn local_files(pool: &Pool) -> Vec<String> {
    let entries = fs::read_dir(pool.data().join("files")).expect("the folder");
    let names = entries.flatten().map(|entry| entry.file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".jsonl")).collect()
}

#[test]
fn a_batch_runs_and_is_read_from_the_bucket_when_the_disk_has_lost_its_files() {
    let server = ObjectServer::start();
    let pool = pool(&server);
    let text = requests(12);
    let file = uploaded(&pool, &text);
    let object = format!("lab/files/{file}.jsonl");
    assert_eq!(server.object(&object).expect("put"), text);
    for extension in ["jsonl", "index"] {
        let path = pool.data().join(format!("files/{file}.{extension}"));
        fs::remove_file(path).expect("removed");
    }
    let body = json!({"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"});
    let (status, batch) = pool.call(None, "POST", BATCHES, &body);
    assert_eq!(status, 200, "{batch}");
    let id = batch["id"].as_str().expect("an id");
    let batch = ended(&pool, id, "completed");
    wait_for("the removal of the local copies", || {
        local_files(&pool).is_empty()
    });
    assert_eq!(results(&pool, &batch["output_file_id"]).len(), 12);
    assert_eq!(content(&pool, &file), (200, text));
    let output = batch["output_file_id"].as_str().expect("an id");
    let (_, object) = pool.call(None, "GET", &format!("{FILES}/{output}"), &json!(null));
    let stored = server.object(&format!("lab/files/{id}.output.jsonl"));
    assert_eq!(object["bytes"], stored.expect("put").len());
    for file in [&*file, output] {
        assert_eq!(delete(&pool, file).0, 200);
        assert_eq!(content(&pool, file).0, 404);
    }
    wait_for("the deletion of the objects", || server.paths().is_empty());
    assert!(!pool.log().contains(SECRET));
}

#[test]
fn a_bucket_that_refuses_keeps_batches_open_and_uploads_out_and_loses_no_deletion() {
    let server = ObjectServer::start();
    let mut pool = pool(&server);
    server.refuse(true);
    let (status, refused) = upload(&pool, &requests(1));
    assert_eq!(
        (status, &refused["error"]["code"]),
        (503, &json!("file_not_stored")),
        "{refused}"
    );
    assert!(local_files(&pool).is_empty());
    let (_, files) = pool.call(None, "GET", FILES, &json!(null));
    assert_eq!(files["data"], json!([]));
    server.refuse(false);
    let text = requests(5);
    let file = uploaded(&pool, &text);
    server.refuse(true);
    let body = json!({"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"});
    let (_, batch) = pool.call(None, "POST", BATCHES, &body);
    let id = batch["id"].as_str().expect("an id");
    wait_for("the warning", || {
        let batch = shown(&pool, id);
        let warning = batch["model_pool"]["warning"].to_string();
        warning.contains("bucket does not take them") && batch["status"] == "in_progress"
    });
    // A restart forgets neither the results nor that they are due.
    pool.kill_and_restart();
    server.refuse(false);
    let batch = ended(&pool, id, "completed");
    assert_eq!(batch["model_pool"]["warning"], Value::Null, "{batch}");
    assert_eq!(results(&pool, &batch["output_file_id"]).len(), 5);
    wait_for("the removal of the local copies", || {
        local_files(&pool).is_empty()
    });
    server.refuse(true);
    let output = batch["output_file_id"].as_str().expect("an id");
    let (status, refused) = content_json(&pool, output);
    assert_eq!(
        (status, &refused["error"]["code"]),
        (503, &json!("file_not_readable")),
        "{refused}"
    );
    for file in [&*file, output] {
        assert_eq!(delete(&pool, file).0, 200);
    }
    assert_eq!(server.paths().len(), 2);
    pool.kill_and_restart();
    server.refuse(false);
    wait_for("the deletion of the objects", || server.paths().is_empty());
}

fn content_json(pool: &Pool, file: &str) -> (u16, Value) {
    let (status, text) = content(pool, file);
    (status, serde_json::from_str(&text).expect("JSON"))
}

#[test]
fn a_batch_of_messages_is_read_from_the_bucket_in_anthropics_form() {
    let server = ObjectServer::start();
    let pool = pool(&server);
    let message = |custom_id: &str, model: &str| {
        let params = json!({"model": model, "max_tokens": 5,
            "messages": [{"role": "user", "content": custom_id}]});
        json!({"custom_id": custom_id, "params": params})
    };
    let body = json!({"requests": [message("a", "writer"), message("b", "nothing-like-it")]});
    let (status, batch) = pool.call(None, "POST", "/v1/messages/batches", &body);
    assert_eq!(status, 200, "{batch}");
    let path = format!(
        "/v1/messages/batches/{}",
        batch["id"].as_str().expect("an id")
    );
    wait_for("the end of the batch", || {
        let (_, batch) = pool.call(None, "GET", &path, &json!(null));
        batch["processing_status"] == "ended"
    });
    wait_for("the removal of the local copies", || {
        local_files(&pool).is_empty()
    });
    assert_eq!(server.paths().len(), 3);
    let (status, text, _) = pool.request("GET", &format!("{path}/results"), "", None);
    assert_eq!(status, 200, "{text}");
    let types = text.lines().map(|line| {
        let line: Value = serde_json::from_str(line).expect("JSON");
        line["result"]["type"].as_str().expect("a type").to_owned()
    });
    assert_eq!(types.collect::<Vec<_>>(), ["succeeded", "errored"]);
    let (status, _) = pool.call(None, "DELETE", &path, &json!(null));
    assert_eq!(status, 200);
    wait_for("the deletion of the objects", || server.paths().is_empty());
}

#[test]
fn a_batch_whose_requests_are_gone_from_disk_and_bucket_fails_with_its_reason() {
    let server = ObjectServer::start();
    let pool = pool(&server);
    let file = uploaded(&pool, &requests(2));
    fs::remove_file(pool.data().join(format!("files/{file}.jsonl"))).expect("removed");
    server.remove(&format!("lab/files/{file}.jsonl"));
    assert_eq!(content(&pool, &file).0, 404);
    let body = json!({"input_file_id": file, "endpoint": CHAT, "completion_window": "24h"});
    let (_, batch) = pool.call(None, "POST", BATCHES, &body);
    let batch = ended(&pool, batch["id"].as_str().expect("an id"), "failed");
    assert_eq!(batch["errors"]["data"][0]["code"], "file_unreadable");
}
