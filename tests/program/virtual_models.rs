//! Virtual models with the real program: the choice of a member, the next member after a failure, rights, and usage.

mod admin;

use serde_json::{Value, json};
use support::net::stub;
use support::service::{Pool, wait_for};

const CHAT: &str = "/v1/chat/completions";

/// An engine that uses 10 of the device's 16 GiB.
fn large(name: &str) -> (String, String) {
    let flags = ["--model", name, "--tokens", "2"];
    support::stub::model(name, &flags, "memory_gib: 10")
}

fn body(model: &str, text: &str) -> String {
    json!({"model": model, "messages": [{"role": "user", "content": text}]}).to_string()
}

/// The status, the response, and the member that the header names.
fn ask_with(pool: &Pool, body: &str, key: Option<&str>) -> (u16, Value, String) {
    let (status, text, head) = pool.request("POST", CHAT, body, key);
    let mut lines = head.lines();
    let member = lines.find_map(|line| line.strip_prefix("x-model-pool-model: "));
    let response = serde_json::from_str(&text).unwrap_or(Value::String(text));
    (status, response, member.unwrap_or_default().to_owned())
}

fn ask(pool: &Pool, model: &str) -> (u16, Value, String) {
    ask_with(pool, &body(model, "Hello"), None)
}

fn state(pool: &Pool, model: &str) -> String {
    let path = format!("/llm/admin/models?model={model}");
    let (_, view) = pool.admin("GET", &path, &Value::Null);
    view["models"][0]["state"].as_str().unwrap().to_owned()
}

#[test]
fn any_of_takes_the_ready_member_without_a_swap_and_names_it() {
    let config = "virtual_models: {coder: {any_of: [a, b]}}\n";
    let pool = Pool::with_models(&[large("a"), large("b")], config);
    assert_eq!(ask(&pool, "b").0, 200);
    for _ in 0..3 {
        let (status, response, member) = ask(&pool, "coder");
        assert_eq!(status, 200, "{response}");
        assert_eq!(member, "b");
        assert_eq!(response["model"], "b");
    }
    assert_eq!(state(&pool, "a"), "cold", "no swap while a member is ready");
    let (_, _, head) = pool.request("POST", CHAT, &body("b", "Hello"), None);
    assert!(!head.contains("x-model-pool-model"), "{head}");
    let (_, plan) = pool.admin("POST", "/llm/admin/plan", &json!({"model": "coder"}));
    assert_eq!(plan["model"], "b", "{plan}");
    assert_eq!(plan["virtual_choice"]["member"], "b", "{plan}");
    assert_eq!(plan["virtual_choice"]["kind"], "any_of", "{plan}");
    let (_, why) = pool.admin("GET", "/llm/admin/why?model=coder", &Value::Null);
    assert_eq!(why["virtual_choice"]["member"], "b", "{why}");
    assert_eq!(why["model"], "b", "{why}");
}

#[test]
fn any_of_without_a_ready_member_loads_one() {
    let config = "virtual_models: {coder: {any_of: [a, b]}}\n";
    let pool = Pool::with_models(&[large("a"), large("b")], config);
    let (status, response, member) = ask(&pool, "coder");
    assert_eq!(status, 200, "{response}");
    let (_, _, second) = ask(&pool, "coder");
    assert_eq!(second, member, "the loaded member stays");
    let other = if member == "a" { "b" } else { "a" };
    assert_eq!(state(&pool, other), "cold");
}

#[test]
fn other_apis_name_the_member_too() {
    let config = "compat: {ollama: true}\nvirtual_models: {coder: {any_of: [a]}}\n";
    let one = stub("a", &["--model", "a", "--tokens", "2"]);
    let pool = Pool::with_models(&[one], config);
    let messages = json!([{"role": "user", "content": "Hello"}]);
    for (path, body) in [
        (
            "/v1/messages",
            json!({"model": "coder", "max_tokens": 9, "messages": messages}),
        ),
        ("/v1/responses", json!({"model": "coder", "input": "Hello"})),
        (
            "/api/chat",
            json!({"model": "coder:latest", "stream": false, "messages": messages}),
        ),
        (
            "/v1/completions",
            json!({"model": "coder", "prompt": "Hello"}),
        ),
        (
            "/v1/embeddings",
            json!({"model": "coder", "input": "Hello"}),
        ),
    ] {
        let (status, text, head) = pool.request("POST", path, &body.to_string(), None);
        if path != "/v1/embeddings" {
            assert_eq!(status, 200, "{path}: {text}");
            let response: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(response["model"], "a", "{path}: {text}");
        }
        assert!(head.contains("x-model-pool-model: a"), "{path}: {head}");
    }
}

