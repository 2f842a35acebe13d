//! Requests of coding agents and other clients: their first requests, hints of every API, reasoning over several turns, custom
//! tools, and error messages. The binary is real; engines follow a script.

mod bodies;
mod disconnects;
mod embedded;
mod errors;
mod hints;
mod reasoning;
mod tools;

use serde_json::{Value, json};
use support::service::Pool;

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const RESPONSES: &str = "/v1/responses";
const OLLAMA: &str = "/api/chat";

/// A model `writer` whose engine has these flags.
fn model(flags: &[&str]) -> (String, String) {
    named("writer", flags, "")
}

fn named(name: &str, flags: &[&str], more: &str) -> (String, String) {
    support::stub::model(name, flags, &format!("memory_gib: 1{more}"))
}

fn pool(flags: &[&str]) -> Pool {
    Pool::with_models(&[model(flags)], "")
}

/// Status, response, and the fields reported as ignored.
fn ask(pool: &Pool, path: &str, body: &Value) -> (u16, Value, String) {
    ask_with(pool, path, body, &[])
}

fn ask_with(pool: &Pool, path: &str, body: &Value, lines: &[(&str, &str)]) -> (u16, Value, String) {
    let (status, text, head) = pool.request_with("POST", path, &body.to_string(), lines);
    let response = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (status, response, ignored(&head))
}

/// The names in `x-model-pool-ignored`.
fn ignored(head: &str) -> String {
    let mut lines = head.lines();
    let names = lines.find_map(|line| line.strip_prefix("x-model-pool-ignored: "));
    names.unwrap_or_default().to_owned()
}

/// The data of a stream's events, without comments, pings and the end.
fn events(text: &str) -> Vec<Value> {
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let events = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
    events.filter(|event| event["type"] != "ping").collect()
}

fn stream(pool: &Pool, path: &str, body: &Value) -> (u16, Vec<Value>, String) {
    let mut body = body.clone();
    body["stream"] = json!(true);
    let (status, text, head) = pool.request_with("POST", path, &body.to_string(), &[]);
    (status, events(&text), ignored(&head))
}

fn message(more: &Value) -> Value {
    with(
        json!({"model": "writer", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello"}]}),
        more,
    )
}

fn response(more: &Value) -> Value {
    with(json!({"model": "writer", "input": "Hello"}), more)
}

fn chat(more: &Value) -> Value {
    with(
        json!({"model": "writer", "messages": [{"role": "user", "content": "Hello"}]}),
        more,
    )
}

fn with(mut body: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        body[name.as_str()] = value.clone();
    }
    body
}

/// The request received by an echoing engine, extracted from its response in any API's form.
fn echoed(response: &Value) -> Value {
    let places = [
        "/choices/0/message/content",
        "/content/0/text",
        "/output/0/content/0/text",
    ];
    let text = places
        .iter()
        .find_map(|place| response.pointer(place)?.as_str());
    serde_json::from_str(text.unwrap_or_else(|| panic!("no echo in {response}"))).unwrap()
}

fn fixture(name: &str) -> Value {
    let path = support::root().join("tests/fixtures/clients").join(name);
    let mut body: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    body["model"] = json!("writer");
    body
}

#[test]
fn the_first_requests_of_coding_agents_are_served_and_ignored_fields_are_reported() {
    let pool = pool(&["--echo"]);
    let of_codex = ["tools.web_search", "client_metadata"];
    for (name, path, named) in [
        (
            "codex-responses-known-model.json",
            RESPONSES,
            &[of_codex[0], "tools.tool_search", of_codex[1]][..],
        ),
        ("codex-responses-unknown-model.json", RESPONSES, &of_codex),
        (
            "claude-code-messages-default.json",
            MESSAGES,
            &[
                "context_management",
                "cache_control",
                "thinking",
                "thinking.budget_tokens",
            ],
        ),
        (
            "claude-code-messages-system-role.json",
            MESSAGES,
            &["context_management", "cache_control", "thinking"],
        ),
        (
            "claude-code-messages-thinking-off.json",
            MESSAGES,
            &["cache_control", "thinking"],
        ),
    ] {
        let mut body = fixture(name);
        let (status, response, _) = stream(&pool, path, &body);
        assert_eq!(status, 200, "{name}: {response:?}");
        let last = response.last().unwrap()["type"].as_str().unwrap();
        assert!(
            ["message_stop", "response.completed"].contains(&last),
            "{name}: {last}"
        );
        body["stream"] = json!(false);
        let (status, response, ignored) = ask(&pool, path, &body);
        assert_eq!(status, 200, "{name}: {response}");
        let ignored: Vec<&str> = ignored.split(", ").collect();
        for field in named {
            assert!(
                ignored.contains(field),
                "{name}: {field} is not in {ignored:?}"
            );
        }
        let got = echoed(&response);
        let sent = body["tools"].as_array().unwrap();
        let is_run_here = |tool: &&Value| {
            let kind = tool["type"].as_str().unwrap_or("custom");
            ["function", "custom"].contains(&kind)
        };
        let inner = sent
            .iter()
            .filter_map(|tool| tool["tools"].as_array())
            .flatten();
        let expected = sent.iter().filter(is_run_here).chain(inner).count();
        assert_eq!(got["tools"].as_array().unwrap().len(), expected, "{name}");
        for tool in got["tools"].as_array().unwrap() {
            assert_eq!(tool["type"], "function", "{name}");
        }
    }
}

#[test]
fn system_messages_between_turns_and_repeated_turns_work_with_every_template() {
    let pool = pool(&["--echo"]);
    for name in [
        "claude-code-messages-system-role.json",
        "codex-responses-known-model.json",
    ] {
        let path = if name.starts_with("codex") {
            RESPONSES
        } else {
            MESSAGES
        };
        let mut body = fixture(name);
        body["stream"] = json!(false);
        let (_, response, _) = ask(&pool, path, &body);
        let got = echoed(&response);
        let roles = got["messages"].as_array().unwrap().iter();
        let roles: Vec<&str> = roles
            .map(|message| message["role"].as_str().unwrap())
            .collect();
        assert_eq!(roles, ["system", "user"], "{name}");
        let said = got["messages"][1]["content"].as_str().unwrap();
        assert!(said.contains("USETOOL"), "{said}");
        assert_eq!(
            said.contains("<system>"),
            name.starts_with("claude"),
            "{said}"
        );
    }
}
