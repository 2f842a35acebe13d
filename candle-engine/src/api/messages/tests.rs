//! Tests of the messages' forms and fields.

use super::*;

fn take(messages: Value) -> Result<Vec<Value>, ApiError> {
    take_with(messages, &mut IgnoredFields::default())
}

fn take_with(messages: Value, ignored: &mut IgnoredFields) -> Result<Vec<Value>, ApiError> {
    let body = json!({"messages": messages}).to_string();
    take_messages(
        &mut Fields::parse(body.as_bytes()).expect("an object"),
        ignored,
        None,
    )
}

#[test]
fn an_assistant_message_can_be_sent_back_with_all_its_fields() {
    let nulls = json!({"role": "assistant", "content": "Hi", "annotations": null, "audio": null,
        "function_call": null, "reasoning_content": null, "refusal": null, "tool_calls": null});
    assert_eq!(
        take(json!([nulls])).expect("is taken"),
        [json!({"role": "assistant", "content": "Hi"})]
    );
    let given = json!({"role": "assistant", "content": "Hi", "annotations": [], "audio": {"id": "a"},
        "reasoning_content": "I greet.", "tool_calls": []});
    assert_eq!(
        take(json!([given])).expect("is taken"),
        [json!({"role": "assistant", "content": "Hi", "reasoning_content": "I greet."})]
    );
    let refused = json!({"role": "assistant", "content": null, "refusal": "No."});
    assert_eq!(
        take(json!([refused])).expect("is taken")[0]["content"],
        "No."
    );
    let other = json!({"role": "assistant", "content": "Hi", "reasoning": "I greet."});
    let taken = take(json!([other])).expect("is taken");
    assert_eq!(taken[0]["reasoning_content"], "I greet.");
}

#[test]
fn a_function_call_is_converted_to_a_tool_call() {
    let call = json!({"name": "f", "arguments": "{\"a\": 1}"});
    let message = json!({"role": "assistant", "content": null, "function_call": call});
    let taken = take(json!([message])).expect("is taken");
    assert_eq!(
        taken[0]["tool_calls"][0]["function"],
        json!({"name": "f", "arguments": {"a": 1}})
    );
}

#[test]
fn a_message_with_images_keeps_its_parts_in_order() {
    let image =
        |url: &str| json!({"type": "image_url", "image_url": {"url": url, "detail": "low"}});
    let text = |text: &str| json!({"type": "text", "text": text});
    let messages = json!([
        {"role": "user", "content": [text("a"), image("data:1"), text("b"), text("c"), image("data:2")]},
        {"role": "user", "content": [text("d"), text("e")]},
    ]);
    let body = json!({"messages": messages}).to_string();
    let mut fields = Fields::parse(body.as_bytes()).expect("an object");
    let (mut ignored, mut images) = (IgnoredFields::default(), Vec::new());
    let taken = take_messages(&mut fields, &mut ignored, Some(&mut images));
    let shown = json!({"type": "image"});
    let content = json!([text("a"), shown, text("b"), text("c"), shown]);
    assert_eq!(
        taken.expect("is taken"),
        [
            json!({"role": "user", "content": content}),
            json!({"role": "user", "content": "de"})
        ]
    );
    let found: Vec<_> = images
        .iter()
        .map(|image| (image.place.as_str(), image.url.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            ("messages[0].content[1].image_url", "data:1"),
            ("messages[0].content[4].image_url", "data:2"),
        ]
    );
    assert_eq!(ignored.joined(), "messages.content.image_url.detail");
    let error = take(messages).expect_err("the model reads only text");
    assert!(
        error.message.contains("it accepts only text"),
        "{}",
        error.message
    );
}

#[test]
fn a_cache_hint_is_accepted_on_every_text_part() {
    let part = json!({"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}});
    let taken = take(json!([{"role": "user", "content": [part]}])).expect("is taken");
    assert_eq!(taken[0]["content"], "Hi");
}

#[test]
fn extra_message_fields_are_dropped_and_reported() {
    let mut ignored = IgnoredFields::default();
    let call = json!({"id": "1", "index": 0, "type": "function", "thought_signature": "x",
        "function": {"name": "f", "arguments": "{}", "extra": 1}});
    let messages = json!([
        {"role": "user", "content": [{"type": "text", "text": "a", "id": "p", "cache_control": 3}],
            "audio": {"id": "a"}, "timestamp": 17},
        {"role": "assistant", "content": "b", "parsed": {"a": 1}, "refusal": null, "annotations": 3,
            "provider_specific_fields": {"refusal": null}, "reasoning_details": [],
            "reasoning_content": 3, "reasoning": "because", "tool_calls": [call]},
    ]);
    let taken = take_with(messages, &mut ignored).expect("is taken");
    let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": {}}});
    assert_eq!(
        taken,
        [
            json!({"role": "user", "content": "a"}),
            json!({"role": "assistant", "content": "b", "reasoning_content": "because", "tool_calls": [call]})
        ]
    );
    let named = "messages.content.id, messages.audio, messages.timestamp, messages.reasoning_content, messages.parsed";
    assert_eq!(ignored.joined(), named);
}

#[test]
fn tool_call_arguments_in_history_are_accepted_in_any_form() {
    for (written, taken) in [
        (json!("{\"a\": 1}"), json!({"a": 1})),
        (json!(" "), json!({})),
        (json!(null), json!({})),
        (json!({"a": 1}), json!({"a": 1})),
        (json!("{\"a\": "), json!("{\"a\": ")),
        (json!("[1]"), json!("[1]")),
        (json!([1]), json!("[1]")),
    ] {
        let message = json!({"role": "assistant",
            "tool_calls": [{"function": {"name": "f", "arguments": written}}]});
        let messages = take(json!([message])).expect("is taken");
        let found = &messages[0]["tool_calls"][0]["function"]["arguments"];
        assert_eq!(*found, taken, "{written}");
    }
}

#[test]
fn a_function_result_needs_no_tool_call_id() {
    let result = json!({"role": "function", "name": "f", "content": "4"});
    let taken = take(json!([result])).expect("is taken");
    assert_eq!(taken[0]["role"], "tool");
}

#[test]
fn message_fields_of_a_wrong_type_are_refused_by_their_path() {
    for (message, field) in [
        (
            json!({"role": "user", "content": "a", "name": {}}),
            "messages[0].name",
        ),
        (
            json!({"role": "assistant", "function_call": "f"}),
            "messages[0].function_call",
        ),
        (
            json!({"role": "user", "content": [{"type": "text"}]}),
            "messages[0].content[0]",
        ),
    ] {
        let error = take(json!([message])).expect_err("must be refused");
        assert_eq!(error.param.as_deref(), Some(field), "{}", error.message);
    }
}