#[test]
fn a_fallback_uses_the_next_member_after_a_failure_before_the_first_token() {
    let config = "virtual_models: {safe: {fallback: [broken, missing, good]}}\n";
    let broken = stub("broken", &["--status", "500"]);
    let missing = stub("missing", &["--fail-load", "no weights"]);
    let good = stub("good", &["--model", "good", "--tokens", "3"]);
    let pool = Pool::with_models(&[broken, missing, good], config);
    for stream in [false, true] {
        let mut request: Value = serde_json::from_str(&body("safe", "Hello")).unwrap();
        request["stream"] = json!(stream);
        let (status, response, member) = ask_with(&pool, &request.to_string(), None);
        assert_eq!(status, 200, "{response}");
        assert_eq!(member, "good", "{response}");
        match response {
            Value::String(events) => assert!(events.contains("[DONE]"), "{events}"),
            response => assert_eq!(response["model"], "good"),
        }
    }
    let (_, metrics, _) = pool.request("GET", "/metrics", "", None);
    for line in [
        "model_pool_requests_total{model=\"broken\",code=\"500\"} 2",
        "model_pool_requests_total{model=\"good\",code=\"200\"} 2",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert!(!metrics.contains("model=\"safe\""), "{metrics}");
}

#[test]
fn a_request_without_memory_for_its_copy_has_no_fallback() {
    // A caller may use half of the three quarters for large bodies: 1.5 MiB.
    let env = [
        ("MODEL_POOL__SERVER__BODIES_MEMORY", "4MiB"),
        ("MODEL_POOL__SERVER__BODY_LIMIT", "2MiB"),
    ];
    let config = "virtual_models: {safe: {fallback: [broken, good]}}\n";
    let broken = stub("broken", &["--status", "500"]);
    let good = stub("good", &["--tokens", "3"]);
    let pool = Pool::with_env(&[broken, good], config, &env);
    let send = |bytes: usize| ask_with(&pool, &body("safe", &"x".repeat(bytes)), None);
    let (status, response, member) = send(600 << 10);
    assert_eq!((status, member.as_str()), (200, "good"), "{response}");
    let (status, response, member) = send(1 << 20);
    assert_eq!((status, member.as_str()), (500, "broken"), "{response}");
    let (status, response, member) = send(600 << 10);
    assert_eq!((status, member.as_str()), (200, "good"), "{response}");
}

#[test]
fn a_fallback_stops_at_causes_that_it_does_not_list() {
    let config = "virtual_models:\n  safe: {fallback: [broken, good], on: [context]}\n  long: {fallback: [short, good], on: [context]}\n";
    let message = "This model's maximum context length is 9 tokens. However, your messages resulted in 12 tokens.";
    let models = [
        stub("broken", &["--status", "500"]),
        stub("short", &["--refuse", message]),
        stub("good", &["--tokens", "3"]),
    ];
    let pool = Pool::with_models(&models, config);
    let (status, response, member) = ask(&pool, "safe");
    assert_eq!((status, member.as_str()), (500, "broken"), "{response}");
    let (status, response, member) = ask(&pool, "long");
    assert_eq!((status, member.as_str()), (200, "good"), "{response}");
}

#[test]
fn a_fallback_moves_on_when_a_member_takes_too_long() {
    let config = "virtual_models: {quick: {fallback: [slow, good], after: 200ms}}\n";
    let slow = stub("slow", &["--ready-after-ms", "600000"]);
    let pool = Pool::with_models(&[slow, stub("good", &["--tokens", "3"])], config);
    let (status, response, member) = ask(&pool, "quick");
    assert_eq!((status, member.as_str()), (200, "good"), "{response}");
}

#[test]
fn the_last_members_error_is_the_response_when_all_fail() {
    let config = "virtual_models: {safe: {fallback: [one, two]}}\n";
    let models = [
        stub("one", &["--status", "500"]),
        stub("two", &["--status", "503"]),
    ];
    let pool = Pool::with_models(&models, config);
    let (status, response, member) = ask(&pool, "safe");
    assert_eq!((status, member.as_str()), (503, "two"), "{response}");
}

#[test]
fn a_split_keeps_a_conversation_and_divides_the_others() {
    let config = "virtual_models: {ab: {split: {a: 1, b: 1}}}\n";
    let models = [stub("a", &["--tokens", "1"]), stub("b", &["--tokens", "1"])];
    let pool = Pool::with_models(&models, config);
    let member = |text: &str| ask_with(&pool, &body("ab", text), None).2;
    let members: Vec<String> = (0..24)
        .map(|nth| member(&format!("question {nth}")))
        .collect();
    for name in ["a", "b"] {
        assert!(members.iter().any(|member| member == name), "{members:?}");
    }
    for (nth, first) in members.iter().enumerate().take(6) {
        assert_eq!(&member(&format!("question {nth}")), first);
    }
}

#[test]
fn rules_choose_by_images_tools_and_length() {
    let config = "virtual_models: {auto: {by: [{vision: true, model: eyes}, {tools: true, model: hands}, {context_above: 1k, model: long}, {model: small}]}}\n";
    let names = ["eyes", "hands", "long", "small"];
    let models = names.map(|name| stub(name, &["--tokens", "1"]));
    let pool = Pool::with_models(&models, config);
    let chat = |content: Value, tools: Value| {
        let mut chat = json!({"model": "auto", "messages": [{"role": "user", "content": content}]});
        if !tools.is_null() {
            chat["tools"] = tools;
        }
        ask_with(&pool, &chat.to_string(), None).2
    };
    let image = json!([{"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]);
    let tools = json!([{"type": "function", "function": {"name": "f", "parameters": {}}}]);
    assert_eq!(chat(image, Value::Null), "eyes");
    assert_eq!(chat(json!("call it"), tools), "hands");
    assert_eq!(chat(json!("word ".repeat(2_000)), Value::Null), "long");
    assert_eq!(chat(json!("hi"), Value::Null), "small");
}

fn key(pool: &Pool, name: &str, models: &[&str]) -> String {
    let wish = json!({"name": name, "role": "user", "models": models});
    let (status, made) = pool.admin("POST", "/llm/admin/keys", &wish);
    assert_eq!(status, 200, "{made}");
    made["key"].as_str().unwrap().to_owned()
}

#[test]
fn a_key_uses_only_the_members_that_it_has_rights_for() {
    let config = "auth: {inference: key}\nvirtual_models: {coder: {any_of: [secret, shared]}}\n";
    let models = [
        stub("secret", &["--tokens", "1"]),
        stub("shared", &["--tokens", "1"]),
        stub("other", &["--tokens", "1"]),
    ];
    let pool = Pool::with_models(&models, config);
    let (shared, other) = (key(&pool, "s", &["shared"]), key(&pool, "o", &["other"]));
    let named = key(&pool, "n", &["coder"]);
    let admin = pool.admin_key();
    let (status, response, member) = ask_with(&pool, &body("secret", "x"), Some(&admin));
    assert_eq!((status, member.as_str()), (200, ""), "{response}");
    let (status, response, member) = ask_with(&pool, &body("coder", "x"), Some(&shared));
    assert_eq!(
        (status, member.as_str()),
        (200, "shared"),
        "the ready member is not the key's: {response}"
    );
    for key in [&other, &named] {
        let (status, response, member) = ask_with(&pool, &body("coder", "x"), Some(key));
        assert_eq!((status, member.as_str()), (404, ""), "{response}");
        assert_eq!(response["error"]["code"], "model_not_found", "{response}");
        assert!(!response.to_string().contains("secret"), "{response}");
    }
    let listed = |key: &str| {
        let (_, list) = pool.call(Some(key), "GET", "/v1/models", &Value::Null);
        let data = list["data"].as_array().unwrap().clone();
        data.into_iter().find(|model| model["id"] == "coder")
    };
    assert_eq!(
        listed(&shared).expect("listed")["members"],
        json!(["shared"])
    );
    assert_eq!(listed(&other), None);
    assert_eq!(
        listed(&admin).expect("listed")["members"],
        json!(["secret", "shared"])
    );
    let path = "/v1/models/coder";
    assert_eq!(pool.call(Some(&shared), "GET", path, &Value::Null).0, 200);
    assert_eq!(pool.call(Some(&other), "GET", path, &Value::Null).0, 404);
}

#[test]
fn usage_and_limits_count_at_the_member() {
    let config = "auth: {inference: key}\nlimits: {models: {a: {requests_per_minute: 2}}}\nvirtual_models: {coder: {any_of: [a]}}\n";
    let pool = Pool::with_models(&[stub("a", &["--tokens", "1"])], config);
    let user = key(&pool, "u", &["a"]);
    for _ in 0..2 {
        assert_eq!(ask_with(&pool, &body("coder", "x"), Some(&user)).0, 200);
    }
    let (status, response, _) = ask_with(&pool, &body("coder", "x"), Some(&user));
    assert_eq!(status, 429, "the limit of the member: {response}");
    let counted = |usage: &Value, model: &str| -> u64 {
        let days = usage["days"].as_array().unwrap().iter();
        let models = days.flat_map(|day| day["models"].as_array().unwrap());
        let models = models.filter(|row| row["model"] == model);
        models.map(|row| row["requests"].as_u64().unwrap()).sum()
    };
    wait_for("the usage", || {
        let (_, usage) = pool.call(Some(&user), "GET", "/llm/me/usage", &Value::Null);
        assert_eq!(counted(&usage, "coder"), 0, "{usage}");
        counted(&usage, "a") >= 2
    });
}

#[test]
fn orders_name_a_model_and_not_a_virtual_one() {
    let config = "virtual_models: {coder: {any_of: [a]}}\n";
    let pool = Pool::with_models(&[stub("a", &["--tokens", "1"])], config);
    let (status, response) = pool.admin("POST", "/llm/admin/unload", &json!({"model": "coder"}));
    assert_eq!(status, 404, "{response}");
    let message = response["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("coder is a virtual model; name one of its members: a"),
        "{message}"
    );
}
