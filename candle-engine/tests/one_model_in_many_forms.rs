//! The same random weights as a Hugging Face folder and as GGUF files, written like the benchmark writes them: every form is
//! served, and lossless forms give the same completions.

#[path = "../benches/serving/gguf.rs"]
mod gguf;
#[path = "../benches/serving/random_model.rs"]
#[allow(dead_code, reason = "the benchmark uses more of it")]
mod random_model;
mod support;
#[path = "../benches/serving/tokens.rs"]
#[allow(dead_code, reason = "the benchmark uses more of it")]
mod tokens;

use candle_engine::{
    CacheType, EngineOptions, Listen, NumberTypes, ProductType, Quantization, Task,
};
use gguf::Kind;
use hyper::StatusCode;
use random_model::Shape;
use safetensors::Dtype;
use serde_json::{Value, json};
use std::path::Path;
use support::{Engine, MODEL, options};

const SHAPE: Shape = Shape {
    name: "many-forms",
    hidden: 256,
    layers: 2,
    heads: 4,
    key_value_heads: 2,
    intermediate: 512,
    ties_head: false,
};

/// The greedy continuation of a prompt of ids.
async fn continuation(model: &Path, quantization: Option<Quantization>) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let options = EngineOptions {
        quantization,
        ..options(model, Listen::Unix(folder.path().join("socket")))
    };
    let engine = Engine::start_with(options, folder).await;
    let prompt: Vec<u32> = (0..40).map(|index| 1000 + 7 * index).collect();
    let body = json!({"model": MODEL, "prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": true});
    let (status, response) = engine.post("/v1/completions", &body).await;
    assert_eq!(status, StatusCode::OK, "{}: {response}", model.display());
    assert_eq!(response["usage"]["completion_tokens"], 24);
    engine.stop().await.expect("ends");
    response["choices"][0]["text"]
        .as_str()
        .expect("a text")
        .to_owned()
}

/// The vector of a text of ids.
async fn vector(model: &Path) -> Vec<f64> {
    let folder = tempfile::tempdir().expect("a folder");
    let options = EngineOptions {
        task: Some(Task::Embed),
        ..options(model, Listen::Unix(folder.path().join("socket")))
    };
    let engine = Engine::start_with(options, folder).await;
    let input: Vec<u32> = (0..40).map(|index| 1000 + 7 * index).collect();
    let (status, response) = engine
        .post("/v1/embeddings", &json!({"input": input}))
        .await;
    assert_eq!(status, StatusCode::OK, "{}: {response}", model.display());
    engine.stop().await.expect("ends");
    let numbers = response["data"][0]["embedding"]
        .as_array()
        .expect("numbers");
    let numbers = numbers
        .iter()
        .map(|number| number.as_f64().expect("a number"));
    numbers.collect()
}

#[tokio::test]
async fn vectors_of_safetensors_and_gguf_files_agree_in_direction() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let words = tokens::words();
    SHAPE
        .write_folder(&words, &at("bf16"), Dtype::BF16)
        .expect("room for a model");
    let exact = vector(&at("bf16")).await;
    for (name, kind, near) in [
        ("f16.gguf", Kind::F16, 1e-6),
        ("q8_0.gguf", Kind::Q8_0, 1e-2),
    ] {
        gguf::write(&SHAPE, &words, kind, &at(name)).expect("room for a model");
        let found = vector(&at(name)).await;
        // Both vectors have length one.
        let cosine: f64 = found
            .iter()
            .zip(&exact)
            .map(|(one, other)| one * other)
            .sum();
        assert!(1.0 - cosine < near, "{name}: {cosine}");
    }
}

#[tokio::test]
async fn safetensors_and_gguf_files_of_the_same_weights_give_the_same_responses() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let words = tokens::words();
    for (name, dtype) in [("f32", Dtype::F32), ("bf16", Dtype::BF16)] {
        SHAPE
            .write_folder(&words, &at(name), dtype)
            .expect("room for a model");
    }
    for (name, kind) in [
        ("f16.gguf", Kind::F16),
        ("q8_0.gguf", Kind::Q8_0),
        ("q4_k_m.gguf", Kind::Q4KM),
    ] {
        gguf::write(&SHAPE, &words, kind, &at(name)).expect("room for a model");
    }
    let exact = continuation(&at("f32"), None).await;
    assert_eq!(continuation(&at("bf16"), None).await, exact);
    assert_eq!(continuation(&at("f16.gguf"), None).await, exact);
    // Lower precision gives other completions, but is served.
    for coarse in ["q8_0.gguf", "q4_k_m.gguf"] {
        assert!(!continuation(&at(coarse), None).await.is_empty());
    }
    for quantization in [Quantization::Q8_0, Quantization::Q4K] {
        let response = continuation(&at("bf16"), Some(quantization)).await;
        assert!(!response.is_empty(), "{quantization:?}");
    }
}

async fn engine_with(model: &Path, numbers: NumberTypes) -> Engine {
    let folder = tempfile::tempdir().expect("a folder");
    let options = EngineOptions {
        concurrency: 4,
        numbers,
        ..options(model, Listen::Unix(folder.path().join("socket")))
    };
    Engine::start_with(options, folder).await
}

/// The text of a greedy completion, with the logprobs of its tokens.
async fn scored(engine: &Engine, first: u32, tokens: u32) -> (Value, Value) {
    let prompt: Vec<u32> = (0..tokens).map(|index| first + 7 * index).collect();
    let body = json!({"model": MODEL, "prompt": prompt, "max_tokens": 16, "temperature": 0, "ignore_eos": true, "logprobs": 1});
    let (status, response) = engine.post("/v1/completions", &body).await;
    assert_eq!(status, StatusCode::OK, "{response}");
    let choice = &response["choices"][0];
    (
        choice["text"].clone(),
        choice["logprobs"]["token_logprobs"].clone(),
    )
}

#[tokio::test]
async fn rounded_inputs_and_a_two_byte_cache_give_the_same_results_alone_and_in_a_batch() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("bf16");
    SHAPE
        .write_folder(&tokens::words(), &model, Dtype::BF16)
        .expect("room for a model");
    let exact = engine_with(
        &model,
        NumberTypes {
            products: ProductType::F32,
            kv_cache: CacheType::F32,
        },
    )
    .await;
    let cache_bytes = async |engine: &Engine| {
        let (_, memory) = engine.get("/memory").await;
        memory["kv_cache_bytes_max"].as_u64().expect("a number")
    };
    let exact_bytes = cache_bytes(&exact).await;
    let exact_scores = scored(&exact, 1000, 40).await;
    exact.stop().await.expect("ends");

    for kv_cache in [CacheType::F16, CacheType::Bf16] {
        let numbers = NumberTypes {
            products: ProductType::Bf16,
            kv_cache,
        };
        let engine = engine_with(&model, numbers).await;
        assert_eq!(2 * cache_bytes(&engine).await, exact_bytes);
        let prompts = [(1000, 40), (2000, 1), (500, 33), (3000, 7)];
        let mut alone = Vec::new();
        for (first, tokens) in prompts {
            alone.push(scored(&engine, first, tokens).await);
        }
        assert_ne!(
            alone[0].1, exact_scores.1,
            "it is computed with rounded numbers"
        );
        let [a, b, c, d] = prompts.map(|(first, tokens)| scored(&engine, first, tokens));
        let (a, b, c, d) = tokio::join!(a, b, c, d);
        assert_eq!([a, b, c, d].as_slice(), alone.as_slice());
        engine.stop().await.expect("ends");
    }
}
