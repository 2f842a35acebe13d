//! The ends of background responses: when they count, the numbers of their last events, and waits that end without a seat.

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

use super::super::stored_responses::DatabaseLock;
use super::{RESPONSES, body, events, get, path, pool, queued};

/// Asserts that the events have the numbers from 0 on, and returns the last one.
pub(super) fn last_of_all(text: &str) -> (u64, String) {
    let all = events(text);
    let numbers: Vec<u64> = all.iter().map(|(number, _)| *number).collect();
    let expected: Vec<u64> = (0..numbers.len() as u64).collect();
    assert_eq!(numbers, expected, "each number once, in order");
    all.last().expect("an event").clone()
}

/// The response of the first event in a stream.
pub(super) fn response_of(text: &str) -> Value {
    let data = text.lines().find_map(|line| line.strip_prefix("data: "));
    let event: Value = serde_json::from_str(data.expect("an event")).expect("JSON");
    event["response"].clone()
}

#[test]
fn a_result_is_shown_when_it_is_on_disk_and_not_before() {
    let mut pool = pool(&["--tokens", "40", "--token-ms", "50"], "");
    let stream = pool.stream(RESPONSES, &body(json!({"stream": true})).to_string());
    // The run has been counted on disk.
    wait_for("the first words", || {
        stream.text().contains("output_text.delta")
    });
    let response = response_of(&stream.text());
    let held = DatabaseLock::new(&pool);
    wait_for("all of the text", || {
        stream.text().contains("response.output_text.done")
    });
    assert_eq!(get(&pool, None, &response)["status"], "in_progress");
    assert!(!stream.text().contains("response.completed"));
    drop(held);
    wait_for("the last event", || {
        stream.text().contains("response.completed")
    });
    let last = last_of_all(&stream.text());
    assert_eq!(last.1, "response.completed");
    let done = get(&pool, None, &response);
    assert_eq!(
        (&done["status"], &done["store"]),
        (&json!("completed"), &json!(true)),
        "{done}"
    );
    pool.kill_and_restart();
    assert_eq!(get(&pool, None, &response), done);
    let again = format!("{}?stream=true", path(&response));
    let (_, text, _) = pool.request("GET", &again, "", None);
    assert_eq!(events(&text), [last]);
}

#[test]
fn the_last_event_of_a_cancelled_stream_has_the_next_number() {
    let pool = pool(&["--tokens", "20000", "--token-ms", "1"], "");
    for _ in 0..5 {
        let stream = pool.stream(RESPONSES, &body(json!({"stream": true})).to_string());
        wait_for("some words", || {
            stream.text().matches("output_text.delta").count() > 10
        });
        let response = response_of(&stream.text());
        let cancel = format!("{}/cancel", path(&response));
        let (status, cancelled) = pool.call(None, "POST", &cancel, &json!(null));
        assert_eq!(
            (status, &cancelled["status"]),
            (200, &json!("cancelled")),
            "{cancelled}"
        );
        let text = stream.whole();
        let last = last_of_all(&text);
        assert_eq!(last.1, "response.cancelled");
        let again = format!("{}?stream=true&starting_after=3", path(&response));
        let (_, text, _) = pool.request("GET", &again, "", None);
        assert_eq!(events(&text), [last]);
    }
}

#[test]
fn waits_that_end_without_a_seat_do_not_count_as_runs() {
    // A wait has a comment before it ends, which begins its response.
    let env = [("MODEL_POOL__SERVER__KEEP_ALIVE_COMMENT", "100ms")];
    let flags = ["--tokens", "4000", "--token-ms", "50"];
    let (file, text) =
        support::stub::model("writer", &flags, "memory_gib: 1, queue_timeout: 300ms");
    let text = text + "deployment_config: {max_ongoing_requests: 1}\n";
    let pool = Pool::with_env(&[(file, text)], "", &env);
    let (status, loaded) = pool.admin("POST", "/llm/admin/load", &json!({"model": "writer"}));
    assert_eq!(status, 200, "{loaded}");
    let chat = json!({"model": "writer", "stream": true, "messages": [{"role": "user", "content": "One"}]});
    let other = pool.stream("/v1/chat/completions", &chat.to_string());
    wait_for("another request to take the seat", || {
        other.text().contains("data: ")
    });
    let waits = queued(&pool, None, json!({}));
    let stream = pool.stream(RESPONSES, &body(json!({"stream": true})).to_string());
    // Each of the two has waited four times, more than the three runs that may be cut: a sixth wait of one ends later.
    wait_for("nine waits to end", || {
        let (_, text, _) = pool.request("GET", "/metrics", "", None);
        let line = "model_pool_requests_total{model=\"writer\",code=\"503\"} ";
        let ended = text.lines().find_map(|text| text.strip_prefix(line));
        ended.is_some_and(|ended| ended.parse().unwrap_or(0.0) >= 9.0)
    });
    let streamed = response_of(&stream.text());
    for response in [&waits, &streamed] {
        assert_eq!(get(&pool, None, response)["status"], "queued");
    }
    drop(other);
    let mut left = vec![&waits, &streamed];
    while !left.is_empty() {
        let runs = |response: &&Value| get(&pool, None, response)["status"] == "in_progress";
        wait_for("a response to run", || left.iter().any(runs));
        let nth = left.iter().position(runs).expect("one runs");
        let response = left.remove(nth);
        if std::ptr::eq(response, &streamed) {
            // Its waits have left no events.
            wait_for("some words", || {
                stream.text().matches("output_text.delta").count() > 2
            });
            last_of_all(&stream.text());
        }
        let cancel = format!("{}/cancel", path(response));
        let (status, _) = pool.call(None, "POST", &cancel, &json!(null));
        assert_eq!(status, 200);
    }
}

#[test]
fn a_response_fails_after_three_crashes_of_its_engine_with_numbers_without_gaps() {
    let pool = pool(&["--tokens", "9", "--crash-mid-stream", "3"], "");
    let stream = pool.stream(RESPONSES, &body(json!({"stream": true})).to_string());
    wait_for("the first words", || {
        stream.text().contains("output_text.delta")
    });
    let response = response_of(&stream.text());
    // A model that has crashed cools down; an administrator's load ends that.
    wait_for("the end of the response", || {
        let load = json!({"model": "writer", "wait": false});
        pool.admin("POST", "/llm/admin/load", &load);
        get(&pool, None, &response)["status"] == "failed"
    });
    let failed = get(&pool, None, &response);
    assert_eq!(failed["status"], "failed", "{failed}");
    let message = failed["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("3 times"), "{failed}");
    let text = stream.whole();
    assert_eq!(last_of_all(&text).1, "response.failed");
    let runs = text.matches("event: response.in_progress\n").count();
    assert_eq!(runs, 3, "{text}");
}
