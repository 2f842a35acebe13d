//! Hints that a server may disregard: none is refused; each takes effect or is reported as ignored. Invalid values are refused with
//! the permitted ones. The table in docs/guides/clients.md is compared with this behaviour.

use serde_json::{Value, json};
use support::service::Pool;

use super::{CHAT, MESSAGES, OLLAMA, RESPONSES, ask, chat, message, named, pool, response, with};

/// A hint, and its result with an unknown engine: the name under which it is reported as ignored, or its effect.
const CASES: &[(&str, &str, &str, &str)] = &[
    (CHAT, "store", "true", ""),
    (CHAT, "metadata", r#"{"a":"b"}"#, ""),
    (CHAT, "reasoning_effort", r#""high""#, ""),
    (CHAT, "verbosity", r#""low""#, ""),
    (CHAT, "prompt_cache_key", r#""k""#, ""),
    (CHAT, "service_tier", r#""flex""#, ""),
    (CHAT, "safety_identifier", r#""s""#, ""),
    (CHAT, "parallel_tool_calls", "true", ""),
    (
        CHAT,
        "thinking",
        r#"{"type":"enabled","budget_tokens":1024}"#,
        "",
    ),
    (CHAT, "reasoning", r#"{"effort":"low"}"#, ""),
    (CHAT, "enable_thinking", "false", ""),
    (CHAT, "usage", r#"{"include":true}"#, ""),
    (
        RESPONSES,
        "include",
        r#"["reasoning.encrypted_content"]"#,
        "",
    ),
    (
        RESPONSES,
        "include",
        r#"["web_search_call.action.sources"]"#,
        "include.web_search_call.action.sources",
    ),
    (
        RESPONSES,
        "reasoning",
        r#"{"effort":"high","summary":"auto"}"#,
        "",
    ),
    (
        RESPONSES,
        "client_metadata",
        r#"{"a":"b"}"#,
        "client_metadata",
    ),
    (RESPONSES, "text", r#"{"verbosity":"low"}"#, ""),
    (RESPONSES, "prompt_cache_key", r#""k""#, ""),
    (RESPONSES, "truncation", r#""auto""#, "truncation"),
    (RESPONSES, "service_tier", r#""flex""#, ""),
    (RESPONSES, "safety_identifier", r#""s""#, ""),
    (RESPONSES, "store", "true", ""),
    (RESPONSES, "metadata", r#"{"a":"b"}"#, ""),
    (RESPONSES, "parallel_tool_calls", "true", ""),
    (RESPONSES, "max_tool_calls", "3", "max_tool_calls"),
    (
        RESPONSES,
        "context_management",
        r#"[{"type":"compaction"}]"#,
        "context_management",
    ),
    (
        RESPONSES,
        "tools",
        r#"[{"type":"web_search"}]"#,
        "tools.web_search",
    ),
    (
        MESSAGES,
        "thinking",
        r#"{"type":"enabled","budget_tokens":1024}"#,
        "thinking.budget_tokens, thinking",
    ),
    (MESSAGES, "thinking", r#"{"type":"adaptive"}"#, "thinking"),
    (MESSAGES, "thinking", r#"{"type":"disabled"}"#, "thinking"),
    (
        MESSAGES,
        "context_management",
        r#"{"edits":[]}"#,
        "context_management",
    ),
    (MESSAGES, "output_config", r#"{"effort":"high"}"#, ""),
    (MESSAGES, "metadata", r#"{"user_id":"u"}"#, ""),
    (MESSAGES, "service_tier", r#""auto""#, ""),
    (
        MESSAGES,
        "cache_control",
        r#"{"type":"ephemeral"}"#,
        "cache_control",
    ),
    (
        MESSAGES,
        "tools",
        r#"[{"type":"web_search_20250305","name":"web_search"}]"#,
        "tools.web_search",
    ),
    (
        MESSAGES,
        "mcp_servers",
        r#"[{"type":"url","url":"http://x"}]"#,
        "mcp_servers",
    ),
];

fn body(path: &str, more: &Value) -> Value {
    match path {
        CHAT => chat(more),
        MESSAGES => message(more),
        OLLAMA => with(chat(&json!({"stream": false})), more),
        _ => response(more),
    }
}

fn sorted(names: &str) -> Vec<&str> {
    let mut names: Vec<&str> = names.split(", ").filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    names
}

#[test]
fn every_hint_is_carried_out_or_named_and_none_is_refused() {
    let pool = pool(&[]);
    for (path, field, value, names) in CASES {
        let value: Value = serde_json::from_str(value).unwrap();
        // Like an unknown engine, the stub accepts every field.
        let (status, response, ignored) = ask(&pool, path, &body(path, &json!({*field: value})));
        assert_eq!(status, 200, "{path} {field}: {response}");
        assert_eq!(sorted(&ignored), sorted(names), "{path} {field}");
    }
}

#[test]
fn the_documents_table_names_every_hint() {
    let page = std::fs::read_to_string(support::root().join("docs/guides/clients.md")).unwrap();
    for (path, field, _, _) in CASES {
        let row = page.lines().find(|line| {
            line.starts_with('|') && line.contains(&format!("`{field}`")) && line.contains(path)
        });
        assert!(
            row.is_some(),
            "docs/guides/clients.md has no row for {field} of {path}"
        );
    }
}

#[test]
fn a_hint_that_is_none_is_refused_with_its_field_and_what_is_allowed() {
    let pool = Pool::with_models(&[named("writer", &[], ", unknown_fields: refuse")], "");
    for (path, more, field, allowed) in [
        (CHAT, json!({"store": "yes"}), "store", "true or false"),
        (CHAT, json!({"metadata": []}), "metadata", "an object"),
        (CHAT, json!({"verbosity": 3}), "verbosity", "a string"),
        (
            CHAT,
            json!({"prompt_cache_key": 3}),
            "prompt_cache_key",
            "a string",
        ),
        (
            RESPONSES,
            json!({"reasoning": {"effort": 3}}),
            "reasoning.effort",
            "minimal",
        ),
        (
            RESPONSES,
            json!({"include": [3]}),
            "include",
            "reasoning.encrypted_content",
        ),
        (
            RESPONSES,
            json!({"truncation": 3}),
            "truncation",
            "a string",
        ),
        (
            RESPONSES,
            json!({"text": {"verbosity": []}}),
            "text.verbosity",
            "a string",
        ),
        (
            MESSAGES,
            json!({"thinking": {"type": "enabled", "budget_tokens": -1}}),
            "thinking.budget_tokens",
            "from 1",
        ),
        (
            MESSAGES,
            json!({"output_config": {"effort": 1}}),
            "output_config.effort",
            "high",
        ),
        (
            MESSAGES,
            json!({"service_tier": {}}),
            "service_tier",
            "a string",
        ),
        (
            CHAT,
            json!({"stream_options": {"include_usage": true}}),
            "stream_options",
            "`stream`",
        ),
        (
            RESPONSES,
            json!({"previous_response_id": 5}),
            "previous_response_id",
            "a string",
        ),
        (
            RESPONSES,
            json!({"conversation": "conv_1"}),
            "conversation",
            "previous_response_id",
        ),
        (
            RESPONSES,
            json!({"input": [{"type": "item_reference"}]}),
            "input[0].id",
            "required",
        ),
        (
            RESPONSES,
            json!({"background": true}),
            "background",
            "stream",
        ),
        (RESPONSES, json!({"stop": ["x"]}), "stop", "unknown field"),
        (
            MESSAGES,
            json!({"frequency_penalty": 1}),
            "frequency_penalty",
            "unknown field",
        ),
    ] {
        let (status, response, _) = ask(&pool, path, &body(path, &more));
        assert_eq!(status, 400, "{path} {more}: {response}");
        let message = response["error"]["message"].as_str().unwrap();
        assert!(
            message.contains(field) && message.contains(allowed),
            "{message}"
        );
    }
}

/// Values of hints from newer or other services, and the names under which they are reported. The embedded engine is known.
const WORDS: &[(&str, &str, &str, &str)] = &[
    (CHAT, "reasoning_effort", r#""ultra""#, "reasoning_effort"),
    (
        CHAT,
        "reasoning",
        r#"{"effort":"ultra"}"#,
        "reasoning.effort",
    ),
    (CHAT, "thinking", r#"{"type":"deep"}"#, "thinking.type"),
    (CHAT, "verbosity", r#""extreme""#, "verbosity"),
    (CHAT, "service_tier", r#""turbo""#, "service_tier"),
    (
        CHAT,
        "prompt_cache_retention",
        r#""1y""#,
        "prompt_cache_retention",
    ),
    (CHAT, "provider", r#"{"order":["a"]}"#, "provider"),
    (CHAT, "route", r#""fallback""#, "route"),
    (CHAT, "transforms", r#"["middle-out"]"#, "transforms"),
    (CHAT, "usage", r#"{"include":true}"#, ""),
    (RESPONSES, "service_tier", r#""turbo""#, "service_tier"),
    (RESPONSES, "truncation", r#""smart""#, "truncation"),
    (
        RESPONSES,
        "prompt_cache_retention",
        r#""1y""#,
        "prompt_cache_retention",
    ),
    (
        RESPONSES,
        "text",
        r#"{"verbosity":"extreme"}"#,
        "text.verbosity",
    ),
    (RESPONSES, "text", r#"{"tone":"warm"}"#, "text.tone"),
    (
        RESPONSES,
        "reasoning",
        r#"{"effort":"ultra"}"#,
        "reasoning.effort",
    ),
    (
        RESPONSES,
        "reasoning",
        r#"{"summary":"haiku"}"#,
        "reasoning.summary",
    ),
    (
        RESPONSES,
        "reasoning",
        r#"{"mode":"pro"}"#,
        "reasoning.mode",
    ),
    (
        RESPONSES,
        "include",
        r#"["everything"]"#,
        "include.everything",
    ),
    (MESSAGES, "service_tier", r#""turbo""#, "service_tier"),
    (MESSAGES, "speed", r#""ludicrous""#, "speed"),
    (
        MESSAGES,
        "thinking",
        r#"{"type":"disabled","display":"updates"}"#,
        "thinking, thinking.display",
    ),
    (MESSAGES, "thinking", r#"{"type":"deep"}"#, "thinking.type"),
    (
        MESSAGES,
        "output_config",
        r#"{"effort":"ultra"}"#,
        "output_config.effort",
    ),
    (
        MESSAGES,
        "output_config",
        r#"{"task_budget":{"total":9}}"#,
        "output_config.task_budget",
    ),
    (OLLAMA, "think", r#""ultra""#, "think"),
];

#[test]
fn a_word_of_a_hint_that_is_not_known_has_no_effect_and_is_named() {
    let pool = Pool::demo_with("evening: {cleanup: null, reopen: null}\ncompat: {ollama: true}\n");
    for (path, field, value, names) in WORDS {
        let value: Value = serde_json::from_str(value).unwrap();
        let mut body = body(path, &json!({*field: value}));
        body["model"] = json!("tiny-guide");
        let (status, response, ignored) = ask(&pool, path, &body);
        assert_eq!(status, 200, "{path} {field}: {response}");
        assert_eq!(sorted(&ignored), sorted(names), "{path} {field}: {value}");
    }
    let all = json!({"stream": true, "usage": {"include": true}, "model": "tiny-guide"});
    let (_, chunks, _) = super::stream(&pool, CHAT, &chat(&all));
    let last = chunks.last().unwrap();
    assert!(last["usage"]["total_tokens"].is_u64(), "{last}");
    let options =
        json!({"stream": true, "stream_options": {"colour": true}, "model": "tiny-guide"});
    let (_, _, ignored) = super::stream(&pool, CHAT, &chat(&options));
    assert_eq!(ignored, "stream_options.colour");
}

#[test]
fn a_model_whose_file_says_so_drops_unknown_fields_of_every_api() {
    let pool = Pool::with_models(&[named("writer", &[], ", unknown_fields: drop")], "");
    for (path, field) in [
        (CHAT, "colour"),
        (RESPONSES, "stop"),
        (MESSAGES, "frequency_penalty"),
    ] {
        let (status, response, ignored) = ask(&pool, path, &body(path, &json!({field: "red"})));
        assert_eq!((status, ignored.as_str()), (200, field), "{response}");
    }
}
