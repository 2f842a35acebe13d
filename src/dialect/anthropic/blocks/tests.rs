//! Tests of content blocks from earlier turns.

use std::sync::Arc;

use super::super::super::seal::Seal;
use super::*;
use pool::KeyId;

fn sealer(holder: u64) -> Sealer {
    Sealer::new(Arc::new(Seal::new(&[7; 32])), KeyId(holder))
}

/// Returns the messages and the names of ignored fields.
fn read(given: Value) -> Result<(Value, Vec<String>), Failure> {
    let given = given.as_array().unwrap().clone();
    let mut notes = Notes::new(sealer(1));
    let all = messages(given, &mut notes)?;
    Ok((json!(all), notes.ignored.names()))
}

fn translated(given: Value) -> Result<Value, Failure> {
    read(given).map(|(messages, _)| messages)
}

#[test]
fn a_tool_use_and_its_result_become_a_tool_call_and_a_tool_message() {
    let translated = translated(json!([
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Ulm"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "rain"}], "is_error": true},
            {"type": "text", "text": "And?"}]},
    ]))
    .unwrap();
    let expected = json!([
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [
            {"id": "t1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Ulm\"}"}}]},
        {"role": "tool", "tool_call_id": "t1", "content": "Error: rain"},
        {"role": "user", "content": "And?"},
    ]);
    assert_eq!(translated, expected);
}

