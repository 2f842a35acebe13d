//! Tests of `request.rs`.

use std::sync::Arc;

use super::super::super::seal::{Seal, Sealer};
use super::*;
use catalog::Effort;
use pool::KeyId;

fn reading() -> Reading {
    Reading {
        now_seconds: 7,
        sealer: Sealer::new(Arc::new(Seal::new(&[7; 32])), KeyId(1)),
        desk: None,
        background: None,
    }
}

fn translated(body: &Value) -> Result<TranslatedRequest<Message>, Failure> {
    read(&body.to_string().into(), &reading())
}

fn chat(body: Value) -> Result<Value, Failure> {
    Ok(serde_json::from_slice(&translated(&body)?.body).unwrap())
}

fn with(more: Value) -> Result<Value, Failure> {
    let mut body =
        json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]});
    for (name, value) in more.as_object().unwrap() {
        body[name.as_str()] = value.clone();
    }
    chat(body)
}

fn param(more: Value) -> String {
    with(more).unwrap_err().body.error.param.unwrap_or_default()
}

#[test]
fn a_messages_request_is_translated_to_a_chat_without_loss() {
    let tool = json!({"name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": true});
    let body = with(json!({
        "system": [{"type": "text", "text": "A", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "B"}],
        "temperature": 0.5, "top_p": 0.9, "top_k": 5, "stop_sequences": ["x"], "stream": true,
        "metadata": {"user_id": "u"}, "tools": [tool], "thinking": {"type": "disabled"},
        "tool_choice": {"type": "any", "disable_parallel_tool_use": true}, "service_tier": "auto",
    }))
    .unwrap();
    let expected = json!({
        "model": "m",
        "messages": [{"role": "system", "content": "A\nB"}, {"role": "user", "content": "Hi"}],
        "tool_choice": "required", "parallel_tool_calls": false,
        "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true}}],
        "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "stop": ["x"], "user": "u",
        "stream": true, "stream_options": {"include_usage": true},
    });
    assert_eq!(body, expected);
}

#[test]
fn invalid_or_unsupported_messages_fields_are_refused_by_name() {
    for (more, named) in [
        (json!({"max_tokens": null}), "max_tokens"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (
            json!({"thinking": {"type": "enabled", "budget_tokens": -1}}),
            "thinking.budget_tokens",
        ),
        (json!({"thinking": {"type": 3}}), "thinking.type"),
        (json!({"thinking": true}), "thinking"),
        (
            json!({"tools": [{"type": "bash_20250124", "name": "bash"}]}),
            "tools[0].type",
        ),
        (
            json!({"tools": [{"type": "retrieval", "name": "r"}]}),
            "tools[0].type",
        ),
        (json!({"tools": [{"name": "f"}]}), "tools[0].input_schema"),
        (json!({"tool_choice": {"type": "some"}}), "tool_choice.type"),
        (json!({"tool_choice": {"type": "any"}}), "tool_choice"),
        (json!({"metadata": {"user_id": 3}}), "metadata.user_id"),
        (json!({"metadata": "u"}), "metadata"),
        (json!({"stop_sequences": [""]}), "stop_sequences"),
        (json!({"service_tier": 3}), "service_tier"),
        (
            json!({"output_config": {"effort": 3}}),
            "output_config.effort",
        ),
        (json!({"mcp_servers": {}}), "mcp_servers"),
        (json!({"context_management": []}), "context_management"),
        (json!({"container": "c"}), "container"),
        (json!({"cache_control": "yes"}), "cache_control"),
        (json!({"messages": null}), "messages"),
        (
            json!({"thread": {"type": "create"}, "model": null}),
            "thread",
        ),
        (json!({"speed": true}), "speed"),
        (json!({"model": 3}), "model"),
    ] {
        assert_eq!(param(more.clone()), named, "{more}");
    }
}

#[test]
fn a_cache_hint_is_reported_as_ignored() {
    let body = json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [
        {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]}]});
    assert_eq!(translated(&body).unwrap().ignored, ["cache_control"]);
}

#[test]
fn messages_hints_are_passed_on_or_reported_and_never_refused() {
    let body = json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}],
        "thinking": {"type": "adaptive", "display": "omitted"}, "output_config": {"effort": "high"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "metadata": {"user_id": "u", "team": "t"}, "service_tier": "standard_only", "speed": "fast",
        "mcp_servers": [{"url": "http://x"}], "tools": [
            {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
            {"name": "f", "input_schema": {}, "defer_loading": true}]});
    let request = translated(&body).unwrap();
    let named = [
        "tools.web_search",
        "tools.defer_loading",
        "context_management",
        "mcp_servers",
        "metadata",
        "speed",
    ];
    assert_eq!(request.ignored, named);
    assert_eq!(request.hints.reasoning.wish.thinks, Some(true));
    assert_eq!(request.hints.reasoning.wish.effort, Some(Effort::High));
    let chat: Value = serde_json::from_slice(&request.body).unwrap();
    assert_eq!(chat["tools"].as_array().unwrap().len(), 1);
    assert_eq!(chat["user"], "u");
    assert_eq!(request.hints.unknown, [] as [&str; 0]);
}

#[test]
fn messages_fields_from_other_apis_are_reported_as_unknown() {
    let body = json!({"model": "m", "max_tokens": 1, "frequency_penalty": 1,
        "messages": [{"role": "user", "content": "Hi"}]});
    assert_eq!(
        translated(&body).unwrap().hints.unknown,
        ["frequency_penalty"]
    );
}

#[test]
fn counting_tokens_uses_only_the_prompt() {
    let tools = json!([{"name": "f", "input_schema": {}}]);
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": tools,
        "thinking": {"type": "enabled", "budget_tokens": 9}, "context_management": {}, "tool_choice": {"type": "any"}});
    let chat = counted(&body.to_string().into(), &reading()).unwrap();
    let names: Vec<&str> = chat.keys().map(String::as_str).collect();
    assert_eq!(names, ["model", "messages", "tools"]);
    // Counting ignores request fields that it does not need.
    let body = json!({"model": "m", "max_tokens": 1, "speed": "fast", "colour": "red",
        "messages": [{"role": "user", "content": "Hi"}]});
    let chat = counted(&body.to_string().into(), &reading()).unwrap();
    assert_eq!(chat["messages"][0]["content"], "Hi");
}
