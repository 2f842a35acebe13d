//! Background responses with the real program: queued, polled, streamed, cancelled and deleted, over restarts, and within their
//! limits.

mod ends;
mod kills;
mod stored_ends;

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

pub(super) const RESPONSES: &str = "/v1/responses";

pub(super) fn pool(flags: &[&str], config: &str) -> Pool {
    Pool::with_models(&[model(flags)], config)
}

fn model(flags: &[&str]) -> (String, String) {
    support::stub::model("writer", flags, "memory_gib: 1")
}

fn body(more: Value) -> Value {
    let mut body = json!({"model": "writer", "input": "One", "background": true});
    for (name, value) in more.as_object().unwrap() {
        body[name.as_str()] = value.clone();
    }
    body
}

fn queued(pool: &Pool, key: Option<&str>, more: Value) -> Value {
    let (status, response) = pool.call(key, "POST", RESPONSES, &body(more));
    assert_eq!(status, 200, "{response}");
    assert_eq!(response["status"], "queued", "{response}");
    assert_eq!(
        (&response["background"], &response["store"]),
        (&json!(true), &json!(true))
    );
    response
}

fn path(response: &Value) -> String {
    format!("{RESPONSES}/{}", response["id"].as_str().expect("an id"))
}

fn get(pool: &Pool, key: Option<&str>, response: &Value) -> Value {
    let (status, found) = pool.call(key, "GET", &path(response), &json!(null));
    assert_eq!(status, 200, "{found}");
    found
}

fn ended(pool: &Pool, key: Option<&str>, response: &Value) -> Value {
    let mut found = Value::Null;
    wait_for("the end of the response", || {
        found = get(pool, key, response);
        found["status"] != "queued" && found["status"] != "in_progress"
    });
    found
}

pub(super) fn key(pool: &Pool, name: &str) -> (String, Value) {
    let admin = pool.admin_key();
    let body = json!({"name": name, "role": "user"});
    let (status, made) = pool.call(Some(&admin), "POST", "/llm/admin/keys", &body);
    assert_eq!(status, 200, "{made}");
    (made["key"].as_str().unwrap().to_owned(), made)
}

/// The numbers and types of the events in a stream.
fn events(text: &str) -> Vec<(u64, String)> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let event = |data: &str| {
        let event: Value = serde_json::from_str(data).expect("JSON");
        let number = event["sequence_number"].as_u64().expect("a number");
        (number, event["type"].as_str().expect("a type").to_owned())
    };
    data.map(event).collect()
}

#[test]
fn a_background_response_is_queued_runs_and_is_stored_with_its_items() {
    let pool = pool(&["--tokens", "3", "--token-ms", "50"], "");
    let first = queued(&pool, None, json!({}));
    let done = ended(&pool, None, &first);
    assert_eq!(done["status"], "completed", "{done}");
    assert_eq!(done["output"][0]["content"][0]["text"], "Hello from writer");
    assert_eq!(
        (&done["id"], &done["created_at"]),
        (&first["id"], &first["created_at"])
    );
    let items = format!("{}/input_items", path(&first));
    let (status, items) = pool.call(None, "GET", &items, &json!(null));
    assert_eq!(
        (status, &items["data"][0]["content"][0]["text"]),
        (200, &json!("One"))
    );
    // A later request continues it.
    let next = queued(&pool, None, json!({"previous_response_id": first["id"]}));
    assert_eq!(ended(&pool, None, &next)["status"], "completed");
    let (status, refused) = pool.call(
        None,
        "POST",
        &format!("{}/cancel", path(&first)),
        &json!(null),
    );
    let message = refused["error"]["message"].as_str().unwrap_or_default();
    assert!(status == 400 && message.contains("completed"), "{refused}");
    let (status, _) = pool.call(None, "DELETE", &path(&first), &json!(null));
    assert_eq!(status, 200);
    let (status, _) = pool.call(None, "GET", &path(&first), &json!(null));
    assert_eq!(status, 404);
}