#[test]
fn a_lone_tool_result_adds_no_empty_turn_and_consecutive_turns_of_one_role_merge() {
    let translated = translated(json!([
        {"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]},
    ]))
    .unwrap();
    assert_eq!(translated[0], json!({"role": "user", "content": "a\nb"}));
    assert_eq!(translated[1]["content"], Value::Null);
    assert_eq!(
        translated[2],
        json!({"role": "tool", "tool_call_id": "t", "content": ""})
    );
    assert_eq!(translated.as_array().unwrap().len(), 3);
}

#[test]
fn an_image_becomes_a_data_url_and_urls_are_not_fetched() {
    let message =
        |source: Value| json!([{"role": "user", "content": [{"type": "image", "source": source}]}]);
    let source = json!({"type": "base64", "media_type": "image/png", "data": "AA=="});
    let translated_one = translated(message(source)).unwrap();
    assert_eq!(
        translated_one[0]["content"][0]["image_url"]["url"],
        "data:image/png;base64,AA=="
    );
    for (source, named) in [
        (
            json!({"type": "url", "url": "http://127.0.0.1/"}),
            "messages[0].content[0].source.type",
        ),
        (
            json!({"type": "file", "file_id": "f"}),
            "messages[0].content[0].source.type",
        ),
        (
            json!({"type": "base64", "media_type": "text/html", "data": ""}),
            "messages[0].content[0].source.media_type",
        ),
    ] {
        let failure = translated(message(source)).unwrap_err();
        assert_eq!(failure.body.error.param.as_deref(), Some(named));
    }
}

#[test]
fn invalid_turns_are_refused_by_name() {
    for (given, named) in [
        (json!([]), "messages"),
        (
            json!([{"role": "assistant", "content": "I am"}]),
            "messages",
        ),
        (
            json!([{"role": "wizard", "content": "x"}]),
            "messages[0].role",
        ),
        (json!([{"role": "user"}]), "messages[0].content"),
        (
            json!([{"role": "user", "content": [{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": ""}}]}]),
            "messages[0].content[0].source.type",
        ),
        (
            json!([{"role": "user", "content": [{"type": "search_result"}]}]),
            "messages[0].content[0].type",
        ),
        (
            json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "thinking"}]}]),
            "messages[1].content[0].thinking",
        ),
    ] {
        let failure = translated(given.clone()).unwrap_err();
        assert_eq!(failure.body.error.param.as_deref(), Some(named), "{given}");
    }
}

#[test]
fn thinking_signed_by_this_pool_returns_to_its_turn_and_other_thinking_is_reported() {
    let turn = |block: Value| {
        json!([{"role": "user", "content": "a"},
            {"role": "assistant", "content": [block, {"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]}])
    };
    let own = [
        json!({"type": "thinking", "thinking": "Hm.", "signature": sealer(1).sign("Hm.")}),
        json!({"type": "thinking", "thinking": "", "signature": sealer(1).seal("Hm.")}),
        json!({"type": "redacted_thinking", "data": sealer(1).seal("Hm.")}),
    ];
    for block in own {
        let (all, ignored) = read(turn(block)).unwrap();
        assert_eq!(all[1]["reasoning_content"], "Hm.");
        assert_eq!(ignored, [] as [&str; 0]);
    }
    let others = [
        json!({"type": "thinking", "thinking": "Hm!", "signature": sealer(1).sign("Hm.")}),
        json!({"type": "thinking", "thinking": "Hm.", "signature": sealer(2).sign("Hm.")}),
        json!({"type": "thinking", "thinking": "Hm.", "signature": "EqQBCkYI"}),
        json!({"type": "redacted_thinking", "data": "EqQBCkYI"}),
    ];
    for block in others {
        let name = format!("messages.{}", block["type"].as_str().unwrap());
        let (all, ignored) = read(turn(block)).unwrap();
        assert_eq!(all[1].get("reasoning_content"), None);
        assert_eq!(all[1]["tool_calls"][0]["id"], "t");
        assert_eq!(ignored, [name]);
    }
}

#[test]
fn system_messages_between_turns_keep_their_place() {
    let (all, ignored) = read(json!([
        {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral", "scope": "global"}}]},
        {"role": "system", "content": [{"type": "text", "text": "Be kind."}]},
    ]))
    .unwrap();
    let expected = json!([{"role": "user", "content": "Hi\n<system>\nBe kind.\n</system>"}]);
    assert_eq!((all, ignored), (expected, vec!["cache_control".to_owned()]));
}

#[test]
fn a_tool_result_may_contain_images_and_follow_text() {
    let source = json!({"type": "base64", "media_type": "image/png", "data": "AA=="});
    let (all, ignored) = read(json!([
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}, "cache_control": {"type": "ephemeral"}}]},
        {"role": "user", "content": [
            {"type": "text", "text": "Here."},
            {"type": "tool_result", "tool_use_id": "t", "content": [
                {"type": "text", "text": "A cat."}, {"type": "image", "source": source}]}]},
    ]))
    .unwrap();
    assert_eq!(
        all[2],
        json!({"role": "tool", "tool_call_id": "t", "content": "A cat."})
    );
    assert_eq!(
        all[3]["content"][1]["image_url"]["url"],
        "data:image/png;base64,AA=="
    );
    assert_eq!(all[3]["content"][2]["text"], "Here.");
    assert_eq!(ignored, ["cache_control"]);
}

#[test]
fn a_plain_text_document_becomes_its_text() {
    let source = json!({"type": "text", "media_type": "text/plain", "data": "Once."});
    let block = json!({"type": "document", "source": source, "title": "A tale", "citations": {"enabled": false}});
    let all = translated(json!([{"role": "user", "content": [block]}])).unwrap();
    assert_eq!(all[0]["content"], "A tale\nOnce.");
}

#[test]
fn the_input_of_an_earlier_tool_call_is_accepted_in_any_form() {
    for (input, arguments) in [
        (json!({"a": 1}), "{\"a\":1}"),
        (json!("{\"a\": "), "{\"a\": "),
        (json!(null), "{}"),
    ] {
        let call = json!({"type": "tool_use", "id": "t", "name": "f", "input": input});
        let all = translated(json!([{"role": "user", "content": "a"},
            {"role": "assistant", "content": [call]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}]}]));
        let function = &all.unwrap()[1]["tool_calls"][0]["function"];
        assert_eq!(function["arguments"], arguments);
    }
}

#[test]
fn an_unknown_cache_control_type_is_ignored() {
    let hint = json!({"type": "forever", "ttl": "1y"});
    let block = json!({"type": "text", "text": "Hi", "cache_control": hint});
    let (_, ignored) = read(json!([{"role": "user", "content": [block]}])).unwrap();
    assert_eq!(ignored, ["cache_control"]);
}
