//! Request bodies beyond the documentation of OpenAI, Anthropic and Ollama: tools for models without tools, extra
//! fields, nulls, halves of emojis, broken arguments, and names with Ollama's tag. Every route is tried with each.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use support::service::Pool;

use super::{CHAT, MESSAGES, OLLAMA, RESPONSES, ask, echoed, ignored, named, with};

const COMPLETIONS: &str = "/v1/completions";
const GENERATE: &str = "/api/generate";
const ON: &str = "evening: {cleanup: null, reopen: null}\ncompat: {ollama: true}\n";

fn demo() -> Pool {
    Pool::demo_with(ON)
}

/// A request in each API with this text.
fn request(path: &str, text: &Value, more: &Value) -> Value {
    let messages = json!([{"role": "user", "content": text}]);
    let body = match path {
        RESPONSES => json!({"input": text, "max_output_tokens": 8}),
        COMPLETIONS => json!({"prompt": text, "max_tokens": 8}),
        OLLAMA => json!({"messages": messages, "stream": false, "options": {"num_predict": 8}}),
        GENERATE => json!({"prompt": text, "stream": false, "options": {"num_predict": 8}}),
        "/v1/tokenize" | "/v1/messages/count_tokens" => json!({"messages": messages}),
        _ => json!({"messages": messages, "max_tokens": 8}),
    };
    with(with(body, &json!({"model": "tiny-guide"})), more)
}

/// A function in each API's form.
fn tool(path: &str) -> Value {
    let schema = json!({"type": "object", "properties": {}});
    match path {
        RESPONSES => json!({"type": "function", "name": "f", "parameters": schema}),
        MESSAGES => json!({"name": "f", "input_schema": schema}),
        _ => json!({"type": "function", "function": {"name": "f", "parameters": schema}}),
    }
}

#[test]
fn a_model_without_tools_responds_and_reports_them_unless_a_call_is_required() {
    let pool = demo();
    let choices = |path: &str| match path {
        MESSAGES => (
            vec![
                json!(null),
                json!({"type": "auto"}),
                json!({"type": "none"}),
            ],
            vec![json!({"type": "any"}), json!({"type": "tool", "name": "f"})],
        ),
        RESPONSES => (
            vec![json!(null), json!("auto"), json!("none")],
            vec![json!("required"), json!({"type": "function", "name": "f"})],
        ),
        OLLAMA => (vec![json!(null)], vec![]),
        _ => {
            let named = json!({"type": "function", "function": {"name": "f"}});
            (
                vec![json!(null), json!("auto"), json!("none")],
                vec![json!("required"), named],
            )
        }
    };
    for path in [CHAT, RESPONSES, MESSAGES, OLLAMA] {
        let (open, demanded) = choices(path);
        let body = |choice: &Value| {
            let more = json!({"tools": vec![tool(path)], "tool_choice": choice});
            request(path, &json!("Hi"), &more)
        };
        for choice in &open {
            let (status, response, ignored) = ask(&pool, path, &body(choice));
            assert_eq!(
                (status, ignored.as_str()),
                (200, "tools"),
                "{path} {choice}: {response}"
            );
        }
        for choice in &demanded {
            let (status, response, _) = ask(&pool, path, &body(choice));
            assert_eq!(status, 400, "{path} {choice}: {response}");
            assert!(
                response.to_string().contains("does not support `tools`"),
                "{response}"
            );
        }
    }
}

