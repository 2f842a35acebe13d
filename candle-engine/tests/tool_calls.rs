//! Tools on a real engine: enforced calls of each family of models, streaming and non-streaming, and requirements on templates.

mod support;

use candle_engine::{EngineOptions, Listen};
use hyper::StatusCode;
use serde_json::{Value, json};
use std::path::Path;
use support::{Engine, demo_model, options};

const CHAT: &str = "/v1/chat/completions";
const HERMES: &str = "{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>Call in <tool_call></tool_call>.{% endif %}\
    {% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}\
    {% if message.tool_calls %}{% for call in message.tool_calls %}<tool_call>{{ call.function.name }} {{ call.function.arguments.city }}</tool_call>{% endfor %}{% endif %}\
    <|im_end|>\n{% endfor %}<|im_start|>assistant\n";

/// The demo model with another chat template.
async fn engine_with(template: &str) -> Engine {
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("model");
    std::fs::create_dir(&model).expect("a folder");
    let demo = demo_model("tiny-chat");
    for name in [
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "model.safetensors",
    ] {
        std::fs::copy(demo.join(name), model.join(name)).expect("a copy");
    }
    std::fs::write(model.join("chat_template.jinja"), template).expect("a file");
    let socket = Listen::Unix(folder.path().join("socket"));
    let options = EngineOptions {
        context_tokens: 512,
        ..options(Path::new(&model), socket)
    };
    Engine::start_with(options, folder).await
}

fn tools() -> Value {
    let weather = json!({
        "type": "object", "required": ["city", "days"], "additionalProperties": false,
        "properties": {"city": {"enum": ["Paris", "Rome"]}, "days": {"$ref": "#/$defs/days"}},
        "$defs": {"days": {"type": "integer", "minimum": 1, "maximum": 9}},
    });
    json!([
        {"type": "function", "function": {"name": "weather", "parameters": weather, "strict": true}},
        {"type": "function", "function": {"name": "now"}},
    ])
}

fn ask(more: &Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "Where?"}], "tools": tools(), "temperature": 1.5});
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

fn check_calls(calls: &Value) {
    let calls = calls.as_array().expect("calls");
    assert!(!calls.is_empty());
    for call in calls {
        assert_eq!(call["type"], "function");
        assert!(
            call["id"]
                .as_str()
                .is_some_and(|id| id.starts_with("call_") && id.len() == 29),
            "{call}"
        );
        let arguments = call["function"]["arguments"].as_str().expect("a string");
        let arguments: Value = serde_json::from_str(arguments).expect("JSON");
        match call["function"]["name"].as_str() {
            Some("weather") => {
                assert!(
                    arguments["city"] == "Paris" || arguments["city"] == "Rome",
                    "{call}"
                );
                assert!(
                    arguments["days"]
                        .as_u64()
                        .is_some_and(|days| (1..=9).contains(&days)),
                    "{call}"
                );
            }
            Some("now") => assert_eq!(arguments, json!({})),
            other => panic!("no such tool: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_required_call_is_made_in_the_form_of_each_family() {
    let others = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}{{ tools | length }} MARK <|im_start|>assistant\n";
    for template in [
        HERMES.to_owned(),
        others.replace("MARK", "<|python_tag|>"),
        others.replace("MARK", "[TOOL_CALLS]"),
        others.replace("MARK", ""),
    ] {
        let engine = engine_with(&template).await;
        for seed in 0..3 {
            let body = ask(
                &json!({"tool_choice": "required", "parallel_tool_calls": false, "seed": seed}),
            );
            let (status, response) = engine.post(CHAT, &body).await;
            assert_eq!(status, StatusCode::OK, "{response}");
            let choice = &response["choices"][0];
            assert_eq!(choice["finish_reason"], "tool_calls", "{response}");
            assert_eq!(choice["message"]["content"], Value::Null);
            check_calls(&choice["message"]["tool_calls"]);
            assert_eq!(
                choice["message"]["tool_calls"].as_array().map(Vec::len),
                Some(1)
            );
        }
        let named = json!({"tool_choice": {"type": "function", "function": {"name": "weather"}}, "stream": true, "parallel_tool_calls": false});
        let chunks = engine.stream(CHAT, &ask(&named)).await.collect().await;
        let calls: Vec<&Value> = chunks
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array())
            .flatten()
            .collect();
        assert_eq!((calls.len(), &calls[0]["index"]), (1, &json!(0)));
        assert_eq!(calls[0]["function"]["name"], "weather");
        check_calls(&json!(calls));
        let last = chunks.last().expect("chunks");
        assert_eq!(last["choices"][0]["finish_reason"], "tool_calls");
        engine.stop().await.expect("ends");
    }
}

#[tokio::test]
async fn several_calls_have_unique_ids_and_consecutive_indices() {
    let engine = engine_with(HERMES).await;
    let mut most = 0;
    for seed in 0..6 {
        let body = ask(
            &json!({"tool_choice": "required", "stream": true, "seed": seed, "temperature": 2.0}),
        );
        let chunks = engine.stream(CHAT, &body).await.collect().await;
        let calls: Vec<&Value> = chunks
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array())
            .flatten()
            .collect();
        for (place, call) in calls.iter().enumerate() {
            assert_eq!(call["index"], place);
            assert!(calls[..place].iter().all(|other| other["id"] != call["id"]));
        }
        most = most.max(calls.len());
    }
    assert!(most >= 1);
}

