//! Tests of the assembler: responses of single streams, and damaged streams.

use super::*;
use crate::damaged::CALLS_MAX;

fn merged(chunks: &[Value]) -> Value {
    let mut assembler = Assembler::new(None, 2);
    let text: String = chunks
        .iter()
        .map(|chunk| format!("data: {chunk}\n\n"))
        .collect();
    // Byte by byte: no piece is a complete event.
    for byte in format!(": a comment\n\n{text}data: [DONE]\n\n").as_bytes() {
        assembler.push(&[*byte]).unwrap();
    }
    assert!(assembler.done);
    assembler.finish().unwrap()
}

#[test]
fn chunks_of_a_chat_become_one_message_with_its_usage() {
    let response = merged(&[
        json!({"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": null}]}),
        json!({"id": "c1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "Hel"}}, {"index": 1, "delta": {"content": "B"}}]}),
        json!({"id": "c1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": "lo"}, "finish_reason": "stop"}]}),
        json!({"id": "c1", "object": "chat.completion.chunk", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}, "timings": {"prompt_ms": 4.5}}),
    ]);
    assert_eq!(response["timings"]["prompt_ms"], 4.5);
    assert_eq!(response["object"], "chat.completion");
    assert_eq!(
        response["choices"][0]["message"],
        json!({"role": "assistant", "content": "Hello", "refusal": null})
    );
    assert_eq!(response["choices"][0]["finish_reason"], "stop");
    assert_eq!(response["choices"][1]["message"]["content"], "B");
    assert_eq!(response["usage"]["total_tokens"], 5);
}

#[test]
fn pieces_of_a_tool_call_are_joined() {
    let response = merged(&[
        json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "t", "type": "function", "function": {"name": "f", "arguments": "{\"a\""}}]}}]}),
        json!({"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": ": 1}"}}]}, "finish_reason": "tool_calls"}]}),
    ]);
    let call = &response["choices"][0]["message"]["tool_calls"][0];
    assert_eq!(
        call,
        &json!({"id": "t", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}})
    );
    assert_eq!(response["choices"][0]["message"]["content"], Value::Null);
}

#[test]
fn logprobs_and_other_token_fields_are_preserved() {
    let chunk = |choice: Value| json!({"id": "c", "object": "chat.completion.chunk", "choices": [choice], "usage": null});
    let response = merged(&[
        chunk(json!({"index": 0, "delta": {"role": "assistant", "content": ""}})),
        chunk(
            json!({"index": 0, "delta": {"content": "a"}, "finish_reason": null, "logprobs": null}),
        ),
        chunk(json!({"index": 0, "delta": {"content": "\u{e9}\n"}, "logprobs": {"content": [1]}})),
        chunk(json!({"index": 0, "delta": {"content": "b", "reasoning_content": "why"}})),
        chunk(
            json!({"index": 0, "delta": {"content": "c"}, "finish_reason": "stop", "stop_reason": 7}),
        ),
        chunk(json!({"index": 1, "delta": {"content": "other"}})),
    ]);
    let first = &response["choices"][0];
    assert_eq!(first["message"]["content"], "a\u{e9}\nbc");
    assert_eq!(first["message"]["reasoning_content"], "why");
    assert_eq!(first["logprobs"], json!({"content": [1]}));
    assert_eq!(
        (&first["finish_reason"], &first["stop_reason"]),
        (&json!("stop"), &json!(7))
    );
    assert_eq!(response["choices"][1]["message"]["content"], "other");
}

/// Two interleaved choices, a text with escapes, and an event of another form among them.
#[test]
fn repeated_token_events_are_joined_in_order() {
    let chunk = |index: u64, text: &str| json!({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": index, "delta": {"content": text}, "finish_reason": null}]});
    let texts = ["one", " \"two\"", "\n", "", "\u{e9}", "\u{1f600}", " three"];
    let mut chunks = vec![
        json!({"id": "c", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}, {"index": 1, "delta": {"role": "assistant", "content": ""}}]}),
    ];
    for text in texts {
        chunks.extend([chunk(0, text), chunk(1, text), chunk(0, "-")]);
    }
    chunks.push(json!({"id": "c", "choices": [{"index": 0, "delta": {"content": "!", "reasoning_content": "why"}}]}));
    chunks.extend([chunk(0, "a"), chunk(0, "b"), chunk(1, "c")]);
    let response = merged(&chunks);
    let content = |nth: usize| response["choices"][nth]["message"]["content"].clone();
    assert_eq!(
        content(0),
        texts.map(|text| format!("{text}-")).concat() + "!ab"
    );
    assert_eq!(content(1), texts.concat() + "c");
    assert_eq!(
        response["choices"][0]["message"]["reasoning_content"],
        "why"
    );
}