#[test]
fn extra_fields_that_clients_add_within_a_request_are_accepted() {
    let pool = demo();
    let user = json!({"role": "user", "content": "Hi"});
    let sent_back = |more: &Value| {
        let message = with(json!({"role": "assistant", "content": "a"}), more);
        json!({"messages": [user, message, user]})
    };
    let block = |kind: &Value| json!({"messages": [{"role": "user", "content": [kind]}]});
    for (path, more, names) in [
        (
            CHAT,
            sent_back(&json!({"parsed": {"a": true}, "refusal": null})),
            "messages.parsed",
        ),
        (
            CHAT,
            sent_back(&json!({"provider_specific_fields": {"refusal": null}})),
            "",
        ),
        (
            CHAT,
            sent_back(&json!({"reasoning_details": [{"text": "x"}]})),
            "messages.reasoning_details",
        ),
        (
            CHAT,
            block(&json!({"type": "text", "text": "Hi", "id": "p1"})),
            "messages.content.id",
        ),
        (
            MESSAGES,
            block(&json!({"type": "text", "text": "Hi", "id": "p1"})),
            "messages.content.id",
        ),
        (
            MESSAGES,
            json!({"messages": [with(user.clone(), &json!({"uuid": "u"}))]}),
            "messages.uuid",
        ),
        (
            RESPONSES,
            json!({"input": [with(user.clone(), &json!({"uuid": "u"}))]}),
            "input.uuid",
        ),
        (
            RESPONSES,
            json!({"input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi", "lang": "en"}]}]}),
            "input.content.lang",
        ),
        (
            OLLAMA,
            json!({"messages": [with(user.clone(), &json!({"uuid": "u"}))]}),
            "messages[0].uuid",
        ),
    ] {
        let (status, response, ignored) = ask(&pool, path, &request(path, &json!("Hi"), &more));
        assert_eq!(
            (status, ignored.as_str()),
            (200, names),
            "{path} {more}: {response}"
        );
    }
    // A misspelled top-level field is still reported.
    let (status, response, _) = ask(
        &pool,
        CHAT,
        &request(CHAT, &json!("Hi"), &json!({"temprature": 1})),
    );
    assert_eq!(
        (status, &response["error"]["param"]),
        (400, &json!("temprature"))
    );
    // An unknown engine receives all fields.
    let pool = super::pool(&["--echo"]);
    let more = with(
        sent_back(&json!({"parsed": {"a": true}})),
        &json!({"vad_filter": true}),
    );
    let body = with(
        request(CHAT, &json!("Hi"), &more),
        &json!({"model": "writer"}),
    );
    let (status, response, ignored) = ask(&pool, CHAT, &body);
    assert_eq!((status, ignored.as_str()), (200, ""), "{response}");
    let got = echoed(&response);
    assert_eq!(got["messages"][1]["parsed"], json!({"a": true}));
    assert_eq!(got["vad_filter"], true);
}

/// Names of all fields in a schema.
fn properties(document: &Value, schema: &Value, names: &mut BTreeSet<String>) {
    if let Some(place) = schema["$ref"].as_str() {
        let place = place.trim_start_matches('#');
        return properties(document, document.pointer(place).unwrap(), names);
    }
    for (name, _) in schema["properties"].as_object().into_iter().flatten() {
        names.insert(name.clone());
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        properties(document, part, names);
    }
}

#[test]
fn null_is_the_same_as_absent_for_every_field_of_the_document() {
    let pool = demo();
    let (_, document, _) = pool.request("GET", "/llm/openapi.json", "", None);
    let document: Value = serde_json::from_str(&document).unwrap();
    for (path, schema, needed) in [
        (CHAT, "ChatCompletionRequest", &["model", "messages"][..]),
        (COMPLETIONS, "CompletionRequest", &["model", "prompt"]),
        (RESPONSES, "ResponseRequest", &["model", "input"]),
        (
            MESSAGES,
            "MessageRequest",
            &["model", "messages", "max_tokens"],
        ),
        (
            OLLAMA,
            "OllamaChatRequest",
            &["model", "messages", "stream"],
        ),
    ] {
        let mut names = BTreeSet::new();
        let schema = &document["components"]["schemas"][schema];
        properties(&document, schema, &mut names);
        assert!(names.len() > needed.len() + 5, "{path}: {names:?}");
        let all: serde_json::Map<String, Value> = names
            .iter()
            .filter(|name| !needed.contains(&name.as_str()))
            .map(|name| (name.clone(), Value::Null))
            .chain(
                ["chat_template_kwargs", "no_such_field"]
                    .map(|name| (name.to_owned(), Value::Null)),
            )
            .collect();
        let body = request(path, &json!("Hi"), &Value::Object(all));
        let (status, response, ignored) = ask(&pool, path, &body);
        assert_eq!((status, ignored.as_str()), (200, ""), "{path}: {response}");
    }
}

#[test]
fn an_unpaired_surrogate_does_not_end_a_conversation() {
    let pool = demo();
    for path in [
        CHAT,
        COMPLETIONS,
        RESPONSES,
        MESSAGES,
        OLLAMA,
        GENERATE,
        "/v1/tokenize",
        "/v1/messages/count_tokens",
    ] {
        for half in [
            "\\ud83d",
            "\\uDE00 later",
            "\\\\ud83d \\ud83d\\ude00 \\ud83d",
        ] {
            let body = request(path, &json!("HALF"), &json!({})).to_string();
            let body = body.replace("HALF", &format!("cut: {half}"));
            let (status, response, _) = pool.request("POST", path, &body, None);
            assert_eq!(status, 200, "{path} {half}: {response}");
        }
    }
    let echo = super::pool(&["--echo"]);
    let body = json!({"model": "writer", "messages": [{"role": "user", "content": "HALF"}]});
    let body = body.to_string().replace("HALF", "a\\ud83d");
    let (_, response, _) = echo.request("POST", CHAT, &body, None);
    let got = echoed(&serde_json::from_str(&response).unwrap());
    assert_eq!(got["messages"][0]["content"], "a\u{fffd}");
}

