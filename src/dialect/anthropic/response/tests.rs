//! Tests of complete and streamed messages as clients receive them.

use std::sync::Arc;

use super::super::super::seal::Seal;
use super::*;
use pool::KeyId;

fn message_that(shows_thinking: bool) -> Message {
    let stops = vec!["END".to_owned()];
    Message::new("m".to_owned(), stops, sealer(), shows_thinking)
}

fn message() -> Message {
    message_that(true)
}

fn sealer() -> Sealer {
    Sealer::new(Arc::new(Seal::new(&[7; 32])), KeyId(1))
}

fn chunk(delta: Value, finish: Option<&str>) -> Chunk {
    Chunk::of_event(&json!({"choices": [{"delta": delta, "finish_reason": finish}]}))
}

/// Parses the event names and data.
fn events(written_out: &str) -> Vec<Value> {
    let data = written_out
        .lines()
        .filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let names = written_out
        .lines()
        .filter_map(|line| line.strip_prefix("event: "));
    assert!(names.eq(events.iter().map(|event| event["type"].as_str().unwrap())));
    events
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect()
}

#[test]
fn a_text_is_one_content_block_between_message_start_and_stop() {
    let mut message = message();
    let mut written_out = String::new();
    message.chunk(
        chunk(json!({"role": "assistant", "content": ""}), None),
        &mut written_out,
    );
    message.chunk(chunk(json!({"content": "Hel"}), None), &mut written_out);
    message.chunk(
        chunk(json!({"content": "lo"}), Some("stop")),
        &mut written_out,
    );
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}});
    message.chunk(Chunk::of_event(&usage), &mut written_out);
    message.end(&mut written_out);
    message.end(&mut written_out);
    let events = events(&written_out);
    let expected = [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(kinds(&events), expected);
    assert_eq!(events[0]["message"]["model"], "m");
    assert_eq!(
        events[3]["delta"],
        json!({"type": "text_delta", "text": "Hel"})
    );
    assert_eq!(events[6]["delta"]["stop_reason"], "end_turn");
    assert_eq!(events[6]["usage"]["input_tokens"], 5);
    assert_eq!(events[6]["usage"]["output_tokens"], 2);
}

#[test]
fn tool_calls_become_blocks_even_if_their_pieces_interleave() {
    let mut message = message();
    let mut written_out = String::new();
    let begin = |index: u64, name: &str| json!({"index": index, "id": format!("t{index}"), "function": {"name": name, "arguments": ""}});
    let piece = |index: u64, text: &str| json!({"index": index, "function": {"arguments": text}});
    message.chunk(chunk(json!({"content": "I look."}), None), &mut written_out);
    let both = json!({"tool_calls": [begin(0, "f"), begin(1, "g")]});
    message.chunk(chunk(both, None), &mut written_out);
    let pieces = json!({"tool_calls": [piece(1, "{\"b\""), piece(0, "{}"), piece(1, ":1}")]});
    message.chunk(chunk(pieces, Some("stop")), &mut written_out);
    message.end(&mut written_out);
    let events = events(&written_out);
    assert_eq!(events[4], json!({"type": "content_block_stop", "index": 0}));
    let block = json!({"type": "tool_use", "id": "t1", "name": "g", "input": {}, "caller": {"type": "direct"}});
    assert_eq!(events[6]["content_block"], block);
    let input: String = events
        .iter()
        .filter(|event| event["index"] == 2)
        .filter_map(|event| event["delta"]["partial_json"].as_str())
        .collect();
    assert_eq!(input, "{\"b\":1}");
    assert_eq!(events[12]["delta"]["stop_reason"], "tool_use");
    let stops = events
        .iter()
        .filter(|event| event["type"] == "content_block_stop");
    assert_eq!(stops.count(), 3);
}

#[test]
fn nothing_follows_an_error_in_the_stream() {
    let mut message = message();
    let mut written_out = String::new();
    message.chunk(chunk(json!({"content": "a"}), None), &mut written_out);
    let error = json!({"message": "out of memory", "type": "server_error"});
    message.failed(&error, &mut written_out);
    message.end(&mut written_out);
    let last = events(&written_out).pop().unwrap();
    assert_eq!(
        last["error"],
        json!({"type": "api_error", "message": "out of memory"})
    );
}

