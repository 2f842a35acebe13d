//! Tests of items from earlier turns.

use std::sync::Arc;

use super::super::super::seal::Seal;
use super::*;
use pool::KeyId;

fn sealer(holder: u64) -> Sealer {
    Sealer::new(Arc::new(Seal::new(&[7; 32])), KeyId(holder))
}

fn messages(instructions: Option<String>, input: Value) -> Result<Vec<Value>, Failure> {
    with(instructions, input, &ToolNames::default()).map(|(messages, _)| messages)
}

/// Returns the messages and the names of ignored fields.
fn with(
    instructions: Option<String>,
    input: Value,
    names: &ToolNames,
) -> Result<(Vec<Value>, Vec<String>), Failure> {
    let mut ignored = IgnoredFields::default();
    let all = super::messages(instructions, None, input, names, &sealer(1), &mut ignored)?;
    Ok((all, ignored.names()))
}

#[test]
fn the_items_of_a_response_are_accepted_back_as_a_conversation() {
    let input = json!([
        {"role": "developer", "content": "Short."},
        {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}]},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}", "status": "completed"},
        {"type": "function_call", "call_id": "c2", "name": "g", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "sun"}]},
    ]);
    let shown = json!(messages(Some("Be kind.".to_owned()), input).unwrap());
    let call = |id: &str, name: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}});
    let expected = json!([
        {"role": "system", "content": "Be kind.\n\nShort."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [call("c1", "f"), call("c2", "g")]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "tool", "tool_call_id": "c2", "content": "sun"},
    ]);
    assert_eq!(shown, expected);
}

#[test]
fn images_are_accepted_as_data_urls_and_remote_or_unknown_parts_are_refused() {
    let user = |part: Value| json!([{"role": "user", "content": [{"type": "input_text", "text": "What?"}, part]}]);
    let url = "data:image/png;base64,AA==";
    let shown = messages(
        None,
        user(json!({"type": "input_image", "image_url": url, "detail": "low"})),
    )
    .unwrap();
    assert_eq!(
        shown[0]["content"][1]["image_url"],
        json!({"url": url, "detail": "low"})
    );
    for (input, named) in [
        (
            user(json!({"type": "input_image", "image_url": "http://127.0.0.1/x"})),
            "input[0].content[1].image_url",
        ),
        (
            user(json!({"type": "input_image", "file_id": "file-1"})),
            "input[0].content[1].file_id",
        ),
        (
            user(json!({"type": "input_file", "file_url": "http://x"})),
            "input[0].content[1].type",
        ),
        (json!([{"role": "tool", "content": "x"}]), "input[0].role"),
        (
            json!([{"type": "item_reference", "id": "x"}]),
            "input[0].type",
        ),
        (json!([{"type": "computer_call"}]), "input[0].type"),
        (
            json!([{"type": "custom_tool_call", "call_id": "c", "name": "n"}]),
            "input[0].input",
        ),
        (json!([]), "input"),
        (json!(3), "input"),
    ] {
        let failure = messages(None, input.clone()).unwrap_err();
        assert_eq!(failure.body.error.param.as_deref(), Some(named), "{input}");
    }
}

#[test]
fn consecutive_messages_of_one_role_merge_and_later_instructions_keep_their_place() {
    let input = json!([
        {"role": "developer", "content": "Short."},
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "input_text", "text": "b"}]},
        {"role": "developer", "content": "Be kind."},
        {"role": "assistant", "content": "c"},
        {"role": "assistant", "content": "d"},
    ]);
    let expected = json!([
        {"role": "system", "content": "Short."},
        {"role": "user", "content": "a\n\nb\n\n<system>\nBe kind.\n</system>"},
        {"role": "assistant", "content": "c\n\nd"},
    ]);
    assert_eq!(json!(messages(None, input).unwrap()), expected);
}

#[test]
fn reasoning_is_attached_to_the_turn_that_followed_it() {
    let sealed = sealer(1).seal("I look.").unwrap();
    let input = json!([
        {"role": "user", "content": "Weather?"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": sealed},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "rain"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "It rains."}]},
        {"role": "assistant", "content": "Rain."},
    ]);
    let (all, ignored) = with(None, input, &ToolNames::default()).unwrap();
    assert_eq!(all[1]["reasoning_content"], "I look.");
    assert_eq!(all[1]["tool_calls"][0]["id"], "c1");
    assert_eq!(
        all[3],
        json!({"role": "assistant", "content": "Rain.", "reasoning_content": "It rains."})
    );
    assert_eq!(ignored, [] as [&str; 0]);
}

#[test]
fn unreadable_reasoning_is_reported_and_the_conversation_continues() {
    let sealed = sealer(2).seal("Another key's.").unwrap();
    for (item, name) in [
        (
            json!({"encrypted_content": sealed}),
            "input.reasoning.encrypted_content",
        ),
        (
            json!({"encrypted_content": "gAAAAAB"}),
            "input.reasoning.encrypted_content",
        ),
        (
            json!({"summary": [{"type": "summary_text", "text": "s"}]}),
            "input.reasoning.summary",
        ),
    ] {
        let mut item = item;
        item["type"] = json!("reasoning");
        let input =
            json!([{"role": "user", "content": "a"}, item, {"role": "assistant", "content": "b"}]);
        let (all, ignored) = with(None, input, &ToolNames::default()).unwrap();
        assert_eq!(all[1], json!({"role": "assistant", "content": "b"}));
        assert_eq!(ignored, [name]);
    }
}

#[test]
fn custom_and_namespaced_calls_are_renamed_for_the_model() {
    let tools = json!([
        {"type": "custom", "name": "edit"},
        {"type": "function", "name": "wait"},
        {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "wait"}]},
    ]);
    let list = tools.as_array().unwrap().clone();
    let names = super::super::tools::Tools::read(list, &mut IgnoredFields::default());
    let input = json!([
        {"role": "user", "content": "Go."},
        {"type": "custom_tool_call", "call_id": "c1", "name": "edit", "input": "a\n\"b\""},
        {"type": "function_call", "call_id": "c2", "name": "wait", "namespace": "agents", "arguments": "{}"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "Done."},
        {"type": "function_call_output", "call_id": "c2", "output": "ok"},
    ]);
    let (all, _) = with(None, input, &names.unwrap().names).unwrap();
    let calls = &all[1]["tool_calls"];
    assert_eq!(
        calls[0]["function"]["arguments"],
        "{\"input\":\"a\\n\\\"b\\\"\"}"
    );
    assert_eq!(calls[1]["function"]["name"], "agents__wait");
    assert_eq!(
        all[2],
        json!({"role": "tool", "tool_call_id": "c1", "content": "Done."})
    );
}

#[test]
fn an_image_returned_by_a_tool_follows_its_text() {
    let url = "data:image/png;base64,AA==";
    let input = json!([
        {"role": "user", "content": "Look."},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [
            {"type": "input_text", "text": "A cat."}, {"type": "input_image", "image_url": url}]},
        {"type": "function_call_output", "call_id": "c2", "output": "none"},
    ]);
    let all = messages(None, input).unwrap();
    assert_eq!(all[2]["content"], "A cat.");
    assert_eq!(all[3]["tool_call_id"], "c2");
    assert_eq!(all[4]["role"], "user");
    assert_eq!(
        all[4]["content"][1],
        json!({"type": "image_url", "image_url": {"url": url}})
    );
}