#[test]
fn invalid_arguments_of_an_earlier_call_do_not_end_a_conversation() {
    let pool = demo();
    let broken = "{\"a\": ";
    let user = json!({"role": "user", "content": "Hi"});
    let call =
        json!({"id": "c1", "type": "function", "function": {"name": "f", "arguments": broken}});
    let item = json!({"type": "function_call", "call_id": "c1", "name": "f", "arguments": broken});
    let used = |input: Value| {
        json!({"messages": [user,
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "f", "input": input}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "bad JSON"}]}]})
    };
    let chat = json!({"messages": [user, {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "bad JSON"}]});
    let input = json!({"input": [user, item,
        {"type": "function_call_output", "call_id": "c1", "output": "bad JSON"}]});
    for (path, more) in [
        (CHAT, chat.clone()),
        (OLLAMA, chat),
        (RESPONSES, input),
        (MESSAGES, used(json!({"a": 1}))),
    ] {
        let (status, response, ignored) = ask(&pool, path, &request(path, &json!("Hi"), &more));
        assert_eq!(status, 200, "{path} {more}: {response}");
        assert_eq!(ignored, "messages.tool_calls", "{path}");
    }
}

#[test]
fn a_name_with_the_latest_tag_selects_the_model_on_every_route() {
    let pool = demo();
    let tagged = json!({"model": "tiny-guide:latest"});
    for path in [
        CHAT,
        COMPLETIONS,
        RESPONSES,
        MESSAGES,
        OLLAMA,
        "/v1/tokenize",
    ] {
        let (status, response, _) = ask(&pool, path, &request(path, &json!("Hi"), &tagged));
        assert_eq!(status, 200, "{path}: {response}");
    }
    let vectors = json!({"model": "tiny-guide:latest", "input": "Hi"});
    let plain = json!({"model": "tiny-guide", "input": "Hi"});
    let [one, other] = [vectors, plain].map(|body| ask(&pool, "/v1/embeddings", &body));
    assert_eq!(
        (one.0, &one.1["model"]),
        (other.0, &other.1["model"]),
        "{}",
        one.1
    );
    let (status, shown, _) = pool.request("GET", "/v1/models/tiny-guide:latest", "", None);
    assert!(status == 200 && shown.contains("\"tiny-guide\""), "{shown}");
    let (status, _, _) = ask(
        &pool,
        CHAT,
        &request(CHAT, &json!("Hi"), &json!({"model": "none:latest"})),
    );
    assert_eq!(status, 404);
    let metrics = pool.request("GET", "/metrics", "", None).1;
    assert!(
        !metrics.contains("tiny-guide:latest"),
        "a separate name in the metrics"
    );
    let wanted = json!({"name": "other", "role": "user", "models": ["tiny-chat"]}).to_string();
    let admin = pool.admin_key();
    let (status, made, _) = pool.request("POST", "/llm/admin/keys", &wanted, Some(&admin));
    assert_eq!(status, 200, "{made}");
    let made: Value = serde_json::from_str(&made).unwrap();
    let key = made["key"].as_str().unwrap().to_owned();
    let body = request(CHAT, &json!("Hi"), &tagged).to_string();
    let tagged_status = pool.request("POST", CHAT, &body, Some(&key)).0;
    let body = request(CHAT, &json!("Hi"), &json!({})).to_string();
    assert_eq!(
        tagged_status,
        pool.request("POST", CHAT, &body, Some(&key)).0
    );
    assert!(tagged_status >= 400);
    let off = super::pool(&[]);
    let body = json!({"model": "writer:latest", "messages": [{"role": "user", "content": "Hi"}]});
    assert_eq!(ask(&off, CHAT, &body).0, 404);
}

#[test]
fn the_pools_unknown_fields_policy_applies_unless_the_model_file_sets_one() {
    let echo = ["--echo"];
    let models = [
        named("writer", &echo, ""),
        named("strict", &echo, ", unknown_fields: refuse"),
        named("mild", &echo, ", unknown_fields: drop"),
    ];
    let pool = Pool::with_models(&models, "pool: {unknown_fields: drop}\n");
    let send = |model: &str| {
        let body = json!({"model": model, "colour": "red", "messages": [{"role": "user", "content": "Hi"}]});
        let (status, text, head) = pool.request_with("POST", CHAT, &body.to_string(), &[]);
        (status, ignored(&head), text.contains("colour"))
    };
    assert_eq!(send("writer"), (200, String::new(), true));
    assert_eq!(send("mild"), (200, "colour".to_owned(), false));
    assert_eq!(send("strict").0, 400);
    let pool = Pool::demo_with("pool: {unknown_fields: drop}\n");
    let body = request(CHAT, &json!("Hi"), &json!({"temprature": 0.5}));
    let (status, response, names) = ask(&pool, CHAT, &body);
    assert_eq!((status, names.as_str()), (200, "temprature"), "{response}");
}