#[test]
fn a_cancelled_response_stops_and_a_deleted_one_is_gone() {
    let pool = pool(&["--tokens", "2000", "--token-ms", "50"], "");
    let one = queued(&pool, None, json!({}));
    wait_for("the response to run", || {
        get(&pool, None, &one)["status"] == "in_progress"
    });
    let cancel = format!("{}/cancel", path(&one));
    let (status, cancelled) = pool.call(None, "POST", &cancel, &json!(null));
    assert_eq!(
        (status, &cancelled["status"]),
        (200, &json!("cancelled")),
        "{cancelled}"
    );
    let (status, again) = pool.call(None, "POST", &cancel, &json!(null));
    assert_eq!(
        (status, &again["status"]),
        (200, &json!("cancelled")),
        "{again}"
    );
    assert_eq!(get(&pool, None, &one)["status"], "cancelled");
    wait_for("the request to be gone", || {
        let (_, view) = pool.admin("GET", "/llm/admin/models?model=writer", &json!(null));
        let one = view["models"].get(0).unwrap_or(&view);
        one["replicas"][0]["in_flight"] == 0
    });
    let two = queued(&pool, None, json!({}));
    let (status, _) = pool.call(None, "DELETE", &path(&two), &json!(null));
    assert_eq!(status, 200);
    for method in ["GET", "DELETE"] {
        let (status, _) = pool.call(None, method, &path(&two), &json!(null));
        assert_eq!(status, 404, "{method}");
    }
    let (status, _) = pool.call(
        None,
        "POST",
        &format!("{}/cancel", path(&two)),
        &json!(null),
    );
    assert_eq!(status, 404);
}

#[test]
fn a_stream_can_be_left_and_resumed_after_any_event() {
    let pool = pool(&["--tokens", "40", "--token-ms", "50"], "");
    let streamed = body(json!({"stream": true})).to_string();
    let stream = pool.stream(RESPONSES, &streamed);
    wait_for("the first words", || {
        stream.text().contains("output_text.delta")
    });
    let text = stream.text();
    let first = text.lines().find_map(|line| line.strip_prefix("data: "));
    let first: Value = serde_json::from_str(first.expect("an event")).unwrap();
    let response = &first["response"];
    assert_eq!(response["status"], "queued");
    drop(stream);
    let after = format!("{}?stream=true&starting_after=4", path(response));
    let (status, text, head) = pool.request("GET", &after, "", None);
    assert!(
        status == 200 && head.contains("text/event-stream"),
        "{head}"
    );
    let rest = events(&text);
    let numbers: Vec<u64> = rest.iter().map(|(number, _)| *number).collect();
    let expected: Vec<u64> = (5..5 + numbers.len() as u64).collect();
    assert_eq!(numbers, expected, "each event once, in order");
    assert_eq!(rest.last().unwrap().1, "response.completed");
    // After the end, the last event alone is available, with its number.
    let last = rest.last().unwrap().clone();
    let (status, text, _) = pool.request("GET", &after, "", None);
    assert_eq!((status, events(&text)), (200, vec![last.clone()]));
    let end = format!("{}?stream=true&starting_after={}", path(response), last.0);
    let (status, text, _) = pool.request("GET", &end, "", None);
    assert_eq!((status, events(&text)), (200, Vec::new()));
    for (query, field) in [
        ("?starting_after=4", "starting_after"),
        ("?stream=true&starting_after=-1", "starting_after"),
        ("?stream=maybe", "stream"),
    ] {
        let wrong = format!("{}{query}", path(response));
        let (status, refused) = pool.call(None, "GET", &wrong, &json!(null));
        assert_eq!((status, &refused["error"]["param"]), (400, &json!(field)));
    }
    let plain = queued(&pool, None, json!({}));
    let wrong = format!("{}?stream=true", path(&plain));
    let (status, refused) = pool.call(None, "GET", &wrong, &json!(null));
    assert_eq!(
        (status, &refused["error"]["param"]),
        (400, &json!("stream"))
    );
}

#[test]
fn an_accepted_response_survives_a_kill_and_runs_again() {
    let mut pool = pool(&["--tokens", "60", "--token-ms", "50"], "");
    let response = queued(&pool, None, json!({"metadata": {"a": "b"}}));
    wait_for("the response to run", || {
        get(&pool, None, &response)["status"] == "in_progress"
    });
    pool.kill_and_restart();
    let done = ended(&pool, None, &response);
    assert_eq!(done["status"], "completed", "{done}");
    assert_eq!(done["metadata"]["a"], "b");
    pool.kill_and_restart();
    assert_eq!(get(&pool, None, &response), done);
}

