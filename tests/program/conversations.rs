//! Conversations of OpenAI's API with the real program: their items, their owners, and compaction.

use serde_json::json;

use super::background_responses::{RESPONSES, key, pool};
use support::service::Pool;

const CONVERSATIONS: &str = "/v1/conversations";

#[test]
fn a_conversation_gives_its_items_to_requests_and_keeps_theirs() {
    let mut pool = pool(&["--echo"], "");
    let first = json!({"items": [{"role": "user", "content": "Zero"}], "metadata": {"topic": "a"}});
    let (status, made) = pool.call(None, "POST", CONVERSATIONS, &first);
    assert_eq!(
        (status, &made["object"]),
        (200, &json!("conversation")),
        "{made}"
    );
    let place = format!("{CONVERSATIONS}/{}", made["id"].as_str().unwrap());
    let ask = json!({"model": "writer", "input": "One", "conversation": {"id": made["id"]}});
    let (status, response) = pool.call(None, "POST", RESPONSES, &ask);
    assert_eq!(status, 200, "{response}");
    assert_eq!(response["conversation"]["id"], made["id"]);
    pool.kill_and_restart();
    let listed = |pool: &Pool, query: &str| {
        let (status, list) = pool.call(None, "GET", &format!("{place}/items{query}"), &json!(null));
        assert_eq!(status, 200, "{list}");
        list
    };
    let list = listed(&pool, "?order=asc");
    let roles: Vec<&str> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|item| item["role"].as_str())
        .collect();
    assert_eq!(roles, ["user", "user", "assistant"]);
    let ask = json!({"model": "writer", "input": "Two", "conversation": made["id"]});
    let (_, response) = pool.call(None, "POST", RESPONSES, &ask);
    let echoed = response["output"][0]["content"][0]["text"]
        .as_str()
        .expect("a text");
    assert!(
        echoed.contains("Zero") && echoed.contains("One") && echoed.contains("Two"),
        "{echoed}"
    );
    let more = json!({"items": [{"role": "user", "content": "Three"}]});
    let (status, added) = pool.call(None, "POST", &format!("{place}/items"), &more);
    assert_eq!(
        (status, &added["data"][0]["role"]),
        (200, &json!("user")),
        "{added}"
    );
    let item = format!("{place}/items/{}", added["first_id"].as_str().unwrap());
    let (status, found) = pool.call(None, "GET", &item, &json!(null));
    assert_eq!((status, &found), (200, &added["data"][0]));
    let (status, _) = pool.call(None, "DELETE", &item, &json!(null));
    assert_eq!(status, 200);
    let (status, _) = pool.call(None, "GET", &item, &json!(null));
    assert_eq!(status, 404);
    let page = listed(&pool, "?limit=2");
    assert_eq!(
        (page["data"].as_array().unwrap().len(), &page["has_more"]),
        (2, &json!(true))
    );
    let change = json!({"metadata": {"topic": "b"}});
    let (status, changed) = pool.call(None, "POST", &place, &change);
    assert_eq!((status, &changed["metadata"]["topic"]), (200, &json!("b")));
    for (path, body, param) in [
        (
            CONVERSATIONS.to_owned(),
            json!({"items": [{"role": "nobody", "content": "x"}]}),
            "items[0].role",
        ),
        (
            CONVERSATIONS.to_owned(),
            json!({"items": [{"type": "item_reference", "id": "msg_1"}]}),
            "items[0].type",
        ),
        (
            CONVERSATIONS.to_owned(),
            json!({"metadata": {"a": 5}}),
            "metadata",
        ),
        (CONVERSATIONS.to_owned(), json!({"title": "x"}), "title"),
        (format!("{place}/items"), json!({"items": []}), "items"),
        (
            format!("{place}/items"),
            json!({"items": vec![json!({"role": "user", "content": "x"}); 21]}),
            "items",
        ),
    ] {
        let (status, refused) = pool.call(None, "POST", &path, &body);
        assert_eq!(
            (status, &refused["error"]["param"]),
            (400, &json!(param)),
            "{refused}"
        );
    }
    let (status, deleted) = pool.call(None, "DELETE", &place, &json!(null));
    assert_eq!(
        (status, &deleted["object"]),
        (200, &json!("conversation.deleted"))
    );
    let (status, refused) = pool.call(None, "POST", RESPONSES, &ask);
    assert_eq!(
        (status, &refused["error"]["code"]),
        (404, &json!("conversation_not_found"))
    );
}

#[test]
fn a_conversation_of_another_key_is_unknown() {
    let pool = pool(&[], "auth: {inference: key}\n");
    let ((one, _), (other, _)) = (key(&pool, "one"), key(&pool, "other"));
    let (status, made) = pool.call(Some(&one), "POST", CONVERSATIONS, &json!(null));
    assert_eq!(status, 200, "{made}");
    let place = format!("{CONVERSATIONS}/{}", made["id"].as_str().unwrap());
    let change = json!({"metadata": {}});
    let more = json!({"items": [{"role": "user", "content": "x"}]});
    for (method, path, body) in [
        ("GET", place.clone(), json!(null)),
        ("POST", place.clone(), change),
        ("DELETE", place.clone(), json!(null)),
        ("GET", format!("{place}/items"), json!(null)),
        ("POST", format!("{place}/items"), more),
        ("GET", format!("{place}/items/msg_1"), json!(null)),
    ] {
        let (status, refused) = pool.call(Some(&other), method, &path, &body);
        assert_eq!(status, 404, "{method} {path}: {refused}");
    }
}

#[test]
fn a_compacted_conversation_continues_with_the_summary() {
    let pool = pool(&["--echo"], "");
    let long = json!({"model": "writer", "input": [
        {"role": "user", "content": "Remember 7."}, {"role": "assistant", "content": "Yes."}]});
    let (status, compacted) = pool.call(None, "POST", "/v1/responses/compact", &long);
    assert_eq!(
        (status, &compacted["object"]),
        (200, &json!("response.compaction")),
        "{compacted}"
    );
    let mut input = compacted["output"].as_array().unwrap().clone();
    assert_eq!(input.last().unwrap()["type"], "compaction");
    input.push(json!({"role": "user", "content": "And now?"}));
    let next = json!({"model": "writer", "input": input});
    let (status, response) = pool.call(None, "POST", RESPONSES, &next);
    assert_eq!(status, 200, "{response}");
    let echoed = response["output"][0]["content"][0]["text"]
        .as_str()
        .expect("a text");
    assert!(
        echoed.contains("summary of the earlier conversation"),
        "{echoed}"
    );
}
