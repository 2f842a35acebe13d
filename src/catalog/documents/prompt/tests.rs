//! RayLLM's original outputs as test vectors, and the fixed bugs.

use serde_json::{Value, json};

use super::{Prompt, PromptCompat, PromptError, PromptFormat};
use crate::documents::diagnostics::Diagnostics;

fn vectors() -> Vec<Value> {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/fixtures/rayllm/prompt_format_vectors.json"
    );
    let text = std::fs::read_to_string(path).unwrap();
    let whole: Value = serde_json::from_str(&text).unwrap();
    whole["cases"].as_array().unwrap().clone()
}

fn format(value: &Value, compat: PromptCompat) -> PromptFormat {
    let mut notes = Diagnostics::new("the test");
    match super::read(value, "prompt_format", compat, &mut notes).unwrap() {
        Prompt::Format(format) => *format,
        other => panic!("{other:?}"),
    }
}

fn refusal(value: &Value) -> String {
    let mut notes = Diagnostics::new("the test");
    super::read(value, "prompt_format", PromptCompat::None, &mut notes)
        .unwrap_err()
        .to_string()
}

fn llama(more: Value) -> PromptFormat {
    let mut keys = json!({
        "system": "<<SYS>>\n{instruction}\n<</SYS>>\n\n", "user": "[INST] {system}{instruction} [/INST]",
        "assistant": " {instruction} </s><s>", "trailing_assistant": "", "system_in_user": true,
    });
    keys.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    format(&keys, PromptCompat::None)
}

fn render(format: &PromptFormat, messages: Value) -> Result<String, PromptError> {
    format.render(messages.as_array().unwrap())
}

#[test]
fn in_compatible_mode_every_rayllm_vector_matches() {
    for case in vectors() {
        let format = format(&case["prompt_format"], PromptCompat::RayLlm05);
        let prompt = render(&format, case["messages"].clone()).unwrap();
        assert_eq!(
            prompt,
            case["prompt"].as_str().unwrap(),
            "{}",
            case["conversation"]
        );
    }
}

#[test]
fn without_compatibility_only_the_corrected_cases_differ_from_the_vectors() {
    let mut differing = 0;
    for case in vectors() {
        let format = format(&case["prompt_format"], PromptCompat::None);
        let prompt = render(&format, case["messages"].clone()).unwrap();
        let theirs = case["prompt"].as_str().unwrap();
        if prompt != theirs {
            differing += 1;
            assert_eq!(case["conversation"], "ws_system");
            assert_eq!(case["prompt_format"]["system_in_user"], true);
            assert_eq!(prompt, theirs.replace("  sp  ", "sp"));
        }
    }
    assert!(differing > 0, "the vectors hold the fault");
}

#[test]
fn an_empty_system_message_produces_no_tags_unless_configured() {
    let conversation =
        json!([{"role": "system", "content": " "}, {"role": "user", "content": "h"}]);
    assert_eq!(
        render(&llama(json!({})), conversation.clone()).unwrap(),
        "[INST] h [/INST]"
    );
    let tagged = llama(json!({"add_system_tags_even_if_message_is_empty": true}));
    assert_eq!(
        render(&tagged, conversation).unwrap(),
        "[INST] <<SYS>>\n\n<</SYS>>\n\nh [/INST]"
    );
}

#[test]
fn a_system_message_can_be_merged_into_the_last_user_message() {
    let format = llama(json!({"system_in_user": false, "system_in_last_user": true, "bos": "<s>"}));
    let conversation = json!([
        {"role": "system", "content": "S"}, {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"},
    ]);
    assert_eq!(
        render(&format, conversation).unwrap(),
        "<s>[INST] a [/INST] b </s><s>[INST] <<SYS>>\nS\n<</SYS>>\n\nc [/INST]"
    );
}

#[test]
fn content_may_be_given_in_parts_or_be_absent_next_to_tool_calls() {
    let conversation = json!([
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
    ]);
    assert_eq!(
        render(&llama(json!({})), conversation).unwrap(),
        r#"[INST] ab [/INST] {"name":"f","arguments":"{}"} </s><s>"#
    );
}

#[test]
fn a_message_the_format_cannot_express_is_refused_by_its_position() {
    let format = llama(json!({}));
    for (messages, field, words) in [
        (
            json!([{"role": "user", "content": "a"}, {"role": "tool", "content": "x", "tool_call_id": "1"}]),
            "messages[1].role",
            "`tool`",
        ),
        (
            json!([{"role": "system", "content": "a"}, {"role": "system", "content": "b"}]),
            "messages[1]",
            "Only one system message",
        ),
        (
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]),
            "messages[0].content[0]",
            "text only",
        ),
        (json!([{"role": "user"}]), "messages[0].content", "a string"),
        (
            json!([{"role": "robot", "content": "x"}]),
            "messages[0].role",
            "must be one of",
        ),
    ] {
        let error = render(&format, messages).unwrap_err();
        assert_eq!(error.field, field);
        assert!(error.message.contains(words), "{}", error.message);
    }
}

#[test]
fn a_text_format_is_the_prompt_and_an_empty_one_yields_the_message_itself() {
    let request = json!([{"role": "user", "content": "why?"}]);
    let dolly = format(&json!("Q: {instruction}\nA:"), PromptCompat::None);
    assert_eq!(render(&dolly, request.clone()).unwrap(), "Q: why?\nA:");
    assert_eq!(
        render(&format(&json!(""), PromptCompat::None), request).unwrap(),
        "why?"
    );
}

#[test]
fn a_format_that_cannot_hold_a_message_is_refused_with_its_key() {
    let mut keys = json!({"system": "{instruction}", "user": "no place", "assistant": "{instruction}", "trailing_assistant": ""});
    assert!(refusal(&keys).contains("prompt_format.user: has no {instruction}"));
    keys["user"] = json!("{instruction}");
    keys["system_in_user"] = json!(true);
    assert!(refusal(&keys).contains("has no {system}"));
    keys["system_in_user"] = json!(false);
    keys["trailing_asistant"] = json!("");
    assert!(refusal(&keys).contains("did you mean `trailing_assistant`?"));
    assert!(
        refusal(&json!({"system": "{instruction}"})).contains("prompt_format.user: is missing")
    );
    assert!(refusal(&json!(3)).contains("prompt_format"));
}
