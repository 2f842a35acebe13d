//! Responses that are stored for later turns, with the real program: conversations continued by id, references to single items,
//! ownership, restarts, and limits.
//! One file because every test continues a stored conversation.

mod durability;

use std::time::Duration;

use serde_json::{Value, json};
use support::service::{Pool, wait_for};

use super::commands::model_pool;
pub(crate) use durability::DatabaseLock;

const RESPONSES: &str = "/v1/responses";

/// A model `writer` whose engine has these flags.
fn model(flags: &[&str]) -> (String, String) {
    support::stub::model("writer", flags, "memory_gib: 1")
}

fn pool(flags: &[&str], config: &str) -> Pool {
    Pool::with_models(&[model(flags)], config)
}

const SECTION: &str = "MODEL_POOL__STATE__RESPONSES";

fn created(pool: &Pool, body: &Value) -> Value {
    let (status, response) = pool.call(None, "POST", RESPONSES, body);
    assert_eq!(status, 200, "{response}");
    response
}

fn get(pool: &Pool, path: &str) -> (u16, Value) {
    pool.call(None, "GET", &format!("{RESPONSES}/{path}"), &json!(null))
}

fn id(response: &Value) -> &str {
    response["id"].as_str().expect("an id")
}

/// The messages that the engine received and repeated in its response.
fn engine_got(response: &Value) -> Value {
    let last = response["output"].as_array().unwrap().last().unwrap();
    let text = last["content"][0]["text"].as_str().expect("a text");
    let body: Value = serde_json::from_str(text).expect("the request");
    body["messages"].clone()
}

fn ask(input: &str) -> Value {
    json!({"model": "writer", "input": input, "store": true})
}

fn following(previous: &Value, input: &Value) -> Value {
    json!({"model": "writer", "input": input, "store": true, "previous_response_id": previous["id"]})
}

/// A user's key in a pool that requires keys.
fn key(pool: &Pool, name: &str) -> String {
    let body = json!({"name": name, "role": "user"});
    let admin = pool.admin_key();
    let (status, made) = pool.call(Some(&admin), "POST", "/llm/admin/keys", &body);
    assert_eq!(status, 200, "{made}");
    made["key"].as_str().unwrap().to_owned()
}

#[test]
fn a_conversation_continues_from_its_last_response_id_even_after_a_restart() {
    let mut pool = pool(&["--reasoning", "I think.", "--tokens", "2"], "");
    let first = created(&pool, &with(ask("One"), "instructions", json!("Be kind.")));
    assert_eq!(
        (&first["store"], &first["previous_response_id"]),
        (&json!(true), &Value::Null)
    );
    let second = created(&pool, &following(&first, &json!("Two")));
    assert_eq!(second["previous_response_id"], first["id"]);
    let (status, found) = get(&pool, id(&second));
    assert_eq!((status, &found), (200, &second), "it is the same");
    end(&mut pool);
    assert_eq!(on_disk(&pool), "2 stored responses");
    std::fs::write(pool.models().join("writer.yaml"), model(&["--echo"]).1).unwrap();
    pool.restart();
    let (status, found) = get(&pool, id(&second));
    assert_eq!((status, &found), (200, &second));
    let third = created(&pool, &following(&second, &json!("Three")));
    let expected = json!([
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": "stub-0 stub-1", "reasoning_content": "I think."},
        {"role": "user", "content": "Two"},
        {"role": "assistant", "content": "stub-0 stub-1", "reasoning_content": "I think."},
        {"role": "user", "content": "Three"}
    ]);
    let got = engine_got(&third);
    assert_eq!(roles(&got), roles(&expected), "{got}");
    assert_eq!(got[1]["reasoning_content"], "I think.");
    assert_eq!((&got[0], &got[4]), (&expected[0], &expected[4]));
}

fn roles(messages: &Value) -> Vec<&str> {
    let messages = messages.as_array().unwrap().iter();
    messages
        .filter_map(|message| message["role"].as_str())
        .collect()
}

fn with(mut body: Value, name: &str, value: Value) -> Value {
    body[name] = value;
    body
}

/// Responses in a copy of the database.
fn on_disk(pool: &Pool) -> String {
    let config = pool.folder().join("config.yaml").display().to_string();
    let copy = pool.folder().join("copy.db").display().to_string();
    let words = ["backup", &copy, "--force", "--config", &config];
    let text = model_pool(pool.folder(), &words, &[]).done().stdout;
    let told = text.lines().find(|line| line.starts_with("in it: "));
    let last = told.and_then(|line| line.rsplit(", ").next());
    last.unwrap_or_default().to_owned()
}

/// Stops the service, which first writes pending data.
fn end(pool: &mut Pool) {
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(60)), "it ends");
}

