//! Reasoning in every API: separated from the response, streamed, carried by the client, and returned to the model in the next
//! turn. Reasoning that this pool did not seal or sign for this key is left out and reported.

use serde_json::{Value, json};
use support::service::Pool;

use super::{
    CHAT, MESSAGES, RESPONSES, ask, ask_with, chat, echoed, message, model, named, pool, response,
    stream,
};

const THINKS: [&str; 2] = ["--reasoning", "Two and two."];

/// A reasoning model, and a model that echoes its request.
fn both() -> Pool {
    Pool::with_models(&[model(&THINKS), named("echo", &["--echo"], "")], "")
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect()
}

#[test]
fn a_chat_returns_reasoning_next_to_its_content() {
    let pool = pool(&THINKS);
    let (_, response, _) = ask(&pool, CHAT, &chat(&json!({})));
    let said = &response["choices"][0]["message"];
    assert_eq!(said["reasoning_content"], "Two and two.");
    assert_eq!(said["content"], "Hello from writer and goodbye");
    let (_, chunks, _) = stream(&pool, CHAT, &chat(&json!({})));
    let thought = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["reasoning_content"].as_str());
    assert_eq!(thought.collect::<String>(), "Two and two.");
}

#[test]
fn a_message_returns_a_signed_thinking_block_that_is_accepted_back() {
    let pool = both();
    let thinking = json!({"thinking": {"type": "enabled", "budget_tokens": 1024}});
    let (_, response, _) = ask(&pool, MESSAGES, &message(&thinking));
    let block = &response["content"][0];
    assert_eq!(
        (&block["type"], &block["thinking"]),
        (&json!("thinking"), &json!("Two and two."))
    );
    let (_, events, _) = stream(&pool, MESSAGES, &message(&thinking));
    let expected = [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
    ];
    assert_eq!(kinds(&events)[..8], expected);
    let signature = events
        .iter()
        .find_map(|event| event["delta"]["signature"].as_str());
    assert_eq!(signature, block["signature"].as_str());
    let again = |content: &Value| {
        let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": content},
            {"role": "user", "content": "b"}]);
        let body = message(&json!({"model": "echo", "messages": messages}));
        let (status, response, ignored) = ask(&pool, MESSAGES, &body);
        assert_eq!(status, 200, "{response}");
        (echoed(&response)["messages"][1].clone(), ignored)
    };
    let (turn, ignored) = again(&response["content"]);
    assert_eq!(
        (&turn["reasoning_content"], ignored.as_str()),
        (&json!("Two and two."), "")
    );
    for (field, value) in [
        ("thinking", "Two and three."),
        ("signature", "EqQBCkYIARgC"),
    ] {
        let mut forged = response["content"].clone();
        forged[0][field] = json!(value);
        let (turn, ignored) = again(&forged);
        assert_eq!(
            (turn.get("reasoning_content"), ignored.as_str()),
            (None, "messages.thinking")
        );
    }
}

#[test]
fn a_message_with_omitted_thinking_receives_it_sealed() {
    let pool = both();
    let thinking = json!({"thinking": {"type": "adaptive", "display": "omitted"}});
    let (_, response, _) = ask(&pool, MESSAGES, &message(&thinking));
    assert_eq!(response["content"][0]["thinking"], "");
    let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": response["content"]},
        {"role": "user", "content": "b"}]);
    let (_, response, _) = ask(
        &pool,
        MESSAGES,
        &message(&json!({"model": "echo", "messages": messages})),
    );
    assert_eq!(
        echoed(&response)["messages"][1]["reasoning_content"],
        "Two and two."
    );
}

#[test]
fn a_response_returns_a_reasoning_item_that_is_accepted_back_sealed() {
    let mut pool = both();
    let include = json!({"include": ["reasoning.encrypted_content"], "store": false});
    let (_, reply, _) = ask(&pool, RESPONSES, &response(&include));
    let item = reply["output"][0].clone();
    assert_eq!(
        item["content"],
        json!([{"type": "reasoning_text", "text": "Two and two."}])
    );
    assert_eq!(reply["output"][1]["type"], "message");
    let (_, events, _) = stream(
        &pool,
        RESPONSES,
        &response(&json!({"reasoning": {"summary": "auto"}})),
    );
    let expected = [
        "response.output_item.added",
        "response.reasoning_summary_part.added",
        "response.reasoning_summary_text.delta",
    ];
    assert_eq!(kinds(&events)[2..5], expected);
    let done = events
        .iter()
        .find(|event| event["type"] == "response.reasoning_summary_text.done");
    assert_eq!(done.unwrap()["text"], "Two and two.");
    let again = |pool: &Pool, item: &Value| {
        let mut item = item.clone();
        // As clients send it back, without the plain text.
        item.as_object_mut().unwrap().shift_remove("content");
        let input = json!([{"role": "user", "content": "a"}, item, {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"}]);
        let (status, reply, ignored) = ask(
            pool,
            RESPONSES,
            &response(&json!({"model": "echo", "input": input})),
        );
        assert_eq!(status, 200, "{reply}");
        (
            echoed(&reply)["messages"][1]["reasoning_content"].clone(),
            ignored,
        )
    };
    let whole = (json!("Two and two."), String::new());
    assert_eq!(again(&pool, &item), whole);
    pool.kill_and_restart();
    assert_eq!(again(&pool, &item), whole, "the key is kept");
    let nothing = (Value::Null, "input.reasoning.encrypted_content".to_owned());
    let (_, foreign, _) = ask(&both(), RESPONSES, &response(&include));
    let of_another_pool = foreign["output"][0]["encrypted_content"].clone();
    assert!(of_another_pool.is_string(), "{foreign}");
    for content in [json!("gAAAAABforeign"), of_another_pool] {
        let mut forged = item.clone();
        forged["encrypted_content"] = content;
        assert_eq!(again(&pool, &forged), nothing);
    }
}

#[test]
fn reasoning_sealed_for_one_key_cannot_be_opened_with_another() {
    let files = [model(&THINKS), named("echo", &["--echo"], "")];
    let pool = Pool::with_models(&files, "auth: {inference: key}\n");
    let admin = pool.admin_key();
    let key = |name: &str| {
        let body = json!({"name": name, "role": "user"}).to_string();
        let (status, text, _) = pool.request("POST", "/llm/admin/keys", &body, Some(&admin));
        assert!(status < 300, "{status} {text}");
        let made: Value = serde_json::from_str(&text).unwrap();
        format!("Bearer {}", made["key"].as_str().unwrap())
    };
    let (one, other) = (key("one"), key("other"));
    let include = json!({"include": ["reasoning.encrypted_content"]});
    let (_, reply, _) = ask_with(
        &pool,
        RESPONSES,
        &response(&include),
        &[("Authorization", &one)],
    );
    let sealed = &reply["output"][0]["encrypted_content"];
    let input = json!([{"role": "user", "content": "a"},
        {"type": "reasoning", "summary": [], "encrypted_content": sealed}, {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"}]);
    let body = response(&json!({"model": "echo", "input": input}));
    for (key, names) in [(&one, ""), (&other, "input.reasoning.encrypted_content")] {
        let (status, reply, ignored) = ask_with(&pool, RESPONSES, &body, &[("Authorization", key)]);
        assert_eq!((status, ignored.as_str()), (200, names), "{reply}");
    }
}
