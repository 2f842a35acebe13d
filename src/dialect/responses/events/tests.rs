//! Tests of streamed responses as clients receive them.

use super::super::response::Shows;
use super::super::response::tests::{response as with, sealer};
use super::*;

fn response() -> Response {
    with(&Map::new(), Shows::default())
}

fn chunk(delta: Value, finish: Option<&str>) -> Chunk {
    Chunk::of_event(&json!({"choices": [{"delta": delta, "finish_reason": finish}]}))
}

/// Parses the events' data and checks that their numbers have no gap.
fn events(shown: &str) -> Vec<Value> {
    let data = shown.lines().filter_map(|line| line.strip_prefix("data: "));
    let events: Vec<Value> = data
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    for (nth, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], nth);
    }
    events
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let kinds = events.iter().map(|event| event["type"].as_str().unwrap());
    kinds
        .map(|kind| kind.strip_prefix("response.").unwrap())
        .collect()
}

#[test]
fn every_event_names_the_tier_of_the_pool_or_that_of_a_remote_engine() {
    for (follows_engine, expected) in [(false, "flex"), (true, "scale")] {
        let mut response = response();
        response.set_tier("flex", follows_engine);
        let mut shown = String::new();
        let text = json!({"choices": [{"delta": {"content": "Hi"}}], "service_tier": "scale"});
        response.chunk(Chunk::of_event(&text), &mut shown);
        let last = json!({"choices": [{"delta": {}, "finish_reason": "stop"}]});
        response.chunk(Chunk::of_event(&last), &mut shown);
        response.end(&mut shown);
        let events = events(&shown);
        let tiers = events
            .iter()
            .map(|event| &event["response"]["service_tier"]);
        let tiers: Vec<&Value> = tiers.filter(|tier| !tier.is_null()).collect();
        assert_eq!(tiers, [expected; 3]);
    }
}

#[test]
fn a_text_is_streamed_with_created_delta_and_done_events() {
    let mut response = response();
    let mut shown = String::new();
    response.chunk(
        chunk(json!({"role": "assistant", "content": ""}), None),
        &mut shown,
    );
    response.chunk(chunk(json!({"content": "Hel"}), None), &mut shown);
    response.chunk(chunk(json!({"content": "lo"}), Some("stop")), &mut shown);
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}});
    response.chunk(Chunk::of_event(&usage), &mut shown);
    response.end(&mut shown);
    let events = events(&shown);
    let expected = [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ];
    assert_eq!(kinds(&events), expected);
    assert_eq!(events[0]["response"]["status"], "in_progress");
    assert_eq!(events[6]["text"], "Hello");
    let last = &events[9]["response"];
    assert_eq!(last["output"][0]["content"][0]["text"], "Hello");
    assert_eq!(last["output"][0]["id"], events[2]["item"]["id"]);
    assert_eq!(last["usage"]["total_tokens"], 7);
}

#[test]
fn function_calls_are_streamed_after_the_text_with_argument_deltas() {
    let mut response = response();
    let mut shown = String::new();
    response.chunk(chunk(json!({"content": "I look."}), None), &mut shown);
    let begin = json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]});
    response.chunk(chunk(begin, None), &mut shown);
    let piece = |text: &str| json!({"tool_calls": [{"index": 0, "function": {"arguments": text}}]});
    response.chunk(chunk(piece("{\"a\""), None), &mut shown);
    response.chunk(chunk(piece(":1}"), Some("tool_calls")), &mut shown);
    response.end(&mut shown);
    let events = events(&shown);
    let expected = [
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ];
    assert_eq!(kinds(&events)[5..], expected);
    let item = &events[12]["item"];
    assert_eq!(
        (&item["arguments"], &item["call_id"]),
        (&json!("{\"a\":1}"), &json!("c"))
    );
    assert_eq!(events[13]["response"]["output"][1], *item);
    assert_eq!(events[13]["response"]["output"][0]["status"], "completed");
}

#[test]
fn a_truncated_response_is_incomplete_and_an_empty_one_has_an_empty_message() {
    let mut response = response();
    let mut shown = String::new();
    response.chunk(chunk(json!({}), Some("length")), &mut shown);
    response.end(&mut shown);
    let last = events(&shown).pop().unwrap();
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(
        last["response"]["incomplete_details"]["reason"],
        "max_output_tokens"
    );
    assert_eq!(last["response"]["output"][0]["content"][0]["text"], "");
}

