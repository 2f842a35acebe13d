//! Decoding strategies and enforced formats on a real engine.

mod support;

use candle_engine::{EngineOptions, Listen};
use hyper::StatusCode;
use serde_json::{Value, json};
use std::path::Path;
use support::{Engine, MODEL, demo_model, options};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const RESPONSE: &str =
    "Swagger UI is at /llm/docs, and the OpenAPI document is at /llm/openapi.json.";

fn ask(more: &Value) -> Value {
    let mut body = json!({"messages": [{"role": "user", "content": "Where is Swagger UI?"}]});
    for (name, value) in more.as_object().expect("an object") {
        body[name] = value.clone();
    }
    body
}

/// An engine with the model's full context: JSON from a model that was not trained on it is long.
async fn roomy_engine() -> Engine {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = Listen::Unix(folder.path().join("socket"));
    let options = EngineOptions {
        context_tokens: 512,
        ..options(&demo_model("tiny-chat"), socket)
    };
    Engine::start_with(options, folder).await
}

async fn complete(engine: &Engine, more: &Value) -> Value {
    let (status, response) = engine.post(CHAT, &ask(more)).await;
    assert_eq!(status, StatusCode::OK, "{more}: {response}");
    response
}

async fn refused(engine: &Engine, more: &Value) -> (String, String) {
    let (status, response) = engine.post(CHAT, &ask(more)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{more}: {response}");
    let error = &response["error"];
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    (text("param"), text("message"))
}

fn text(response: &Value) -> &str {
    let content = &response["choices"][0]["message"]["content"];
    content
        .as_str()
        .unwrap_or_else(|| panic!("no text in {response}"))
}

#[tokio::test]
async fn every_strategy_returns_the_learned_response() {
    let engine = Engine::start(2).await;
    for strategy in [
        json!({"decoding_strategy": "greedy"}),
        json!({"decoding_strategy": "beam_search", "num_beams": 3}),
        json!({"decoding_strategy": "contrastive_search", "penalty_alpha": 0.1}),
    ] {
        assert_eq!(
            text(&complete(&engine, &strategy).await),
            RESPONSE,
            "{strategy}"
        );
    }
    let draw = json!({"decoding_strategy": "multinomial", "seed": 4, "max_tokens": 8});
    assert_eq!(
        text(&complete(&engine, &draw).await),
        text(&complete(&engine, &draw).await)
    );
}

/// The result of contrastive search by its definition, computed with `transformers`' GPT-J by `vectors/decoders.py`.
#[tokio::test]
async fn contrastive_search_on_gpt_j_matches_its_reference_implementation() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/gpt-j");
    let expected = std::fs::read(kept.join("expected.json")).expect("is kept");
    let expected: Value = serde_json::from_slice(&expected).expect("JSON");
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(&kept, Listen::Unix(folder.path().join("socket")));
    let engine = Engine::start_with(options, folder).await;
    let tokens = expected["contrastive"].as_array().expect("tokens").len();
    let ask = |more: Value| {
        let mut body = json!({"model": MODEL, "prompt": expected["prompt"], "max_tokens": tokens});
        for (name, value) in more.as_object().expect("an object") {
            body[name] = value.clone();
        }
        body
    };
    let search =
        json!({"decoding_strategy": "contrastive_search", "penalty_alpha": 0.6, "top_k": 4});
    let (status, response) = engine.post(COMPLETIONS, &ask(search)).await;
    assert_eq!(status, StatusCode::OK, "{response}");
    assert_eq!(response["choices"][0]["text"], expected["contrastive_text"]);
    let (_, greedy) = engine
        .post(COMPLETIONS, &ask(json!({"temperature": 0})))
        .await;
    assert_ne!(greedy["choices"][0]["text"], expected["contrastive_text"]);
}

