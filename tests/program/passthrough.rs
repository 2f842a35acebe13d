//! Embeddings and reranking with the real program: requests wait for their model like any other, and pass through unchanged.

use serde_json::{Value, json};
use support::service::Pool;

fn model(name: &str, served: &str) -> (String, String) {
    let program = support::stub::stub_engine().display().to_string();
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  command: [{program:?}, --port, \"{{{{ port }}}}\", --model, {served}]\n  ready_path: /health\n  served_model_name: {served}\npool_config: {{memory_gib: 1}}\n"
    );
    (format!("{name}.yaml"), text)
}

fn ask(pool: &Pool, path: &str, body: &Value) -> (u16, Value) {
    let (status, text) = pool.post(path, &body.to_string());
    (
        status,
        serde_json::from_str(&text).unwrap_or(Value::String(text)),
    )
}

#[test]
fn a_cold_model_is_loaded_for_embeddings_under_the_pools_name() {
    let pool = Pool::with_models(&[model("embedder", "theirs")], "");
    for path in ["/v1/embeddings", "/llm/v1/embeddings"] {
        let body = json!({"model": "embedder", "input": ["one two", "three"], "dimensions": 2});
        let (status, response) = ask(&pool, path, &body);
        assert_eq!(status, 200, "{response}");
        assert_eq!(response["data"][0]["embedding"], json!([7, 2]));
        assert_eq!(response["data"][1]["embedding"], json!([5, 1]));
        assert_eq!(response["model"], "embedder");
    }
    let (_, metrics, _) = pool.request("GET", "/metrics", "", None);
    assert!(
        metrics.contains(r#"model_pool_tokens_total{model="embedder",kind="prompt"} 12"#),
        "{metrics}"
    );
}

#[test]
fn rerank_is_passed_through_and_engine_errors_are_returned() {
    let pool = Pool::with_models(&[model("ranker", "ranker")], "");
    let body = json!({"model": "ranker", "query": "q", "documents": ["a", "bbb"]});
    let (status, response) = ask(&pool, "/v1/rerank", &body);
    assert_eq!(status, 200, "{response}");
    assert_eq!(
        response["results"][1],
        json!({"index": 1, "relevance_score": 3})
    );
    let (status, response) = ask(
        &pool,
        "/v1/rerank",
        &json!({"model": "ranker", "query": "q"}),
    );
    assert_eq!(
        (status, &response["error"]["message"]),
        (400, &json!("no documents, or more than 2048"))
    );
    let (status, response) = ask(
        &pool,
        "/v1/score",
        &json!({"model": "ranker", "text_1": "a", "text_2": "b"}),
    );
    assert_eq!(status, 404, "{response}");
}

#[test]
fn invalid_pass_through_requests_are_refused_and_load_nothing() {
    let pool = Pool::with_models(&[model("embedder", "embedder")], "");
    let (status, response) = ask(&pool, "/v1/embeddings", &json!({"input": "x"}));
    assert_eq!(
        (status, &response["error"]["param"]),
        (400, &json!("model"))
    );
    let (status, response) = ask(
        &pool,
        "/v1/embeddings",
        &json!({"model": "embeder", "input": "x"}),
    );
    assert_eq!(status, 404, "{response}");
    assert!(
        response["error"]["message"]
            .as_str()
            .unwrap()
            .contains("embedder")
    );
    for (body, param) in [
        (json!({"input": []}), "input"),
        (json!({"input": ["a", ""]}), "input"),
        (
            json!({"input": "a", "encoding_format": "hex"}),
            "encoding_format",
        ),
        (json!({"input": "a", "dimensions": -1}), "dimensions"),
    ] {
        let mut body = body;
        body["model"] = json!("embedder");
        let (status, response) = ask(&pool, "/v1/embeddings", &body);
        assert_eq!(
            (status, &response["error"]["param"]),
            (400, &json!(param)),
            "{response}"
        );
    }
    let (status, response) = ask(&pool, "/v1/audio/speech", &json!({"model": "embedder"}));
    assert_eq!(
        (status, &response["error"]["param"]),
        (400, &json!("input"))
    );
    let (status, response) = ask(&pool, "/v1/tokenize", &json!({"model": "embedder"}));
    assert_eq!(
        (status, &response["error"]["param"]),
        (400, &json!("prompt"))
    );
    let (status, response) = ask(
        &pool,
        "/v1/images/generations",
        &json!({"model": "embedder"}),
    );
    assert_eq!(
        (status, &response["error"]["param"]),
        (400, &json!("prompt"))
    );
    assert!(pool.engine_pids().is_empty());
}

#[test]
fn an_engine_that_never_streams_a_token_is_not_considered_dead() {
    let (name, text) = model("embedder", "embedder");
    let text = text.replace(
        "memory_gib: 1",
        "memory_gib: 1, first_token_after: 1s, stall_after: 1s",
    );
    let pool = Pool::with_models(
        &[(name, text)],
        "pool: {heartbeat: 300ms, heartbeat_timeout: 300ms}\n",
    );
    let began = std::time::SystemTime::now();
    let mut asked = 0;
    while began.elapsed().unwrap() < std::time::Duration::from_secs(4) {
        let (status, response) = ask(
            &pool,
            "/v1/embeddings",
            &json!({"model": "embedder", "input": "x"}),
        );
        assert_eq!(status, 200, "after {asked}: {response}");
        asked += 1;
    }
    assert!(!pool.log().contains("unresponsive"), "{}", pool.log());
}

#[test]
fn a_field_the_engine_ignores_is_named_in_a_header() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/models/tiny-chat");
    let text = format!(
        "engine_config: {{model_id: tiny, type: CandleEngine, model_path: {folder:?}, max_total_tokens: 64}}\n"
    );
    let pool = Pool::with_models(&[("tiny.yaml".to_owned(), text)], "");
    for stream in [false, true] {
        let mut body = json!({"model": "tiny", "max_tokens": 4, "stream": stream, "store": true,
            "metadata": {}, "messages": [{"role": "user", "content": "Hello"}]});
        let ask = |body: &Value| {
            let path = "/v1/chat/completions";
            let (status, text, head) = pool.request("POST", path, &body.to_string(), None);
            assert_eq!(status, 200, "{text}");
            head.to_lowercase()
        };
        assert!(
            ask(&body).contains("x-model-pool-ignored: store\r\n"),
            "stream {stream}"
        );
        body["store"] = json!(false);
        assert!(
            !ask(&body).contains("x-model-pool-ignored"),
            "stream {stream}"
        );
    }
}