#[test]
fn items_are_referenced_by_their_ids_when_the_request_omits_store() {
    let pool = pool(&["--echo"], "");
    let tools = json!([{"type": "function", "name": "weather", "parameters": {"type": "object"}}]);
    // Like the AI SDK: without `store`, and the next turn refers to the response's items.
    let first = created(
        &pool,
        &json!({"model": "writer", "input": [{"role": "user", "content": "One"}], "tools": tools}),
    );
    assert_eq!(first["store"], true, "{first}");
    let item = first["output"][0]["id"].clone();
    let second = created(
        &pool,
        &json!({"model": "writer", "input": [
            {"role": "user", "content": "One"}, {"type": "item_reference", "id": item},
            {"role": "user", "content": [{"type": "input_text", "text": "Two"}]}]}),
    );
    let got = engine_got(&second);
    assert_eq!(roles(&got), ["user", "assistant", "user"], "{got}");
    assert_eq!(got[1]["content"], first["output"][0]["content"][0]["text"]);
    let path = format!("{}/input_items?order=asc&limit=2", id(&second));
    let (status, page) = get(&pool, &path);
    assert_eq!(status, 200, "{page}");
    assert_eq!(page["has_more"], true);
    assert_eq!(
        page["data"][1]["id"], item,
        "the item itself, not its reference"
    );
    let path = format!(
        "{}/input_items?order=asc&after={}",
        id(&second),
        page["last_id"].as_str().unwrap()
    );
    let (_, rest) = get(&pool, &path);
    assert_eq!(
        rest["data"][0]["content"],
        json!([{"type": "input_text", "text": "Two"}])
    );
    assert_eq!(
        (rest["data"].as_array().unwrap().len(), &rest["has_more"]),
        (1, &json!(false))
    );
    // The request did not ask for storage: nothing is on disk.
    assert_eq!(on_disk(&pool), "0 stored responses");
    let (status, refused) = pool.call(
        None,
        "POST",
        RESPONSES,
        &with(
            ask("x"),
            "input",
            json!([{"type": "item_reference", "id": "msg_of_another_pool"}]),
        ),
    );
    assert_eq!(
        (status, &refused["error"]["param"]),
        (404, &json!("input")),
        "{refused}"
    );
    for (path, field) in [
        ("/input_items?limit=0", "limit"),
        ("/input_items?order=up", "order"),
        ("/input_items?after=msg_other", "after"),
        ("?stream=true", "stream"),
        ("?stream=null", "stream"),
    ] {
        let (status, refused) = get(&pool, &format!("{}{path}", id(&second)));
        assert_eq!((status, &refused["error"]["param"]), (400, &json!(field)));
    }
}

#[test]
fn a_response_is_visible_only_to_its_own_key_and_gone_once_deleted() {
    let pool = pool(&[], "auth: {inference: key}\n");
    let (one, other) = (key(&pool, "one"), key(&pool, "other"));
    let (status, first) = pool.call(Some(&one), "POST", RESPONSES, &ask("One"));
    assert_eq!(status, 200, "{first}");
    let path = format!("{RESPONSES}/{}", id(&first));
    let item = json!([{"type": "item_reference", "id": first["output"][0]["id"]}]);
    let admin = pool.admin_key();
    for stranger in [&other, &admin] {
        let asked =
            |method: &str, path: &str, body: &Value| pool.call(Some(stranger), method, path, body);
        for (method, path) in [
            ("GET", path.clone()),
            ("GET", format!("{path}/input_items")),
            ("DELETE", path.clone()),
        ] {
            let (status, refused) = asked(method, &path, &json!(null));
            assert_eq!(status, 404, "{method} {path}: {refused}");
        }
        let (status, refused) = asked("POST", RESPONSES, &following(&first, &json!("Two")));
        let code = json!("previous_response_not_found");
        assert_eq!(
            (status, &refused["error"]["code"]),
            (404, &code),
            "{refused}"
        );
        let (status, _) = asked("POST", RESPONSES, &with(ask(""), "input", item.clone()));
        assert_eq!(status, 404);
    }
    let (_, second) = pool.call(
        Some(&one),
        "POST",
        RESPONSES,
        &following(&first, &json!("Two")),
    );
    let (status, deleted) = pool.call(Some(&one), "DELETE", &path, &json!(null));
    assert_eq!(
        (status, &deleted["deleted"]),
        (200, &json!(true)),
        "{deleted}"
    );
    let (status, _) = pool.call(Some(&one), "DELETE", &path, &json!(null));
    assert_eq!(status, 404);
    let (status, refused) = pool.call(
        Some(&one),
        "POST",
        RESPONSES,
        &following(&second, &json!("Three")),
    );
    let message = refused["error"]["message"].as_str().unwrap();
    assert_eq!(status, 404);
    assert!(
        message.contains(id(&first)) && message.contains("no longer stored"),
        "{message}"
    );
}