#[tokio::test]
async fn a_beam_search_returns_several_sequences_and_streams_each_as_one_piece() {
    let engine = Engine::start(1).await;
    let mut body = json!({"decoding_strategy": "beam_search", "num_beams": 4, "n": 3, "length_penalty": 0.5, "early_stopping": true, "max_tokens": 30});
    let whole = complete(&engine, &body).await;
    let texts: Vec<&str> = (0..3)
        .filter_map(|index| whole["choices"][index]["message"]["content"].as_str())
        .collect();
    assert_eq!(texts.len(), 3);
    assert!(texts[0] != texts[1] && texts[1] != texts[2], "{texts:?}");
    body["stream"] = json!(true);
    let chunks = engine.stream(CHAT, &ask(&body)).await.collect().await;
    for (index, wanted) in texts.iter().enumerate() {
        let pieces: Vec<&str> = chunks
            .iter()
            .filter(|chunk| chunk["choices"][0]["index"] == index)
            .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
            .filter(|piece| !piece.is_empty())
            .collect();
        assert_eq!(pieces, [*wanted]);
    }
    for (more, param) in [
        (json!({"n": 5}), "n"),
        (json!({"logprobs": true}), "logprobs"),
        (json!({"temperature": 0.5}), "temperature"),
    ] {
        let mut body = body.clone();
        body["stream"] = json!(false);
        for (name, value) in more.as_object().expect("an object") {
            body[name] = value.clone();
        }
        assert_eq!(refused(&engine, &body).await.0, param);
    }
}

#[tokio::test]
async fn a_schema_response_is_json_that_matches_the_schema() {
    let engine = roomy_engine().await;
    let schema = json!({
        "type": "object", "additionalProperties": false, "required": ["name", "kind", "sizes"],
        "properties": {
            "name": {"type": "string", "maxLength": 12}, "kind": {"enum": ["small", "large"]},
            "sizes": {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 99}, "minItems": 1, "maxItems": 3},
        },
    });
    let formats = [
        json!({"response_format": {"type": "json_schema", "json_schema": {"name": "thing", "schema": schema, "strict": true}}}),
        json!({"guided_json": schema}),
        json!({"guided_json": schema.to_string(), "decoding_strategy": "beam_search"}),
        json!({"guided_json": schema, "stream": true}),
    ];
    for mut more in formats {
        if more.get("decoding_strategy").is_none() {
            more["temperature"] = json!(1.5);
            more["seed"] = json!(9);
        }
        let text = if more["stream"] == true {
            let chunks = engine.stream(CHAT, &ask(&more)).await.collect().await;
            let pieces = chunks.iter();
            pieces
                .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
                .collect()
        } else {
            let response = complete(&engine, &more).await;
            assert_eq!(
                response["choices"][0]["finish_reason"], "stop",
                "{more}: {response}"
            );
            text(&response).to_owned()
        };
        let json: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(
            json.as_object().map(|object| object.len()),
            Some(3),
            "{json}"
        );
        assert!(json["kind"] == "small" || json["kind"] == "large");
        let sizes = json["sizes"].as_array().expect("a list");
        assert!(
            (1..=3).contains(&sizes.len()) && sizes.iter().all(Value::is_u64),
            "{json}"
        );
    }
}

#[tokio::test]
async fn choices_expressions_and_grammars_are_followed_and_a_limit_ends_with_length() {
    let engine = Engine::start(1).await;
    for seed in 0..4 {
        let hot = |mut more: Value| {
            more["temperature"] = json!(2.0);
            more["seed"] = json!(seed);
            more
        };
        let choice = complete(
            &engine,
            &hot(json!({"guided_choice": ["yes", "no", "perhaps"]})),
        )
        .await;
        assert!(
            ["yes", "no", "perhaps"].contains(&text(&choice)),
            "{choice}"
        );
        assert_eq!(choice["choices"][0]["finish_reason"], "stop");
        let regex = complete(&engine, &hot(json!({"guided_regex": "[0-9]{3}-[0-9]{2}"}))).await;
        let digits: Vec<&str> = text(&regex).split('-').collect();
        assert!(
            digits.len() == 2 && digits[0].len() == 3 && digits[1].len() == 2,
            "{regex}"
        );
        let lark = complete(
            &engine,
            &hot(json!({"guided_grammar": "start: \"a\" (\"+\" \"a\"){2,4}"})),
        )
        .await;
        assert!(text(&lark).starts_with("a+a+a"), "{lark}");
        let object = complete(
            &engine,
            &hot(json!({"response_format": {"type": "json_object"}, "max_tokens": 4})),
        )
        .await;
        assert_eq!(object["choices"][0]["finish_reason"], "length");
        assert!(text(&object).trim_start().starts_with('{'), "{object}");
    }
}

