//! A real engine with a demo model on a Unix socket: completions, streams, limits, cancellation.

mod support;

use hyper::StatusCode;
use serde_json::{Value, json};
use support::{CHAT, CONTEXT_TOKENS, Engine, MODEL, RESPONSE, ask, endless, text};

fn joined(chunks: &[Value]) -> String {
    chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect()
}

#[tokio::test]
async fn a_chat_response_has_openais_format() {
    let engine = Engine::start(1).await;
    let (status, response) = engine.post(CHAT, &ask(&json!({"temperature": 0}))).await;
    assert_eq!((status, text(&response)), (StatusCode::OK, RESPONSE));
    assert_eq!(response["object"], "chat.completion");
    assert_eq!(response["model"], MODEL);
    assert!(
        response["id"]
            .as_str()
            .is_some_and(|id| id.starts_with("chatcmpl-"))
    );
    assert!(
        response["created"]
            .as_u64()
            .is_some_and(|seconds| seconds > 1_700_000_000)
    );
    assert_eq!(response["choices"][0]["finish_reason"], "stop");
    assert_eq!(response["choices"][0]["message"]["role"], "assistant");
    let usage = |name: &str| response["usage"][name].as_u64().expect("a count");
    assert_eq!(
        usage("total_tokens"),
        usage("prompt_tokens") + usage("completion_tokens")
    );
    assert!(usage("prompt_tokens") > 5 && usage("completion_tokens") > 5);
    engine.stop().await.expect("a clean end");
}

#[tokio::test]
async fn a_stream_contains_the_complete_response_in_pieces() {
    let engine = Engine::start(2).await;
    for more in [
        json!({"temperature": 0}),
        json!({"temperature": 1.5, "seed": 7, "max_tokens": 60}),
    ] {
        let (_, plain) = engine.post(CHAT, &ask(&more)).await;
        let mut body = ask(&more);
        body["stream"] = json!(true);
        body["stream_options"] = json!({"include_usage": true});
        let chunks = engine.stream(CHAT, &body).await.collect().await;
        assert_eq!(joined(&chunks), text(&plain));
        assert!(
            chunks
                .iter()
                .all(|chunk| chunk["object"] == "chat.completion.chunk"
                    && chunk["id"] == chunks[0]["id"])
        );
        assert_eq!(
            chunks[0]["choices"][0]["delta"],
            json!({"role": "assistant", "content": ""})
        );
        let [.., last, usage] = chunks.as_slice() else {
            panic!("too few chunks")
        };
        assert_eq!(
            last["choices"][0]["finish_reason"],
            plain["choices"][0]["finish_reason"]
        );
        assert_eq!(usage["choices"], json!([]));
        assert_eq!(usage["usage"], plain["usage"]);
        assert!(chunks.len() > 8, "the text comes in pieces");
    }
}

#[tokio::test]
async fn without_include_usage_no_chunk_has_usage() {
    let engine = Engine::start(1).await;
    let chunks = engine
        .stream(CHAT, &ask(&json!({"stream": true, "temperature": 0})))
        .await
        .collect()
        .await;
    assert!(chunks.iter().all(|chunk| {
        chunk.get("usage").is_none()
            && chunk["choices"]
                .as_array()
                .is_some_and(|all| all.len() == 1)
    }));
}

#[tokio::test]
async fn the_same_seed_gives_the_same_response_and_another_seed_another() {
    let engine = Engine::start(2).await;
    let mut responses = Vec::new();
    for seed in [1, 1, 2] {
        let (_, response) = engine
            .post(CHAT, &endless(&json!({"seed": seed, "max_tokens": 40})))
            .await;
        responses.push(text(&response).to_owned());
    }
    assert_eq!(responses[0], responses[1]);
    assert_ne!(responses[0], responses[2]);
}

#[tokio::test]
async fn a_stop_string_ends_the_response_and_is_not_part_of_it() {
    let engine = Engine::start(1).await;
    for stop in [json!(", and the"), json!(["never said", ", and"])] {
        let (_, response) = engine
            .post(CHAT, &ask(&json!({"temperature": 0, "stop": stop})))
            .await;
        assert_eq!(text(&response), "Swagger UI is at /llm/docs");
        assert_eq!(response["choices"][0]["finish_reason"], "stop");
        let met = stop.as_str().unwrap_or(", and");
        assert_eq!(response["choices"][0]["stop_reason"], met);
        let streamed = json!({"temperature": 0, "stop": stop, "stream": true});
        let chunks = engine.stream(CHAT, &ask(&streamed)).await.collect().await;
        let last = &chunks.last().expect("chunks")["choices"][0];
        assert_eq!(last["stop_reason"], met);
    }
    let (_, response) = engine.post(CHAT, &ask(&json!({"temperature": 0}))).await;
    assert_eq!(response["choices"][0]["stop_reason"], Value::Null);
}

#[tokio::test]
async fn batch_metrics_are_exported_to_prometheus() {
    let engine = Engine::start(2).await;
    let body = ask(&json!({"temperature": 0}));
    for _ in 0..2 {
        engine.post(CHAT, &body).await;
    }
    let (status, metrics) = engine.get("/metrics").await;
    assert_eq!(status, StatusCode::OK);
    let metrics = metrics.as_str().expect("text");
    let figure = |name: &str| {
        let mut lines = metrics.lines();
        let line = lines.find_map(|line| line.strip_prefix(&format!("candle_engine_{name} ")));
        line.and_then(|value| value.parse::<u64>().ok())
            .unwrap_or_else(|| panic!("no {name} in {metrics}"))
    };
    assert_eq!(figure("cache_pages"), 2 * CONTEXT_TOKENS as u64 / 16);
    assert!(figure("steps_total") > 2 && figure("known_prompt_tokens_total") > 0);
}

