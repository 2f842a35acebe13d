//! Parallel requests of one key: together they do not exceed its limits, and fill them exactly.

use std::sync::Barrier;
use std::thread;

use serde_json::{Value, json};
use support::service::Pool;

use super::{BATCHES, CHAT, FILES, line, lines, model, upload};

const MESSAGES: &str = "/v1/messages/batches";
/// The uploads that a key may have in progress.
const UPLOADS: usize = 4;

/// Runs a request in this many threads that begin together, `each` times one after the other in each.
fn together(
    threads: usize,
    each: usize,
    request: impl Fn() -> (u16, Value) + Sync,
) -> Vec<(u16, Value)> {
    let barrier = Barrier::new(threads);
    let work = || -> Vec<(u16, Value)> {
        barrier.wait();
        (0..each).map(|_| request()).collect()
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let done = threads.into_iter();
        done.flat_map(|thread| thread.join().expect("a thread"))
            .collect()
    })
}

/// The number of requests that succeeded. Each other one has this code.
fn succeeded(responses: &[(u16, Value)], status: u16, code: &str) -> usize {
    let refused = responses.iter().filter(|(status, _)| *status != 200);
    for (found, response) in refused {
        assert_eq!(
            (*found, &response["error"]["code"]),
            (status, &json!(code)),
            "{response}"
        );
    }
    responses
        .iter()
        .filter(|(status, _)| *status == 200)
        .count()
}

/// A pool whose batches stay open: their model has no room as long as the other one is loaded.
fn pool(limits: &str) -> Pool {
    let models = [
        model("small", 2, 6, &["--tokens", "2"]),
        model("large", 2, 14, &["--tokens", "2"]),
    ];
    let pool = Pool::with_models(&models, &format!("batch: {{hours: never, {limits}}}\n"));
    let messages = json!([{"role": "user", "content": "Stay."}]);
    let body = json!({"model": "small", "messages": messages});
    let (status, response) = pool.call(None, "POST", CHAT, &body);
    assert_eq!(status, 200, "{response}");
    pool
}

#[test]
fn parallel_uploads_store_exactly_the_number_of_files_of_a_key() {
    let pool = pool("per_key: 10");
    let text = lines([line("1", "small")]);
    let uploads = together(UPLOADS, 8, || upload(&pool, &text));
    assert_eq!(succeeded(&uploads, 429, "too_many_files"), 10);
    let (_, list) = pool.call(None, "GET", FILES, &Value::Null);
    assert_eq!(list["data"].as_array().expect("a list").len(), 10, "{list}");
}

#[test]
fn parallel_uploads_do_not_exceed_the_size_of_the_files_of_a_key() {
    let pool = pool("files_max: 4KiB, per_key_size: 9KiB");
    // Nearly 4 KiB: two files have room.
    let mut request = line("1", "small");
    request["body"]["messages"][0]["content"] = json!("x".repeat(3_700));
    let text = lines([request]);
    let uploads = together(UPLOADS, 1, || upload(&pool, &text));
    assert_eq!(succeeded(&uploads, 413, "file_too_large"), 2);
}

#[test]
fn parallel_batches_leave_room_for_their_results() {
    let pool = pool("per_key: 21");
    let (status, file) = upload(&pool, &lines([line("1", "large")]));
    assert_eq!(status, 200, "{file}");
    let body = json!({"input_file_id": file["id"], "endpoint": CHAT, "completion_window": "24h"});
    // One file, and two for the results of each batch.
    let batches = together(8, 4, || pool.call(None, "POST", BATCHES, &body));
    assert_eq!(succeeded(&batches, 429, "too_many_batches"), 10);
    let (status, refused) = upload(&pool, &lines([line("1", "large")]));
    assert_eq!(status, 429, "{refused}");
}

#[test]
fn parallel_batches_of_messages_leave_room_for_their_results() {
    let pool = pool("per_key: 18");
    let params = json!({"model": "large", "max_tokens": 5,
        "messages": [{"role": "user", "content": "Name a river."}]});
    let body = json!({"requests": [{"custom_id": "1", "params": params}]});
    // Three files each: the requests, and two for the results.
    let batches = together(UPLOADS, 4, || pool.call(None, "POST", MESSAGES, &body));
    let created = batches.iter().filter(|(status, _)| *status == 200);
    assert_eq!(created.count(), 6, "{batches:?}");
    for (status, response) in batches.iter().filter(|(status, _)| *status != 200) {
        assert_eq!(*status, 429, "{response}");
    }
}