#[tokio::test]
async fn an_unenforceable_format_is_refused_before_anything_is_computed() {
    let engine = Engine::start(1).await;
    let strict = |schema: Value| json!({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, "strict": true}}});
    for (more, param) in [
        (strict(json!({"enum": []})), "response_format"),
        (
            strict(json!({"type": "string", "not": {"const": "a"}})),
            "response_format",
        ),
        (
            strict(json!({"$ref": "https://example.org/schema.json"})),
            "response_format",
        ),
        (json!({"guided_regex": "(unclosed"}), "guided_regex"),
        (json!({"guided_grammar": "nothing"}), "guided_grammar"),
        (
            json!({"guided_regex": "a", "guided_choice": ["a"]}),
            "guided_choice",
        ),
    ] {
        let (found, message) = refused(&engine, &more).await;
        assert_eq!(found, param, "{message}");
        assert!(message.len() < 450, "{message}");
    }
    // Without `strict`, keywords that cannot be enforced are ignored.
    let lenient = json!({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "boolean", "not": {"const": 5}}}}});
    assert!(["true", "false"].contains(&text(&complete(&engine, &lenient).await)));
}

#[tokio::test]
async fn hostile_grammars_are_refused_or_followed_within_bounds() {
    let engine = Engine::start(1).await;
    let nested = "(".repeat(30_000) + "a" + &")".repeat(30_000);
    let wide: Vec<Value> = (0..3000)
        .map(|number| json!({"const": format!("text {number}")}))
        .collect();
    for more in [
        json!({"guided_regex": nested}),
        json!({"guided_grammar": format!("start: {nested}")}),
        json!({"guided_grammar": "start: start start | start"}),
        json!({"guided_grammar": "start: \"\""}),
        json!({"guided_grammar": "start: <[99999999]>"}),
        json!({"guided_grammar": "start: /a/{1,1000000}"}),
        json!({"guided_grammar": "%llguidance {\"no_forcing\": 5}\nstart: \"a\""}),
        json!({"guided_regex": "((a{1,500}){1,500}){1,500}"}),
        json!({"guided_regex": "(?=a)b"}),
        json!({"guided_regex": "\\p{L}{1,10000}[^a]{1,10000}"}),
        json!({"guided_regex": "\u{0}\n/\\/"}),
        json!({"guided_json": {"anyOf": wide}}),
        json!({"guided_json": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}}),
        json!({"guided_json": {"type": "array", "minItems": 1_000_000_000}}),
        json!({"guided_json": {"type": "string", "minLength": 1_000_000_000}}),
        json!({"guided_json": {"type": "number", "multipleOf": 1e-300}}),
        json!({"guided_json": {"type": "number", "multipleOf": 0}}),
        json!({"guided_json": {"minimum": 1e308, "type": "integer"}}),
        json!({"guided_json": {"x-guidance": {"whitespace_pattern": "("}, "type": "object"}}),
        json!({"guided_json": {"$id": "http://[", "type": "object"}}),
        json!({"guided_json": {"$schema": "http://nowhere/x", "type": "object"}}),
    ] {
        let mut more = more;
        more["max_tokens"] = json!(4);
        let (status, response) = engine.post(CHAT, &ask(&more)).await;
        let shown: String = more.to_string().chars().take(100).collect();
        let is_fine = status == StatusCode::OK || status == StatusCode::BAD_REQUEST;
        assert!(is_fine, "{shown}: {status} {response}");
    }
    assert_eq!(
        text(&complete(&engine, &json!({"temperature": 0})).await),
        RESPONSE
    );
}