#[tokio::test]
async fn max_tokens_ends_the_response_with_length() {
    let engine = Engine::start(1).await;
    for name in ["max_tokens", "max_completion_tokens"] {
        let (_, response) = engine
            .post(CHAT, &ask(&json!({"temperature": 0, name: 3})))
            .await;
        assert_eq!(response["choices"][0]["finish_reason"], "length");
        assert_eq!(response["usage"]["completion_tokens"], 3);
        assert!(RESPONSE.starts_with(text(&response)) && !text(&response).is_empty());
    }
}

#[tokio::test]
async fn the_response_never_exceeds_the_context() {
    let engine = Engine::start(1).await;
    let (_, response) = engine
        .post(CHAT, &endless(&json!({"max_tokens": 1_000_000})))
        .await;
    assert_eq!(response["choices"][0]["finish_reason"], "length");
    assert_eq!(response["usage"]["total_tokens"], CONTEXT_TOKENS);
    let long = json!({"messages": [{"role": "user", "content": "word ".repeat(CONTEXT_TOKENS)}]});
    let (status, error) = engine.post(CHAT, &long).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(error["error"]["code"], "context_length_exceeded");
    assert!(
        error["error"]["message"]
            .as_str()
            .is_some_and(|message| message.contains("256")),
        "{error}"
    );
}

#[tokio::test]
async fn several_choices_and_prompts_are_served_in_order() {
    let engine = Engine::start(1).await;
    let (_, response) = engine
        .post(
            CHAT,
            &endless(&json!({"n": 3, "seed": 5, "max_tokens": 12})),
        )
        .await;
    let texts: Vec<&str> = response["choices"]
        .as_array()
        .expect("choices")
        .iter()
        .filter_map(|choice| choice["message"]["content"].as_str())
        .collect();
    assert_eq!(texts.len(), 3);
    assert_ne!(texts[0], texts[1]);
    assert_eq!(response["usage"]["completion_tokens"], 36);
    let (_, response) =
        engine.post("/v1/completions", &json!({"prompt": ["Keep-hot is", "A lease is"], "max_tokens": 4, "temperature": 0, "logit_bias": {"0": -100, "2": -100}})).await;
    assert_eq!(response["object"], "text_completion");
    assert_eq!(response["choices"][1]["index"], 1);
    assert_eq!(response["usage"]["completion_tokens"], 8);
}

#[tokio::test]
async fn a_completion_streams_its_text() {
    let engine = Engine::start(1).await;
    let body = json!({"prompt": "Keep-hot is how long", "max_tokens": 6, "temperature": 0});
    let (_, plain) = engine.post("/v1/completions", &body).await;
    let mut streamed = body;
    streamed["stream"] = json!(true);
    let chunks = engine
        .stream("/v1/completions", &streamed)
        .await
        .collect()
        .await;
    let text: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["text"].as_str())
        .collect();
    assert_eq!(plain["choices"][0]["text"], text);
}

#[tokio::test]
async fn content_parts_and_a_developer_message_are_accepted() {
    let engine = Engine::start(1).await;
    let parts =
        json!([{"type": "text", "text": "Where is "}, {"type": "text", "text": "Swagger UI?"}]);
    let messages = json!([{"role": "developer", "content": "You are a helpful assistant."}, {"role": "user", "content": parts}]);
    let (_, response) = engine
        .post(CHAT, &json!({"messages": messages, "temperature": 0}))
        .await;
    assert_eq!(text(&response), RESPONSE);
}

#[tokio::test]
async fn every_unicode_input_is_served() {
    let engine = Engine::start(1).await;
    for content in [
        "😀",
        "日本語",
        "\u{0}",
        "\u{fffd}\u{200d}",
        "<|im_end|>",
        "",
    ] {
        let body = json!({"messages": [{"role": "user", "content": content}], "max_tokens": 8});
        assert_eq!(
            engine.post(CHAT, &body).await.0,
            StatusCode::OK,
            "{content:?}"
        );
    }
}

#[tokio::test]
async fn a_second_request_is_served_while_a_first_one_streams() {
    let engine = Engine::start(2).await;
    let mut first = engine
        .stream(CHAT, &endless(&json!({"stream": true})))
        .await;
    assert!(first.next().await.is_some());
    let (_, second) = engine.post(CHAT, &ask(&json!({"temperature": 0}))).await;
    assert_eq!(text(&second), RESPONSE);
    assert_eq!(engine.get("/health").await.0, StatusCode::OK);
    let chunks = first.collect().await;
    assert_eq!(
        chunks.last().expect("chunks")["choices"][0]["finish_reason"],
        "length"
    );
}

#[tokio::test]
async fn many_concurrent_chats_each_get_their_own_response() {
    let engine = Engine::start(2).await;
    let body = ask(&json!({"temperature": 0}));
    let responses = futures_util::future::join_all((0..12).map(|_| engine.post(CHAT, &body))).await;
    assert!(
        responses
            .iter()
            .all(|(status, response)| *status == StatusCode::OK && text(response) == RESPONSE)
    );
}

#[tokio::test]
async fn clients_that_disconnect_free_the_worker_and_the_memory() {
    let engine = Engine::start(1).await;
    let mut working = engine
        .stream(CHAT, &endless(&json!({"stream": true})))
        .await;
    assert!(working.next().await.is_some());
    let queued = engine
        .stream(CHAT, &endless(&json!({"stream": true, "n": 8})))
        .await;
    drop(queued);
    drop(working);
    let (_, response) = engine.post(CHAT, &ask(&json!({"temperature": 0}))).await;
    assert_eq!(text(&response), RESPONSE);
    while engine.get("/memory").await.1["kv_cache_bytes_used"] != 0 {
        tokio::task::yield_now().await;
    }
}
