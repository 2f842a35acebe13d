//! Tests of `request.rs`.

use std::sync::Arc;

use super::super::super::seal::{Seal, Sealer};
use super::*;
use catalog::Effort;
use pool::KeyId;

pub(in crate::responses) fn reading() -> Reading {
    let sealer = Sealer::new(Arc::new(Seal::new(&[7; 32])), KeyId(1));
    Reading {
        now_seconds: 7,
        sealer,
        desk: None,
        background: None,
    }
}

fn translated(body: Value) -> Result<TranslatedRequest<Response>, Failure> {
    read(&body.to_string().into(), &reading())
}

fn with(more: Value) -> Result<Value, Failure> {
    let mut body = json!({"model": "m", "input": "Hi"});
    for (name, value) in more.as_object().unwrap() {
        body[name.as_str()] = value.clone();
    }
    Ok(serde_json::from_slice(&translated(body)?.body).unwrap())
}

#[test]
fn a_responses_request_is_translated_to_a_chat_without_loss() {
    let schema =
        json!({"type": "json_schema", "name": "s", "schema": {"type": "object"}, "strict": true});
    let chat = with(json!({
        "instructions": "Be kind.", "max_output_tokens": 9, "temperature": 0.5, "top_p": 0.9,
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": null}],
        "tool_choice": {"type": "function", "name": "f"}, "parallel_tool_calls": false,
        "text": {"format": schema}, "user": "u", "metadata": {"a": "b"}, "stream": true,
        "store": false, "truncation": "disabled", "include": [], "reasoning": null,
        "service_tier": "auto", "priority": -1, "ignore_eos": true,
    }))
    .unwrap();
    let expected = json!({
        "model": "m",
        "messages": [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hi"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}}, "parallel_tool_calls": false,
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}, "strict": true}},
        "priority": -1, "ignore_eos": true, "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "user": "u",
        "stream": true, "stream_options": {"include_usage": true},
    });
    assert_eq!(chat, expected);
    let plain = with(json!({})).unwrap();
    assert_eq!(
        plain,
        json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]})
    );
}

#[test]
fn invalid_or_unsupported_responses_fields_are_refused_by_name() {
    for (more, named) in [
        (json!({"store": "yes"}), "store"),
        (
            json!({"previous_response_id": "resp_1"}),
            "previous_response_id",
        ),
        (json!({"conversation": "conv_1"}), "conversation"),
        (json!({"background": true}), "background"),
        (json!({"truncation": 3}), "truncation"),
        (json!({"include": [3]}), "include"),
        (
            json!({"include": ["message.output_text.logprobs"]}),
            "include",
        ),
        (json!({"reasoning": {"effort": 3}}), "reasoning.effort"),
        (json!({"reasoning": {"summary": 3}}), "reasoning.summary"),
        (json!({"reasoning": "high"}), "reasoning"),
        (json!({"service_tier": 1}), "service_tier"),
        (json!({"client_metadata": "x"}), "client_metadata"),
        (json!({"context_management": {}}), "context_management"),
        (json!({"max_tool_calls": 0}), "max_tool_calls"),
        (json!({"prompt_cache_key": 3}), "prompt_cache_key"),
        (
            json!({"prompt_cache_retention": 24}),
            "prompt_cache_retention",
        ),
        (json!({"safety_identifier": []}), "safety_identifier"),
        (json!({"parallel_tool_calls": "no"}), "parallel_tool_calls"),
        (
            json!({"stream_options": {"include_usage": true}}),
            "stream_options",
        ),
        (json!({"tools": [{"type": "retrieval"}]}), "tools[0].type"),
        (json!({"tools": [{"type": "function"}]}), "tools[0].name"),
        (json!({"tool_choice": "required"}), "tool_choice"),
        (json!({"tool_choice": {"type": "mcp"}}), "tool_choice.type"),
        (
            json!({"text": {"format": {"type": "grammar"}}}),
            "text.format.type",
        ),
        (json!({"text": {"verbosity": 3}}), "text.verbosity"),
        (json!({"metadata": {"a": 1}}), "metadata"),
        (json!({"max_output_tokens": 0}), "max_output_tokens"),
        (json!({"input": null}), "input"),
        (json!({"stream": "yes"}), "stream"),
    ] {
        let failure = with(more.clone()).unwrap_err();
        assert_eq!(failure.body.error.param.as_deref(), Some(named), "{more}");
    }
}

#[test]
fn responses_hints_are_passed_on_or_reported_and_never_refused() {
    let body = json!({
        "model": "m", "input": "Hi", "store": true, "truncation": "auto", "max_tool_calls": 3,
        "include": ["reasoning.encrypted_content", "web_search_call.action.sources"],
        "reasoning": {"effort": "high", "summary": "auto"}, "client_metadata": {"a": "b"},
        "text": {"verbosity": "low"}, "prompt_cache_key": "k", "service_tier": "flex",
        "safety_identifier": "s", "context_management": [{"type": "compaction"}],
        "tools": [{"type": "web_search"}], "tool_choice": "auto", "parallel_tool_calls": true,
    });
    let request = translated(body).unwrap();
    let named = [
        "truncation",
        "max_tool_calls",
        "client_metadata",
        "context_management",
        "include.web_search_call.action.sources",
        "tools.web_search",
        "store",
    ];
    assert_eq!(request.ignored, named);
    assert_eq!(request.hints.reasoning.wish.effort, Some(Effort::High));
    let chat: Value = serde_json::from_slice(&request.body).unwrap();
    let expected = json!({"service_tier": "flex", "model": "m",
        "messages": [{"role": "user", "content": "Hi"}], "verbosity": "low",
        "safety_identifier": "s", "prompt_cache_key": "k"});
    assert_eq!(chat, expected);
    assert_eq!(request.hints.unknown, [] as [&str; 0]);
}

#[test]
fn responses_fields_from_other_apis_are_reported_as_unknown() {
    let body = json!({"model": "m", "input": "Hi", "stop": ["x"], "colour": null});
    assert_eq!(translated(body).unwrap().hints.unknown, ["stop"]);
}

#[test]
fn background_and_conversation_need_storage_and_exclude_contradictory_fields() {
    let refused = |more: Value| with(more).unwrap_err().body.error;
    assert_eq!(
        with(json!({"background": false})).unwrap()["messages"][0]["content"],
        "Hi"
    );
    for (more, param) in [
        (json!({"background": true}), "background"),
        (json!({"background": "yes"}), "background"),
        (json!({"conversation": "conv_1"}), "conversation"),
        (json!({"conversation": {"id": 5}}), "conversation"),
        (json!({"conversation": 5}), "conversation"),
        (
            json!({"conversation": "conv_1", "previous_response_id": "resp_1"}),
            "previous_response_id",
        ),
        (json!({"conversation": "conv_1", "store": false}), "store"),
    ] {
        let error = refused(more.clone());
        assert_eq!(error.param.as_deref(), Some(param), "{more}");
    }
}