#[test]
fn contradictory_fields_and_ids_of_other_keys_are_refused() {
    let pool = pool(
        &["--tokens", "2000", "--token-ms", "50"],
        "auth: {inference: key}\n",
    );
    let ((one, _), (other, _)) = (key(&pool, "one"), key(&pool, "other"));
    for (more, param) in [
        (json!({"store": false}), "store"),
        (json!({"background": "yes"}), "background"),
        (json!({"input": []}), "input"),
        (
            json!({"conversation": "conv_1", "previous_response_id": "resp_1"}),
            "previous_response_id",
        ),
    ] {
        let (status, refused) = pool.call(Some(&one), "POST", RESPONSES, &body(more.clone()));
        let is_refused = status == 400 || status == 404;
        assert!(
            is_refused && refused["error"]["param"] == param,
            "{more}: {refused}"
        );
    }
    let (status, refused) = pool.call(Some(&one), "POST", RESPONSES, &body(json!({"model": "no"})));
    assert_eq!(
        (status, &refused["error"]["code"]),
        (404, &json!("model_not_found"))
    );
    let response = queued(&pool, Some(&one), json!({}));
    for (method, path) in [
        ("GET", path(&response)),
        ("DELETE", path(&response)),
        ("POST", format!("{}/cancel", path(&response))),
        ("GET", format!("{}?stream=true", path(&response))),
        ("POST", format!("{RESPONSES}/resp_unknown/cancel")),
    ] {
        let (status, refused) = pool.call(Some(&other), method, &path, &json!(null));
        assert_eq!(status, 404, "{method} {path}: {refused}");
    }
    let plain = json!({"model": "writer", "input": "x", "store": true, "max_output_tokens": 1});
    let (status, plain) = pool.call(Some(&one), "POST", RESPONSES, &plain);
    assert_eq!(status, 200, "{plain}");
    let (status, refused) = pool.call(
        Some(&one),
        "POST",
        &format!("{}/cancel", path(&plain)),
        &json!(null),
    );
    assert_eq!(status, 400, "{refused}");
}

#[test]
fn a_key_has_a_limited_number_of_background_responses_and_others_still_run() {
    let env = [("MODEL_POOL__STATE__RESPONSES", "{background_per_key: 20}")];
    let (file, text) = model(&["--tokens", "4000", "--token-ms", "50"]);
    // A seat for each request: shares cut none that runs.
    let files = [(
        file,
        text + "deployment_config: {max_ongoing_requests: 32}\n",
    )];
    let pool = Pool::with_env(&files, "auth: {inference: key}\n", &env);
    let ((one, _), (other, _)) = (key(&pool, "one"), key(&pool, "other"));
    for _ in 0..20 {
        queued(&pool, Some(&one), json!({}));
    }
    let (status, refused) = pool.call(Some(&one), "POST", RESPONSES, &body(json!({})));
    let code = json!("too_many_background_responses");
    assert_eq!(
        (status, &refused["error"]["code"]),
        (429, &code),
        "{refused}"
    );
    let response = queued(&pool, Some(&other), json!({}));
    wait_for("the response of the other key to run", || {
        get(&pool, Some(&other), &response)["status"] == "in_progress"
    });
}

#[test]
fn a_response_whose_key_is_revoked_ends() {
    let pool = pool(
        &["--tokens", "4000", "--token-ms", "50"],
        "auth: {inference: key}\n",
    );
    let (user, made) = key(&pool, "one");
    let response = queued(&pool, Some(&user), json!({}));
    wait_for("the response to run", || {
        get(&pool, Some(&user), &response)["status"] == "in_progress"
    });
    let id = made["id"].as_str().expect("an id");
    let revoke = format!("/llm/admin/keys?id={id}");
    let (status, revoked) = pool.admin("DELETE", &revoke, &json!(null));
    assert_eq!(status, 200, "{revoked}");
    wait_for("the request to be gone", || {
        let (_, view) = pool.admin("GET", "/llm/admin/models?model=writer", &json!(null));
        let one = view["models"].get(0).unwrap_or(&view);
        one["replicas"][0]["in_flight"] == 0
    });
    let (status, _) = pool.call(Some(&user), "GET", &path(&response), &json!(null));
    assert_eq!(status, 401);
}
