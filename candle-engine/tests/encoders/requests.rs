//! Requests to encoders: refusals, truncation, and what a model reports of itself.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_embeddings_request_is_refused_by_field() {
    let engine = start("bert-mean").await;
    let long = "models ".repeat(200);
    for (fields, word) in [
        (json!({}), "`input` is required"),
        (json!({"input": ""}), "`input` is empty"),
        (json!({"input": []}), "`input` is empty"),
        (json!({"input": ["a", ""]}), "`input[1]` is empty"),
        (json!({"input": [[1], []]}), "`input[1]` is empty"),
        (json!({"input": ["a", 1]}), "input"),
        (json!({"input": [1, -1]}), "token ids"),
        (json!({"input": [1, 100_000]}), "token id 100000"),
        (json!({"input": vec!["a"; 2049]}), "2048"),
        (json!({"input": long}), "takes at most 64"),
        (
            json!({"input": "a", "encoding_format": "hex"}),
            "float or base64",
        ),
        (json!({"input": "a", "dimensions": 33}), "from 1 to 32"),
        (
            json!({"input": "a", "prompt_name": "query"}),
            "no prompt `query`",
        ),
        (
            json!({"input": "a", "truncation_direction": "up"}),
            "right or left",
        ),
        (
            json!({"input": "a", "truncate_prompt_tokens": 65}),
            "truncate_prompt_tokens",
        ),
        (
            json!({"input": "a", "truncate_prompt_tokens": 2}),
            "no room",
        ),
        (json!({"input": "a", "temprature": 1}), "temprature"),
    ] {
        let message = refused(&engine, "/v1/embeddings", fields.clone()).await;
        assert!(message.contains(word), "{fields}: {message}");
    }
    for (fields, word) in [
        (json!({"documents": ["a"]}), "`query` is required"),
        (json!({"query": "a"}), "`documents` is required"),
        (json!({"query": "a", "documents": []}), "0 texts"),
        (json!({"query": "a", "documents": [1]}), "documents[0]"),
        (
            json!({"query": "a", "documents": [""]}),
            "`documents` is empty",
        ),
        (json!({"query": "a", "documents": "a"}), "a list of texts"),
    ] {
        let message = refused(&engine, "/v1/rerank", fields.clone()).await;
        assert!(message.contains(word), "{fields}: {message}");
    }
    let uneven = json!({"text_1": ["a", "b"], "text_2": ["a", "b", "c"]});
    let message = refused(&engine, "/v1/score", uneven).await;
    assert!(message.contains("as many"), "{message}");
    let other = json!({"model": "another", "input": "a"});
    let (status, _) = engine.post("/v1/embeddings", &other).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    engine.stop().await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_texts_are_truncated_if_the_request_allows_it() {
    let engine = start("bert-mean").await;
    let words: Vec<String> = (0..100).map(|index| format!("a{}", index % 7)).collect();
    let long = words.join(" ");
    for (fields, tokens) in [
        (json!({"truncate": true}), 64),
        (json!({"truncate_prompt_tokens": -1}), 64),
        (json!({"truncate_prompt_tokens": 10}), 10),
    ] {
        let mut fields = fields;
        fields["input"] = json!(long);
        let response = embed(&engine, fields).await;
        assert_eq!(response["usage"]["total_tokens"], tokens);
    }
    let from = |direction: &str| json!({"input": long, "truncate_prompt_tokens": 12, "truncation_direction": direction});
    let left = embed(&engine, from("left")).await;
    let right = embed(&engine, from("right")).await;
    assert_ne!(left["data"], right["data"]);
    let pair = json!({"text_1": "a", "text_2": long});
    let message = refused(&engine, "/v1/score", pair).await;
    assert!(message.contains("at most 64"), "{message}");
    engine.stop().await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_the_model_does_not_serve_names_the_models_purpose() {
    let embedder = start("bert-mean").await;
    let chat = json!({"messages": [{"role": "user", "content": "hello"}]});
    let message = refused(&embedder, "/v1/chat/completions", chat.clone()).await;
    assert!(message.contains("it computes embeddings"), "{message}");
    let ranker = start("bert-ranker").await;
    let message = refused(&ranker, "/v1/embeddings", json!({"input": "a"})).await;
    assert!(message.contains("scores pairs"), "{message}");
    let decoder = Engine::start(1).await;
    let message = refused(&decoder, "/v1/embeddings", json!({"input": "a"})).await;
    assert!(message.contains("generates text"), "{message}");
    for engine in [embedder, ranker, decoder] {
        engine.stop().await.expect("it stops");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoder_reports_its_health_limit_and_memory() {
    let engine = start("bert-mean").await;
    let (status, health) = engine.get("/health").await;
    assert_eq!(
        (status, &health["status"]),
        (StatusCode::OK, &json!("ready"))
    );
    let (_, models) = engine.get("/v1/models").await;
    assert_eq!(models["data"][0]["id"], MODEL);
    assert_eq!(models["data"][0]["max_model_len"], LONGEST);
    let (_, memory) = engine.get("/memory").await;
    let file = std::fs::metadata(kept("bert-mean").join("model.safetensors")).expect("a file");
    let weights = memory["weights_bytes"].as_u64().expect("bytes");
    assert!(weights > 0 && weights <= file.len(), "{memory}");
    assert_eq!(memory["kv_cache_bytes_max"], 0);
    let (_, tokens) = engine.post("/tokenize", &json!({"prompt": "a pool"})).await;
    let (_, text) = engine
        .post("/detokenize", &json!({"tokens": tokens["tokens"]}))
        .await;
    assert_eq!(text["prompt"], "[CLS] a pool [SEP]");
    engine.stop().await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_concurrent_embedding_requests_get_correct_vectors() {
    let engine = start_with("bert-mean", |mut options| {
        options.budgets.prefill = Some(100);
        options
    })
    .await;
    let texts: Vec<String> = (0..40)
        .map(|index| format!("text number {index}"))
        .collect();
    let together = embed(&engine, json!({"input": texts})).await;
    let asked = texts
        .iter()
        .map(|text| embed(&engine, json!({"input": text})));
    let alone = futures_util::future::join_all(asked).await;
    for (index, response) in alone.iter().enumerate() {
        let one = numbers(&response["data"][0]["embedding"]);
        let other = numbers(&together["data"][index]["embedding"]);
        assert!(cosine(&one, &other) > 1.0 - 1e-9, "{index}");
    }
    engine.stop().await.expect("it stops");
}