#[test]
fn vectors_are_returned_as_base64_floats_on_request() {
    let pool = Pool::with_models(&[model("embedder", "theirs")], "");
    let body = json!({"model": "embedder", "input": "one two", "encoding_format": "base64"});
    let (status, response) = ask(&pool, "/v1/embeddings", &body);
    assert_eq!(status, 200, "{response}");
    // 7.0 and 2.0.
    assert_eq!(response["data"][0]["embedding"], "AADgQAAAAEA=");
    assert_eq!(
        (&response["model"], &response["usage"]["prompt_tokens"]),
        (&json!("embedder"), &json!(3))
    );
}

#[test]
fn tokenize_and_detokenize_use_vllms_form() {
    let pool = Pool::with_models(&[model("writer", "theirs")], "");
    let body = json!({"model": "writer", "prompt": "one three"});
    let (status, response) = ask(&pool, "/v1/tokenize", &body);
    assert_eq!(
        (status, response),
        (
            200,
            json!({"tokens": [3, 5], "count": 2, "max_model_len": 4096})
        )
    );
    let (status, response) = ask(
        &pool,
        "/v1/detokenize",
        &json!({"model": "writer", "tokens": [3, 5]}),
    );
    assert_eq!((status, response), (200, json!({"prompt": "xxx xxxxx"})));
    let messages = json!([{"role": "user", "content": "How many are these?"}]);
    let body = json!({"model": "writer", "system": "Count well.", "messages": messages});
    let (status, response) = ask(&pool, "/v1/messages/count_tokens", &body);
    assert_eq!((status, response), (200, json!({"input_tokens": 6})));
}