#[test]
fn a_stream_is_stored_when_it_ends_and_not_if_it_is_aborted() {
    let pool = pool(&["--tokens", "400", "--token-ms", "5"], "");
    let body = with(ask("One"), "max_output_tokens", json!(2));
    let (status, text, _) = pool.request(
        "POST",
        RESPONSES,
        &with(body, "stream", json!(true)).to_string(),
        None,
    );
    assert_eq!(status, 200, "{text}");
    let last = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("data: "));
    let last: Value = serde_json::from_str(last.unwrap()).unwrap();
    let response = &last["response"];
    let (status, found) = get(&pool, id(response));
    assert_eq!((status, &found), (200, response));
    assert_eq!(found["status"], "incomplete", "it was cut at its limit");
    let stream = pool.stream(
        RESPONSES,
        &with(ask("Two"), "stream", json!(true)).to_string(),
    );
    let mut left = None;
    wait_for("the response to begin", || {
        let text = stream.text();
        let data = text.lines().find_map(|line| line.strip_prefix("data: "));
        let event = data.and_then(|data| serde_json::from_str::<Value>(data).ok());
        left = event.and_then(|event| Some(event["response"]["id"].as_str()?.to_owned()));
        left.is_some()
    });
    drop(stream);
    wait_for("the request to be gone", || {
        let admin = pool.admin_key();
        let (_, text, _) = pool.request("GET", "/llm/admin/models?model=writer", "", Some(&admin));
        let view: Value = serde_json::from_str(&text).unwrap();
        let one = view["models"].get(0).unwrap_or(&view);
        one["replicas"][0]["in_flight"] == 0
    });
    let (status, _) = get(&pool, &left.unwrap());
    assert_eq!(status, 404);
}

#[test]
fn a_stream_that_ends_in_a_process_already_taken_over_is_still_stored() {
    let talk = ["--tokens", "150", "--token-ms", "20"];
    let mut pool = Pool::that_adopts(&[model(&talk)], "", "1m");
    let body = with(ask("One"), "stream", json!(true));
    let stream = pool.stream(RESPONSES, &body.to_string());
    wait_for("the first words", || {
        stream.text().contains("output_text.delta")
    });
    let mut old = pool.take_over();
    let text = stream.whole();
    let last = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("data: "));
    let last: Value = serde_json::from_str(last.unwrap()).unwrap();
    assert_eq!(last["type"], "response.completed", "{text}");
    wait_for("the old process to end", || {
        old.try_wait().unwrap().is_some()
    });
    let (status, found) = get(&pool, id(&last["response"]));
    assert_eq!((status, &found), (200, &last["response"]));
}

#[test]
fn stored_responses_are_limited_per_key_and_conversations_in_length() {
    let env = [(SECTION, "{per_key: 8}")];
    let mut pool = Pool::with_env(&[model(&["--tokens", "1"])], "", &env);
    let mut last = created(&pool, &ask("0"));
    let first = last.clone();
    for nth in 1..8 {
        last = created(&pool, &following(&last, &json!(nth.to_string())));
    }
    let (status, refused) = pool.call(None, "POST", RESPONSES, &following(&last, &json!("8")));
    assert_eq!(
        (status, &refused["error"]["param"]),
        (400, &json!("previous_response_id")),
        "{refused}"
    );
    assert!(
        refused["error"]["message"]
            .as_str()
            .unwrap()
            .contains("8 responses"),
        "{refused}"
    );
    for _ in 0..9 {
        created(&pool, &ask("another"));
    }
    end(&mut pool);
    assert_eq!(on_disk(&pool), "8 stored responses");
    pool.restart();
    assert_eq!(
        get(&pool, id(&first)).0,
        404,
        "the complete conversation was removed"
    );
    assert_eq!(get(&pool, id(&last)).0, 404);
}

#[test]
fn switching_the_store_off_deletes_stored_responses_and_stores_no_new_ones() {
    let mut pool = pool(&[], "");
    let first = created(&pool, &ask("One"));
    end(&mut pool);
    assert_eq!(on_disk(&pool), "1 stored response");
    pool.set_env(SECTION, "{store: false}");
    pool.restart();
    let (status, text, head) = pool.request("POST", RESPONSES, &ask("Two").to_string(), None);
    let second: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((status, &second["store"]), (200, &json!(false)), "{text}");
    assert!(head.contains("x-model-pool-ignored: store"), "{head}");
    assert_eq!(get(&pool, id(&first)).0, 404);
    let (status, refused) = pool.call(None, "POST", RESPONSES, &following(&first, &json!("Two")));
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(
        status == 400 && message.contains("state.responses.store"),
        "{message}"
    );
    wait_for("the response to be deleted", || {
        on_disk(&pool) == "0 stored responses"
    });
}