#[test]
fn a_complete_message_has_content_blocks_a_stop_reason_and_usage() {
    let response = json!({"choices": [{"message": {"content": "Hi", "tool_calls": [
            {"id": "t", "function": {"name": "f", "arguments": "{\"a\":1}"}}]}, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}}});
    let written_out = message().respond(Chunk::of_response(&response)).unwrap();
    let content = json!([{"type": "text", "text": "Hi", "citations": null},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}, "caller": {"type": "direct"}}]);
    assert_eq!(written_out["content"], content);
    assert_eq!(
        (&written_out["stop_reason"], &written_out["stop_sequence"]),
        (&json!("tool_use"), &Value::Null)
    );
    assert_eq!(written_out["usage"]["input_tokens"], 3);
    assert_eq!(written_out["usage"]["cache_read_input_tokens"], 4);
}

#[test]
fn the_finish_reason_is_mapped_to_an_anthropic_stop_reason() {
    for (finish, stopped_by, reason) in [
        ("stop", json!(null), "end_turn"),
        ("stop", json!("END"), "stop_sequence"),
        ("stop", json!("of the model's file"), "end_turn"),
        ("length", json!(null), "max_tokens"),
        ("content_filter", json!(null), "refusal"),
    ] {
        let response = json!({"choices": [{"message": {"content": "x"}, "finish_reason": finish, "stop_reason": stopped_by}]});
        let written_out = message().respond(Chunk::of_response(&response)).unwrap();
        assert_eq!(written_out["stop_reason"], reason);
        assert_eq!(
            written_out["stop_sequence"] == "END",
            reason == "stop_sequence"
        );
    }
}

#[test]
fn an_invalid_tool_call_is_dropped_if_truncated_and_an_error_otherwise() {
    let response = |finish: &str| {
        let calls = json!([{"id": "t", "function": {"name": "f", "arguments": "{\"a\""}}]);
        let response =
            json!({"choices": [{"message": {"tool_calls": calls}, "finish_reason": finish}]});
        message().respond(Chunk::of_response(&response))
    };
    assert_eq!(response("length").unwrap()["content"], json!([]));
    assert_eq!(response("tool_calls").unwrap_err().status().as_u16(), 502);
}

#[test]
fn reasoning_becomes_a_signed_thinking_block_before_the_text() {
    let mut message = message();
    let mut written_out = String::new();
    for delta in [
        json!({"reasoning_content": "Two "}),
        json!({"reasoning_content": "and two."}),
        json!({"content": "Four."}),
    ] {
        message.chunk(chunk(delta, None), &mut written_out);
    }
    message.end(&mut written_out);
    let events = events(&written_out);
    let expected = [
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
    ];
    assert_eq!(kinds(&events)[2..10], expected);
    assert_eq!(events[2]["content_block"]["type"], "thinking");
    assert_eq!(
        events[3]["delta"],
        json!({"type": "thinking_delta", "thinking": "Two "})
    );
    let signature = events[5]["delta"]["signature"].as_str().unwrap();
    assert!(sealer().has_signed("Two and two.", signature));
}

#[test]
fn hidden_reasoning_is_sealed_and_may_be_the_only_content() {
    let mut message = message_that(false);
    let mut written_out = String::new();
    message.chunk(
        chunk(json!({"reasoning": "Hm."}), Some("length")),
        &mut written_out,
    );
    message.end(&mut written_out);
    assert!(!written_out.contains("Hm."));
    let events = events(&written_out);
    let signature = events[3]["delta"]["signature"].as_str().unwrap();
    assert_eq!(sealer().open(signature).as_deref(), Some("Hm."));
    assert_eq!(
        kinds(&events)[4..],
        ["content_block_stop", "message_delta", "message_stop"]
    );
    let response = json!({"choices": [{"message": {"reasoning_content": "Hm.", "content": "Hi"}}]});
    let whole = message_that(false)
        .respond(Chunk::of_response(&response))
        .unwrap();
    assert_eq!(whole["content"][0]["thinking"], "");
    let shown = message_that(true)
        .respond(Chunk::of_response(&response))
        .unwrap();
    assert_eq!(shown["content"][0]["thinking"], "Hm.");
    assert_eq!(shown["content"][1], text_block("Hi"));
}

#[test]
fn too_many_tool_calls_end_a_message_with_an_error() {
    let mut message = message();
    let mut written_out = String::new();
    let call = |index: usize| json!({"index": index, "function": {"name": "f"}});
    let calls: Vec<Value> = (0..CALLS_MAX + 9).map(call).collect();
    for _ in 0..2 {
        let piece = chunk(json!({"tool_calls": calls}), None);
        message.chunk(piece, &mut written_out);
    }
    message.end(&mut written_out);
    let events = events(&written_out);
    let count = |kind: &str| {
        kinds(&events)
            .iter()
            .filter(|other| **other == kind)
            .count()
    };
    assert_eq!(
        (count("content_block_start"), count("error")),
        (CALLS_MAX, 1)
    );
    assert_eq!(events.last().unwrap()["type"], "error");
}
