//! Hints that a server may disregard: none is refused; each takes effect or is reported as ignored. Invalid values are refused with
//! the permitted ones. The table in docs/guides/clients.md is compared with this behaviour.

use serde_json::{Value, json};
use support::service::Pool;
use support::table::{self, rows_of};

use super::{CHAT, MESSAGES, OLLAMA, RESPONSES, ask, chat, message, named, pool, response, with};

/// A path | a hint | its value | the names under which an unknown engine's response reports it as ignored
const CASES: &str = r#"
    /v1/chat/completions | store | true |
    /v1/chat/completions | metadata | {"a":"b"} |
    /v1/chat/completions | reasoning_effort | "high" |
    /v1/chat/completions | verbosity | "low" |
    /v1/chat/completions | prompt_cache_key | "k" |
    /v1/chat/completions | service_tier | "flex" |
    /v1/chat/completions | safety_identifier | "s" |
    /v1/chat/completions | parallel_tool_calls | true |
    /v1/chat/completions | thinking | {"type":"enabled","budget_tokens":1024} |
    /v1/chat/completions | reasoning | {"effort":"low"} |
    /v1/chat/completions | enable_thinking | false |
    /v1/chat/completions | usage | {"include":true} |
    /v1/responses | include | ["reasoning.encrypted_content"] |
    /v1/responses | include | ["web_search_call.action.sources"] | include.web_search_call.action.sources
    /v1/responses | reasoning | {"effort":"high","summary":"auto"} |
    /v1/responses | client_metadata | {"a":"b"} | client_metadata
    /v1/responses | text | {"verbosity":"low"} |
    /v1/responses | prompt_cache_key | "k" |
    /v1/responses | truncation | "auto" | truncation
    /v1/responses | service_tier | "flex" |
    /v1/responses | safety_identifier | "s" |
    /v1/responses | store | true |
    /v1/responses | metadata | {"a":"b"} |
    /v1/responses | parallel_tool_calls | true |
    /v1/responses | max_tool_calls | 3 | max_tool_calls
    /v1/responses | context_management | [{"type":"compaction"}] | context_management
    /v1/responses | tools | [{"type":"web_search"}] | tools.web_search
    /v1/messages | thinking | {"type":"enabled","budget_tokens":1024} | thinking.budget_tokens, thinking
    /v1/messages | thinking | {"type":"adaptive"} | thinking
    /v1/messages | thinking | {"type":"disabled"} | thinking
    /v1/messages | context_management | {"edits":[]} | context_management
    /v1/messages | output_config | {"effort":"high"} |
    /v1/messages | metadata | {"user_id":"u"} |
    /v1/messages | service_tier | "auto" |
    /v1/messages | cache_control | {"type":"ephemeral"} | cache_control
    /v1/messages | tools | [{"type":"web_search_20250305","name":"web_search"}] | tools.web_search
    /v1/messages | mcp_servers | [{"type":"url","url":"http://x"}] | mcp_servers
"#;

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
fn every_hint_is_applied_or_reported_and_none_is_refused() {
    let pool = pool(&[]);
    for [path, field, value, names] in rows_of(CASES) {
        let value = table::json(value);
        // Like an unknown engine, the stub accepts every field.
        let (status, response, ignored) = ask(&pool, path, &body(path, &json!({field: value})));
        assert_eq!(status, 200, "{path} {field}: {response}");
        assert_eq!(sorted(&ignored), sorted(names), "{path} {field}");
    }
}

#[test]
fn the_documents_table_names_every_hint() {
    let page = std::fs::read_to_string(support::root().join("docs/guides/clients.md")).unwrap();
    for [path, field, _, _] in rows_of(CASES) {
        let row = page.lines().find(|line| {
            line.starts_with('|') && line.contains(&format!("`{field}`")) && line.contains(path)
        });
        assert!(
            row.is_some(),
            "docs/guides/clients.md has no row for {field} of {path}"
        );
    }
}