#[tokio::test]
async fn a_response_without_a_tool_call_is_text() {
    let engine = engine_with(HERMES).await;
    for more in [json!({"tool_choice": "none"}), json!({})] {
        let mut body = ask(&more);
        body["temperature"] = json!(0);
        body["max_tokens"] = json!(12);
        let (_, response) = engine.post(CHAT, &body).await;
        let message = &response["choices"][0]["message"];
        assert!(
            message["content"].is_string() && message.get("tool_calls").is_none(),
            "{response}"
        );
        body["stream"] = json!(true);
        let chunks = engine.stream(CHAT, &body).await.collect().await;
        let streamed: String = chunks
            .iter()
            .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
            .collect();
        assert_eq!(message["content"], streamed);
    }
}

#[tokio::test]
async fn calls_and_their_results_reach_the_template() {
    let engine = engine_with(HERMES).await;
    let messages = json!([
        {"role": "user", "content": "Rome?"},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\": \"Rome\", \"days\": 1}"}}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ]);
    let (_, tokens) = engine
        .post("/tokenize", &json!({"messages": messages}))
        .await;
    let (_, text) = engine
        .post("/detokenize", &json!({"tokens": tokens["tokens"]}))
        .await;
    let text = text["prompt"].as_str().expect("a text");
    assert!(
        text.contains("<tool_call>weather Rome</tool_call>"),
        "{text}"
    );
    assert!(text.contains("<|im_start|>tool\nsunny"), "{text}");
    let (status, response) = engine
        .post(
            CHAT,
            &json!({"messages": messages, "tools": tools(), "max_tokens": 2}),
        )
        .await;
    assert_eq!(status, StatusCode::OK, "{response}");
}

#[tokio::test]
async fn a_conversation_with_tool_results_renders_with_every_template() {
    let granite = include_str!("vectors/chat/granite.jinja");
    let lists = "{% for message in messages %}[{{ message.role }}] {{ message.content }}\
        {% for call in message.tool_calls or [] %}{% for name, value in call.function.arguments.items() %}{{ name }}={{ value }}{% endfor %}{% endfor %}\n{% endfor %}";
    let plain =
        "{% for message in messages %}[{{ message.role }}] {{ message.content }}\n{% endfor %}";
    for (template, broken) in [
        (granite, None),
        (plain, None),
        (HERMES, None),
        (lists, Some("arguments={\"city\": ")),
    ] {
        let engine = engine_with(template).await;
        for arguments in ["{\"city\": \"Rome\"}", "{\"city\": "] {
            let function = json!({"name": "weather", "arguments": arguments});
            let messages = json!([
                {"role": "user", "content": "Rome?"},
                {"role": "assistant", "content": null, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]},
                {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
            ]);
            let body = json!({"messages": messages, "max_tokens": 2});
            let (status, response) = engine.post(CHAT, &body).await;
            assert_eq!(status, StatusCode::OK, "{template}: {response}");
            let (_, tokens) = engine
                .post("/tokenize", &json!({"messages": messages}))
                .await;
            let tokens = json!({"tokens": tokens["tokens"]});
            let (_, text) = engine.post("/detokenize", &tokens).await;
            let text = text["prompt"].as_str().expect("a text");
            assert!(text.contains("sunny"), "{text}");
            if let Some(broken) = broken.filter(|_| !arguments.ends_with('}')) {
                assert!(text.contains(broken), "{text}");
            }
        }
        engine.stop().await.expect("ends");
    }
}

#[tokio::test]
async fn a_template_without_tools_ignores_optional_tools_and_refuses_required_ones() {
    let engine = Engine::start(1).await;
    for choice in [json!(null), json!("auto"), json!("none")] {
        let body = ask(&json!({"tool_choice": choice, "max_tokens": 2}));
        let (status, response) = engine.post(CHAT, &body).await;
        assert_eq!(status, StatusCode::OK, "{choice}: {response}");
    }
    let named = json!({"type": "function", "function": {"name": "now"}});
    for choice in [json!("required"), named] {
        let body = ask(&json!({"tool_choice": choice}));
        let (status, response) = engine.post(CHAT, &body).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{choice}");
        assert_eq!(response["error"]["param"], "tool_choice");
        let message = response["error"]["message"].as_str().expect("a message");
        assert!(message.contains("does not support `tools`"), "{message}");
    }
    let engine = engine_with(HERMES).await;
    // A response format applies to text, not to calls.
    let both = json!({"tool_choice": "required", "response_format": {"type": "json_object"}});
    let (status, response) = engine.post(CHAT, &ask(&both)).await;
    assert_eq!(status, StatusCode::OK, "{response}");
    check_calls(&response["choices"][0]["message"]["tool_calls"]);
    let broken = json!([{"type": "function", "function": {"name": "f", "parameters": {"enum": []}, "strict": true}}]);
    let (_, response) = engine
        .post(
            CHAT,
            &ask(&json!({"tools": broken, "tool_choice": "required"})),
        )
        .await;
    assert_eq!(response["error"]["param"], "tools", "{response}");
}
