//! Tests that request schemas describe every field that the gateway or an engine reads.

use std::sync::Arc;

use axum::body::Bytes;
use serde_json::{Value, json};

use super::complete;
use catalog::Ask;
use dialect::{Reading, Seal, Sealer, anthropic, responses};
use pool::KeyId;
use reading::record::fields_read_during;

/// Fields that the gateway always refuses.
const REFUSED: [&str; 5] = [
    "thread",
    "container",
    "conversation",
    "prompt",
    "input.[].content.[].file_id",
];

/// Returns true if a schema describes the field at this path, such as `tools[].name`.
fn describes(document: &Value, schema: &Value, path: &[&str]) -> bool {
    let Some((first, rest)) = path.split_first() else {
        return true;
    };
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let found = document.pointer(reference.trim_start_matches('#')).unwrap();
        return describes(document, found, path);
    }
    let branches = ["allOf", "oneOf", "anyOf"]
        .into_iter()
        .filter_map(|keyword| schema.get(keyword));
    let mut branches = branches.filter_map(Value::as_array).flatten();
    if branches.any(|branch| describes(document, branch, path)) {
        return true;
    }
    let next = match *first {
        "[]" => schema.get("items"),
        name => schema
            .get("properties")
            .and_then(|properties| properties.get(name)),
    };
    next.is_some_and(|next| describes(document, next, rest))
}

fn request<'a>(document: &'a Value, path: &str) -> &'a Value {
    &document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
}

/// `tools[3].name` as `tools`, `[]`, `name`.
fn segments(path: &str) -> Vec<&str> {
    let parts = path.split('.').flat_map(|part| {
        let (name, indices) = part.split_once('[').unwrap_or((part, ""));
        let lists = indices.matches(']').count();
        std::iter::once(name).chain(std::iter::repeat_n("[]", lists))
    });
    parts.collect()
}

#[test]
fn every_field_that_an_engine_takes_is_described() {
    let document = complete(false);
    for (path, ask) in [
        ("/v1/chat/completions", Ask::Chat),
        ("/v1/completions", Ask::Completion),
        ("/v1/embeddings", Ask::Embeddings),
    ] {
        for field in catalog::fields_of_all_engines(ask) {
            let is_described = describes(&document, request(&document, path), &[field]);
            assert!(is_described, "{path} does not describe {field}");
        }
    }
    // The catalogue has one list for both.
    for field in catalog::fields_of_all_engines(Ask::Ranks) {
        let is_described = ["/v1/rerank", "/v1/score"]
            .iter()
            .any(|path| describes(&document, request(&document, path), &[field]));
        assert!(is_described, "{field}");
    }
}

fn reading() -> Reading {
    Reading {
        now_seconds: 0,
        sealer: Sealer::new(Arc::new(Seal::new(&[7; 32])), KeyId(1)),
        desk: None,
        background: None,
    }
}

/// Parses requests and compares the fields that were read with the schema.
fn check(path: &str, read: impl Fn(&Bytes), bodies: &[Value]) {
    let document = complete(false);
    let mut count = 0;
    for body in bodies {
        for field in fields_read_during(|| read(&body.to_string().into())) {
            let segments = segments(&field);
            if REFUSED.contains(&segments.join(".").as_str()) {
                continue;
            }
            count += 1;
            let is_described = describes(&document, request(&document, path), &segments);
            assert!(is_described, "{path} does not describe {field}");
        }
    }
    assert!(count > 10, "{path}: only {count} fields were read");
}

#[test]
fn every_field_of_a_message_that_is_read_is_described() {
    let schema = json!({"type": "object"});
    let cached = json!({"type": "ephemeral"});
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}});
    let document = json!({"type": "document", "title": "t", "citations": {"enabled": false},
        "source": {"type": "text", "media_type": "text/plain", "data": "d"}});
    let conversation = json!({
        "model": "m", "system": [{"type": "text", "text": "s", "cache_control": cached}],
        "tool_choice": {"type": "tool", "name": "f"}, "tools": [{"name": "f", "input_schema": schema}],
        "thinking": {"type": "enabled", "budget_tokens": 9}, "context_management": {"edits": []}, "mcp_servers": [],
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": schema}},
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a", "citations": []}, image, document]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"}, {"type": "redacted_thinking", "data": "d"},
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
                {"type": "tool_use", "id": "t", "name": "f", "input": {}}]},
            {"role": "system", "content": "s"},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "is_error": false, "content": [
                {"type": "text", "text": "b"}, image, document, {"type": "tool_reference", "tool_name": "f"}]}]},
        ],
    });
    let read = |body: &Bytes| drop(anthropic::counted(body, &reading()).unwrap());
    check(
        "/v1/messages/count_tokens",
        read,
        std::slice::from_ref(&conversation),
    );
    let mut message = conversation;
    let more = json!({"max_tokens": 9, "metadata": {"user_id": "u"}, "stop_sequences": ["x"], "stream": true});
    for (name, value) in more.as_object().unwrap() {
        message[name.as_str()] = value.clone();
    }
    let read = |body: &Bytes| drop(anthropic::read(body, &reading()).unwrap());
    check("/v1/messages", read, &[message]);
}

#[test]
fn every_field_of_a_response_that_is_read_is_described() {
    let schema = json!({"type": "object"});
    let grammar = json!({"type": "grammar", "syntax": "regex", "definition": "a+"});
    let body = |choice: Value| {
        json!({
            "model": "m", "instructions": "i", "stream": true, "stream_options": {},
            "reasoning": {"effort": "low", "summary": "auto"}, "include": ["reasoning.encrypted_content"],
            "text": {"verbosity": "low", "format": {"type": "json_schema", "name": "n", "schema": schema}},
            "tools": [
                {"type": "function", "name": "f", "parameters": schema}, {"type": "custom", "name": "c", "format": grammar},
                {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "g"}]}, {"type": "web_search"}],
            "tool_choice": choice,
            "input": [
                {"type": "message", "role": "user", "content": [
                    {"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:image/png;base64,AA=="}]},
                {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}], "encrypted_content": "x"},
                {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                {"type": "custom_tool_call", "call_id": "d", "name": "c", "input": "a"},
                {"type": "function_call_output", "call_id": "c", "output": "x"},
                {"type": "custom_tool_call_output", "call_id": "d", "output": [{"type": "input_text", "text": "y"}]},
                {"role": "assistant", "content": [{"type": "output_text", "text": "b"}, {"type": "refusal", "refusal": "no"}]},
            ],
        })
    };
    let allowed = json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]});
    let bodies = [json!({"type": "function", "name": "f"}), allowed].map(body);
    let read = |body: &Bytes| drop(responses::read(body, &reading()).unwrap());
    check("/v1/responses", read, &bodies);
}