/// A path | fields | the refused field | a permitted value
const WRONG: &str = r#"
    /v1/chat/completions | {"store": "yes"} | store | true or false
    /v1/chat/completions | {"metadata": []} | metadata | an object
    /v1/chat/completions | {"verbosity": 3} | verbosity | a string
    /v1/chat/completions | {"prompt_cache_key": 3} | prompt_cache_key | a string
    /v1/responses | {"reasoning": {"effort": 3}} | reasoning.effort | minimal
    /v1/responses | {"include": [3]} | include | reasoning.encrypted_content
    /v1/responses | {"truncation": 3} | truncation | a string
    /v1/responses | {"text": {"verbosity": []}} | text.verbosity | a string
    /v1/messages | {"thinking": {"type": "enabled", "budget_tokens": -1}} | thinking.budget_tokens | from 1
    /v1/messages | {"output_config": {"effort": 1}} | output_config.effort | high
    /v1/messages | {"service_tier": {}} | service_tier | a string
    /v1/chat/completions | {"stream_options": {"include_usage": true}} | stream_options | `stream`
    /v1/responses | {"previous_response_id": 5} | previous_response_id | a string
    /v1/responses | {"conversation": 5} | conversation | an id
    /v1/responses | {"input": [{"type": "item_reference"}]} | input[0].id | required
    /v1/responses | {"background": true, "store": false} | store | background
    /v1/responses | {"stop": ["x"]} | stop | unknown field
    /v1/messages | {"frequency_penalty": 1} | frequency_penalty | unknown field
"#;

#[test]
fn an_invalid_hint_is_refused_with_its_field_and_the_allowed_values() {
    let pool = Pool::with_models(&[named("writer", &[], ", unknown_fields: refuse")], "");
    for [path, more, field, allowed] in rows_of(WRONG) {
        let more = table::json(more);
        let (status, response, _) = ask(&pool, path, &body(path, &more));
        assert_eq!(status, 400, "{path} {more}: {response}");
        let message = response["error"]["message"].as_str().unwrap();
        assert!(
            message.contains(field) && message.contains(allowed),
            "{message}"
        );
    }
}

/// The same for values of hints from newer or other services, which the embedded engine does not know.
const WORDS: &str = r#"
    /v1/chat/completions | reasoning_effort | "ultra" | reasoning_effort
    /v1/chat/completions | reasoning | {"effort":"ultra"} | reasoning.effort
    /v1/chat/completions | thinking | {"type":"deep"} | thinking.type
    /v1/chat/completions | verbosity | "extreme" | verbosity
    /v1/chat/completions | service_tier | "turbo" | service_tier
    /v1/chat/completions | prompt_cache_retention | "1y" | prompt_cache_retention
    /v1/chat/completions | provider | {"order":["a"]} | provider
    /v1/chat/completions | route | "fallback" | route
    /v1/chat/completions | transforms | ["middle-out"] | transforms
    /v1/chat/completions | usage | {"include":true} |
    /v1/responses | service_tier | "turbo" | service_tier
    /v1/responses | truncation | "smart" | truncation
    /v1/responses | prompt_cache_retention | "1y" | prompt_cache_retention
    /v1/responses | text | {"verbosity":"extreme"} | text.verbosity
    /v1/responses | text | {"tone":"warm"} | text.tone
    /v1/responses | reasoning | {"effort":"ultra"} | reasoning.effort
    /v1/responses | reasoning | {"summary":"haiku"} | reasoning.summary
    /v1/responses | reasoning | {"mode":"pro"} | reasoning.mode
    /v1/responses | include | ["everything"] | include.everything
    /v1/messages | service_tier | "turbo" | service_tier
    /v1/messages | speed | "ludicrous" | speed
    /v1/messages | thinking | {"type":"disabled","display":"updates"} | thinking, thinking.display
    /v1/messages | thinking | {"type":"deep"} | thinking.type
    /v1/messages | output_config | {"effort":"ultra"} | output_config.effort
    /v1/messages | output_config | {"task_budget":{"total":9}} | output_config.task_budget
    /api/chat | think | "ultra" | think
"#;

#[test]
fn an_unknown_hint_value_is_ignored_and_reported() {
    let pool = Pool::demo_with("evening: {cleanup: null, reopen: null}\ncompat: {ollama: true}\n");
    for [path, field, value, names] in rows_of(WORDS) {
        let value = table::json(value);
        let mut body = body(path, &json!({field: value}));
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
fn a_model_with_unknown_fields_drop_ignores_them_in_every_api() {
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
