//! Decoders that embed or rank: request fields, and independence of texts in the same batch.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_decoder_computes_bit_identical_vectors_alone_and_in_a_batch() {
    let engine = start("qwen3-embedding").await;
    let texts: Vec<String> = (0..150)
        .map(|index| format!("{} text number {index}", "and one more ".repeat(index % 9)))
        .collect();
    let together = embed(&engine, json!({"input": texts}));
    let asked = texts
        .iter()
        .map(|text| embed(&engine, json!({"input": text})));
    let (together, beside) =
        futures_util::future::join(together, futures_util::future::join_all(asked)).await;
    for (index, text) in texts.iter().enumerate() {
        let alone = embed(&engine, json!({"input": text})).await;
        assert_eq!(
            alone["data"][0]["embedding"],
            beside[index]["data"][0]["embedding"]
        );
        assert_eq!(
            alone["data"][0]["embedding"],
            together["data"][index]["embedding"]
        );
    }
    engine.stop().await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedding_decoder_accepts_the_requests_of_an_encoder() {
    let engine = start("qwen3-embedding").await;
    let text = "What is the capital of Japan?";
    let whole = embed(&engine, json!({"input": text})).await;
    let whole = numbers(&whole["data"][0]["embedding"]);
    let (_, tokens) = engine.post("/tokenize", &json!({"prompt": text})).await;
    let ids = tokens["tokens"].as_array().expect("tokens");
    assert_eq!(ids.last(), Some(&json!(0)), "the tokenizer ends texts");
    let response = embed(&engine, json!({"input": ids})).await;
    assert_eq!(response["usage"]["prompt_tokens"], ids.len());
    assert_eq!(numbers(&response["data"][0]["embedding"]), whole);
    let short = embed(&engine, json!({"input": text, "dimensions": 8})).await;
    let short = numbers(&short["data"][0]["embedding"]);
    assert!(short.len() == 8 && cosine(&short, &whole[..8]) > 1.0 - 1e-9);
    assert!((short.iter().map(|number| number * number).sum::<f64>() - 1.0).abs() < 1e-6);
    let letters = embed(&engine, json!({"input": text, "encoding_format": "base64"})).await;
    assert!(letters["data"][0]["embedding"].is_string());
    let raw = embed(&engine, json!({"input": text, "normalize": false})).await;
    let raw = numbers(&raw["data"][0]["embedding"]);
    assert!(cosine(&raw, &whole) > 1.0 - 1e-9);
    assert!((raw.iter().map(|number| number * number).sum::<f64>() - 1.0).abs() > 0.1);
    let long = "models ".repeat(2000);
    let message = refused(&engine, "/v1/embeddings", json!({"input": long})).await;
    assert!(message.contains("takes at most 512"), "{message}");
    let cut = embed(&engine, json!({"input": long, "truncate": true})).await;
    assert_eq!(cut["usage"]["prompt_tokens"], 512);
    let pair = json!({"query": text, "documents": ["Tokyo.", "a pool"], "instruction": "x"});
    let message = refused(&engine, "/v1/rerank", pair).await;
    assert!(message.contains("no prompt"), "{message}");
    let (_, memory) = engine.get("/memory").await;
    assert!(memory["kv_cache_bytes_max"].as_u64() > Some(0), "{memory}");
    let (_, models) = engine.get("/v1/models").await;
    assert_eq!(models["data"][0]["max_model_len"], 512);
    let chat = json!({"messages": [{"role": "user", "content": "hello"}]});
    let message = refused(&engine, "/v1/chat/completions", chat).await;
    assert!(message.contains("it computes embeddings"), "{message}");
    let (status, _) = engine.post("/sleep", &json!({})).await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = engine.post("/wake_up", &json!({})).await;
    assert_eq!(status, StatusCode::OK);
    let again = embed(&engine, json!({"input": text})).await;
    assert_eq!(numbers(&again["data"][0]["embedding"]), whole);
    engine.stop().await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ranking_decoder_formats_pairs_with_its_prompt() {
    let engine = start("qwen3-reranker").await;
    let query = "What is the capital of Japan?";
    let documents = [
        "Tokyo is the capital of Japan.",
        "The pool keeps many models on a few devices.",
    ];
    let asked = json!({"query": query, "documents": documents});
    let (status, ranks) = engine.post("/v1/rerank", &asked).await;
    assert_eq!(status, StatusCode::OK, "{ranks}");
    let scores = expected("qwen3-reranker");
    for result in ranks["results"].as_array().expect("results") {
        let index = result["index"].as_u64().expect("an index") as usize;
        let theirs = &scores["scores"][index]["score"];
        let ours = result["relevance_score"].as_f64().expect("a score");
        assert!((ours - theirs.as_f64().expect("a score")).abs() < 1e-5);
    }
    // The format on the model card for servers that join a pair unchanged.
    let worded = format!(
        "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages that answer the query\n<Query>: {query}\n"
    );
    let document = format!(
        "<Document>: {}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
        documents[0]
    );
    let pair = json!({"text_1": worded, "text_2": document});
    let (_, score) = engine.post("/v1/score", &pair).await;
    let ours = score["data"][0]["score"].as_f64().expect("a score");
    let theirs = scores["scores"][0]["score"].as_f64().expect("a score");
    assert!((ours - theirs).abs() < 1e-5);

    let long = "pool ".repeat(3000);
    let pair = |more: Value| {
        let mut pair = json!({"text_1": query, "text_2": long});
        for (name, value) in more.as_object().expect("an object") {
            pair[name] = value.clone();
        }
        pair
    };
    let message = refused(&engine, "/v1/score", pair(json!({}))).await;
    assert!(message.contains("in the model's prompt"), "{message}");
    let left = json!({"truncate": true, "truncation_direction": "left"});
    let message = refused(&engine, "/v1/score", pair(left)).await;
    assert!(message.contains("begins with the query"), "{message}");
    let little = pair(json!({"truncate_prompt_tokens": 20}));
    let message = refused(&engine, "/v1/score", little).await;
    assert!(message.contains("no room"), "{message}");
    let (status, cut) = engine
        .post("/v1/score", &pair(json!({"truncate": true})))
        .await;
    assert_eq!(status, StatusCode::OK, "{cut}");
    assert_eq!(cut["usage"]["prompt_tokens"], 512);
    let message = refused(&engine, "/v1/embeddings", json!({"input": "a"})).await;
    assert!(message.contains("scores pairs"), "{message}");
    let empty = json!({"query": query, "documents": [""]});
    let message = refused(&engine, "/v1/rerank", empty).await;
    assert!(message.contains("is empty"), "{message}");
    engine.stop().await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_original_qwen3_reranker_generates_text_unless_configured_to_rank() {
    let engine = start_with("qwen3-reranker", |options| EngineOptions {
        task: None,
        ..options
    })
    .await;
    let pair = json!({"text_1": "a", "text_2": "b"});
    let message = refused(&engine, "/v1/score", pair).await;
    assert!(message.contains("the task embed or rerank"), "{message}");
    let (status, response) = engine
        .post("/v1/completions", &json!({"prompt": "a", "max_tokens": 2}))
        .await;
    assert_eq!(status, StatusCode::OK, "{response}");
    engine.stop().await.expect("it stops");
}