#[test]
fn repeated_completion_events_are_joined() {
    let chunk = |text: &str, reason: Value| json!({"object": "text_completion", "choices": [{"index": 0, "text": text, "logprobs": null, "finish_reason": reason}]});
    let mut chunks: Vec<Value> = ["a", "b", "\"", "c"]
        .map(|text| chunk(text, Value::Null))
        .into();
    chunks.push(chunk("d", json!("stop")));
    let response = merged(&chunks);
    assert_eq!(response["choices"][0]["text"], "ab\"cd");
    assert_eq!(response["choices"][0]["finish_reason"], "stop");
}

#[test]
fn an_error_in_the_stream_is_stored_separately() {
    let mut assembler = Assembler::new(None, 1);
    let shown = b"data: {\"error\":{\"message\":\"out of memory\"}}\n\n";
    assembler.push(shown).unwrap();
    assert_eq!(assembler.error.unwrap()["message"], "out of memory");
}

fn damage(choices_max: usize, chunks: &[Value]) -> Option<Damaged> {
    let mut assembler = Assembler::new(None, choices_max);
    let events = chunks.iter().map(|chunk| format!("data: {chunk}\n\n"));
    events
        .map(|event| assembler.push(event.as_bytes()))
        .find_map(Result::err)
}

#[test]
fn more_choices_than_requested_are_a_damaged_response() {
    let choice = |index: u64| json!({"index": index, "delta": {"content": "a"}});
    let of_one_event = json!({"choices": [choice(0), choice(1), choice(2)]});
    let of_three = [0, 1, 2].map(|index| json!({"choices": [choice(index)]}));
    for chunks in [&[of_one_event][..], &of_three] {
        assert_eq!(damage(3, chunks), None);
        assert_eq!(damage(2, chunks), Some(Damaged::TooManyResponses(2)));
    }
    // Choices may have any index.
    let far = json!({"choices": [choice(u64::MAX), choice(7), choice(u64::MAX)]});
    assert_eq!(damage(2, &[far]), None);
}

#[test]
fn a_response_has_a_bounded_number_of_tool_calls() {
    let calls = |from: usize, count: usize| {
        let calls: Vec<Value> = (from..from + count)
            .map(|index| json!({"index": index}))
            .collect();
        json!({"choices": [{"delta": {"tool_calls": calls}}]})
    };
    assert_eq!(damage(1, &[calls(0, CALLS_MAX)]), None);
    for chunks in [
        &[calls(0, CALLS_MAX + 1)][..],
        &[calls(0, CALLS_MAX), calls(CALLS_MAX, 1)],
    ] {
        assert_eq!(damage(1, chunks), Some(Damaged::TooManyCalls));
    }
}

#[test]
fn an_unreadable_event_is_a_damaged_response() {
    for event in [
        &b"data: {\"choices\":[{\"delta\":{\"content\":\"\xff\"}}]}\n\n"[..],
        b"data: {\"choices\":[\n\n",
        b"data: 5\n\n",
    ] {
        let mut assembler = Assembler::new(None, 1);
        assert_eq!(assembler.push(event), Err(Damaged::NotJson));
    }
    let mut assembler = Assembler::new(None, 1);
    assert_eq!(assembler.push(b"data:\n\n: a comment\n\n"), Ok(true));
}

#[test]
fn events_after_the_end_mark_are_ignored() {
    let event = |text: &str| {
        format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n")
    };
    let (one, late) = (event("one"), event("late"));
    let mut assembler = Assembler::new(None, 1);
    let text = format!("{one}data: [DONE]\n\n{late}data: 5\n\n");
    assembler.push(text.as_bytes()).unwrap();
    assert!(assembler.done);
    let response = assembler.finish().unwrap();
    assert_eq!(response["choices"][0]["message"]["content"], "one");
}