/// A form with a few bytes of audio.
fn form(pool: &Pool, path: &str, fields: &[(&str, &str)]) -> (u16, String, String) {
    let mut body = "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\nRIFF\r\n".to_owned();
    for (name, value) in fields {
        body +=
            &format!("--x\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n");
    }
    body += "--x--\r\n";
    pool.request_as("multipart/form-data; boundary=x", path, &body)
}

#[test]
fn audio_is_forwarded_under_the_engines_model_name_and_its_transcript_is_returned() {
    let pool = Pool::with_env(
        &[model("hearer", "theirs")],
        "",
        &[("MODEL_POOL__SERVER__BODY_LIMIT", "1KiB")],
    );
    let fields = [
        ("model", "hearer"),
        ("language", "de"),
        ("timestamp_granularities[]", "word"),
    ];
    let (status, text, _) = form(&pool, "/v1/audio/transcriptions", &fields);
    assert_eq!(status, 200, "{text}");
    assert_eq!(
        text,
        r#"{"text":"heard model, language, timestamp_granularities[], file"}"#
    );
    let fields = [("model", "hearer"), ("response_format", "text")];
    let (status, text, head) = form(&pool, "/v1/audio/translations", &fields);
    assert_eq!(
        (status, text.as_str()),
        (200, "heard model, response_format, file")
    );
    assert!(head.contains("content-type: text/plain"), "{head}");
    let long = "x".repeat(2000);
    for (fields, status, words) in [
        (vec![("language", "de")], 400, "no `model`"),
        (
            vec![("model", "hearer"), ("stream", "true")],
            400,
            "`stream`",
        ),
        (vec![("model", "hearer"), ("url", "http://x")], 400, "`url`"),
        (vec![("model", "nobody")], 404, "nobody"),
        (
            vec![("model", "hearer"), ("prompt", long.as_str())],
            413,
            "1024",
        ),
    ] {
        let (got, text, _) = form(&pool, "/v1/audio/transcriptions", &fields);
        assert!(got == status && text.contains(words), "{got} {text}");
    }
}

#[test]
fn speech_is_returned_as_the_engine_sent_it() {
    let pool = Pool::with_models(&[model("speaker", "theirs")], "");
    let body =
        json!({"model": "speaker", "input": "Loaded.", "voice": "calm", "response_format": "wav"});
    let (status, text, head) = pool.request("POST", "/v1/audio/speech", &body.to_string(), None);
    assert_eq!(status, 200, "{text}");
    assert!(head.contains("content-type: audio/wav"), "{head}");
    assert!(
        text.starts_with("RIFF") && text.ends_with("Loaded."),
        "{text}"
    );
}

#[test]
fn a_route_the_engine_does_not_support_is_refused_before_it_is_loaded() {
    let files = [("ranker", "EmbeddingEngine"), ("llama", "LlamaCppEngine")].map(|(name, kind)| {
        let text = format!("engine_config: {{model_id: {name}, type: {kind}, model_path: /nowhere/{name}.gguf}}\npool_config: {{memory_gib: 1}}\n");
        (format!("{name}.yaml"), text)
    });
    let pool = Pool::with_models(&files, "");
    for (path, body, words) in [
        (
            "/v1/audio/speech",
            json!({"model": "llama", "input": "a"}),
            "LlamaCppEngine",
        ),
        ("/v1/score", json!({"model": "llama"}), "VLLMEngine"),
        (
            "/v1/tokenize",
            json!({"model": "ranker", "prompt": "a"}),
            "LlamaCppEngine",
        ),
    ] {
        let (status, response) = ask(&pool, path, &body);
        assert_eq!(status, 501, "{path}: {response}");
        assert!(
            response["error"]["message"]
                .as_str()
                .unwrap()
                .contains(words),
            "{response}"
        );
    }
    let (status, response) = ask(
        &pool,
        "/v1/embeddings",
        &json!({"model": "llama", "input": "a", "dimensions": 3}),
    );
    assert_eq!(
        (status, &response["error"]["param"]),
        (400, &json!("dimensions")),
        "{response}"
    );
}