#[test]
fn an_error_becomes_a_failed_response_even_before_any_output() {
    let mut response = response();
    let mut shown = String::new();
    let error = json!({"message": "the queue is full", "type": "rate_limit_error"});
    response.failed(&error, &mut shown);
    response.end(&mut shown);
    let events = events(&shown);
    assert_eq!(kinds(&events), ["created", "in_progress", "failed"]);
    let error = json!({"code": "rate_limit_exceeded", "message": "the queue is full"});
    assert_eq!(events[2]["response"]["error"], error);
    assert_eq!(events[2]["response"]["status"], "failed");
}

#[test]
fn reasoning_is_streamed_and_finished_before_the_text() {
    for (shows, expected) in [
        (
            Shows::default(),
            [
                "content_part.added",
                "reasoning_text.delta",
                "reasoning_text.delta",
                "reasoning_text.done",
                "content_part.done",
            ],
        ),
        (
            Shows {
                encrypted: true,
                summary: true,
            },
            [
                "reasoning_summary_part.added",
                "reasoning_summary_text.delta",
                "reasoning_summary_text.delta",
                "reasoning_summary_text.done",
                "reasoning_summary_part.done",
            ],
        ),
    ] {
        let mut response = with(&Map::new(), shows);
        let mut shown = String::new();
        for delta in [
            json!({"reasoning_content": "Two "}),
            json!({"reasoning_content": "and two."}),
            json!({"content": "Four."}),
        ] {
            response.chunk(chunk(delta, None), &mut shown);
        }
        response.end(&mut shown);
        let events = events(&shown);
        assert_eq!(kinds(&events)[3..8], expected);
        assert_eq!(
            kinds(&events)[8..10],
            ["output_item.done", "output_item.added"]
        );
        assert_eq!(events[6]["text"], "Two and two.");
        let output = &events.last().unwrap()["response"]["output"];
        assert_eq!(output[0], events[8]["item"], "sealed once");
        let sealed = output[0]["encrypted_content"].as_str();
        let opened = sealed.and_then(|sealed| sealer().open(sealed));
        assert_eq!(opened.is_some(), shows.encrypted);
        assert_eq!(output[1]["content"][0]["text"], "Four.");
    }
}

#[test]
fn the_input_of_a_custom_tool_is_streamed_as_text() {
    let mut response = response();
    let mut shown = String::new();
    let piece = |name: Option<&str>, text: &str| json!({"tool_calls": [{"index": 0, "id": "c", "function": {"name": name, "arguments": text}}]});
    for (name, text) in [
        (Some("edit"), ""),
        (None, "{\"inp"),
        (None, "ut\": \"a\\"),
        (None, "nb\""),
        (None, "}"),
    ] {
        response.chunk(chunk(piece(name, text), None), &mut shown);
    }
    response.end(&mut shown);
    let events = events(&shown);
    let expected = [
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
        "completed",
    ];
    assert_eq!(kinds(&events)[2..], expected);
    assert_eq!(
        (&events[3]["delta"], &events[4]["delta"]),
        (&json!("a"), &json!("\nb"))
    );
    assert_eq!(events[5]["input"], "a\nb");
    assert_eq!(events[6]["item"]["input"], "a\nb");
}

#[test]
fn an_error_caused_by_the_request_keeps_its_code() {
    for (error, code) in [
        (
            json!({"type": "invalid_request_error", "code": "context_length_exceeded"}),
            "context_length_exceeded",
        ),
        (json!({"type": "invalid_request_error"}), "invalid_prompt"),
        (
            json!({"type": "server_error", "code": "engine_error"}),
            "server_error",
        ),
    ] {
        let mut shown = String::new();
        response().failed(&error, &mut shown);
        let last = events(&shown).pop().unwrap();
        assert_eq!(last["response"]["error"]["code"], code);
    }
}

#[test]
fn too_many_tool_calls_end_a_response_with_an_error() {
    let mut response = response();
    let mut shown = String::new();
    let call = |index: usize| json!({"index": index, "function": {"name": "f"}});
    let calls: Vec<Value> = (0..CALLS_MAX + 9).map(call).collect();
    response.chunk(chunk(json!({"tool_calls": calls}), None), &mut shown);
    response.chunk(chunk(json!({"tool_calls": calls}), None), &mut shown);
    response.end(&mut shown);
    let events = events(&shown);
    let count = |kind: &str| {
        kinds(&events)
            .iter()
            .filter(|other| **other == kind)
            .count()
    };
    assert_eq!(
        (count("output_item.added"), count("failed")),
        (CALLS_MAX, 1)
    );
    let last = &events.last().unwrap()["response"];
    let message = last["error"]["message"].as_str().unwrap();
    assert!(message.contains("tool calls"), "{message}");
}
