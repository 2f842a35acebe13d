//! Encoders, cross-encoders, and decoders that embed or rank, over HTTP, compared with the results of `transformers` and
//! `sentence-transformers` on the same files (`vectors/encoders.py`).

#[path = "encoders/decoders.rs"]
mod decoders;
#[path = "encoders/requests.rs"]
mod requests;
mod support;

use candle_engine::{EngineOptions, Listen};
use hyper::StatusCode;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use support::{Engine, MODEL, options};

/// Number of positions of the test encoders.
const LONGEST: usize = 64;

fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/vectors/encoders")
        .join(name)
}

fn expected(name: &str) -> Value {
    let text = std::fs::read_to_string(kept(name).join("expected.json")).expect("it is kept");
    serde_json::from_str(&text).expect("it is JSON")
}

/// The names of all test models with this expectation.
fn models_with(field: &str) -> Vec<String> {
    let folders = std::fs::read_dir(kept("")).expect("models are kept");
    let names = folders.map(|folder| folder.expect("a folder").file_name());
    let mut names: Vec<String> = names
        .map(|name| name.into_string().expect("plain"))
        .collect();
    names.retain(|name| !expected(name)[field].is_null());
    names.sort();
    assert!(names.len() > 5, "{names:?}");
    names
}

async fn start(name: &str) -> Engine {
    start_with(name, |options| options).await
}

async fn start_with(name: &str, change: fn(EngineOptions) -> EngineOptions) -> Engine {
    let folder = tempfile::tempdir().expect("a folder");
    let listen = Listen::Unix(folder.path().join("socket"));
    let expected = expected(name);
    let task = expected["task"].as_str();
    let options = EngineOptions {
        context_tokens: expected["longest"]
            .as_u64()
            .map_or(LONGEST, |tokens| tokens as usize),
        task: task.map(|task| task.parse().expect("a task")),
        ..options(&kept(name), listen)
    };
    Engine::start_with(change(options), folder).await
}

fn numbers(value: &Value) -> Vec<f64> {
    let list = value.as_array().expect("a list of numbers");
    list.iter()
        .map(|number| number.as_f64().expect("a number"))
        .collect()
}

fn cosine(one: &[f64], other: &[f64]) -> f64 {
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    product(one, other) / (product(one, one) * product(other, other)).sqrt()
}

/// Asserts that two vectors agree in direction and length.
fn assert_same(name: &str, text: &Value, ours: &Value, theirs: &Value) {
    let (ours, theirs) = (numbers(ours), numbers(theirs));
    assert_eq!(ours.len(), theirs.len(), "{name}: {text}");
    let away = 1.0 - cosine(&ours, &theirs);
    assert!(away < 1e-6, "{name}: {text}: cosine is {away:e} from one");
    let largest = theirs
        .iter()
        .fold(0.0f64, |most, number| most.max(number.abs()));
    for (ours, theirs) in ours.iter().zip(&theirs) {
        let difference = (ours - theirs).abs();
        assert!(
            difference < 1e-4 * largest,
            "{name}: {text}: {ours} {theirs}"
        );
    }
}

async fn embed(engine: &Engine, fields: Value) -> Value {
    let (status, response) = engine.post("/v1/embeddings", &fields).await;
    assert_eq!(status, StatusCode::OK, "{fields}: {response}");
    response
}

async fn refused(engine: &Engine, path: &str, fields: Value) -> String {
    let (status, response) = engine.post(path, &fields).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{fields}: {response}");
    let message = response["error"]["message"].as_str();
    message.expect("a message").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn vectors_equal_those_of_transformers_for_every_architecture_and_pooling() {
    for name in models_with("vectors") {
        let engine = start(&name).await;
        let expected = expected(&name);
        let cases = expected["vectors"].as_array().expect("cases");
        let texts: Vec<&Value> = cases.iter().map(|case| &case["text"]).collect();
        // Texts longer than the model's positions are truncated like in the reference.
        let response = embed(&engine, json!({"input": texts, "truncate": true})).await;
        let mut tokens = 0;
        for (index, case) in cases.iter().enumerate() {
            let ours = &response["data"][index];
            assert_eq!(ours["index"], index);
            assert_same(&name, &case["text"], &ours["embedding"], &case["vector"]);
            tokens += case["tokens"].as_array().expect("tokens").len();
        }
        assert_eq!(response["usage"]["prompt_tokens"], tokens, "{name}");
        assert_eq!(response["model"], MODEL);
        for case in expected["prompted"].as_array().into_iter().flatten() {
            let fields = json!({"input": case["text"], "prompt_name": case["prompt"]});
            let response = embed(&engine, fields).await;
            assert_same(
                &name,
                case,
                &response["data"][0]["embedding"],
                &case["vector"],
            );
        }
        engine.stop().await.expect("it stops");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn scores_equal_those_of_transformers_for_every_cross_encoder() {
    for name in models_with("scores") {
        let engine = start(&name).await;
        let expected = expected(&name);
        for case in expected["scores"].as_array().expect("cases") {
            let mut pair = json!({"text_1": case["query"], "text_2": case["document"], "truncate": true, "instruction": case["instruction"]});
            let (status, response) = engine.post("/v1/score", &pair).await;
            assert_eq!(status, StatusCode::OK, "{response}");
            let tokens = case["tokens"].as_array().expect("tokens").len();
            assert_eq!(response["usage"]["prompt_tokens"], tokens, "{name}: {case}");
            pair["raw_scores"] = json!(true);
            let (_, raw) = engine.post("/score", &pair).await;
            for (ours, theirs) in [(&response, "score"), (&raw, "logit")] {
                let ours = ours["data"][0]["score"].as_f64().expect("a score");
                let theirs = case[theirs].as_f64().expect("a score");
                // A decoder's token logits are larger than one, and therefore have fewer digits after the decimal point.
                let near = if expected["longest"].is_null() {
                    1e-5
                } else {
                    1e-5 * theirs.abs().max(1.0)
                };
                assert!((ours - theirs).abs() < near, "{name}: {case}: {ours}");
            }
        }
        engine.stop().await.expect("it stops");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_has_the_same_vector_alone_and_in_a_batch() {
    for name in [
        "bert-mean",
        "mpnet",
        "modernbert",
        "nomic-bert",
        "qwen3-embedding",
        "llama-embedding",
    ] {
        let engine = start(name).await;
        let expected = expected(name);
        let cases = expected["vectors"].as_array().expect("cases");
        let texts: Vec<&Value> = cases.iter().map(|case| &case["text"]).collect();
        let together = embed(&engine, json!({"input": texts, "truncate": true})).await;
        for (index, text) in texts.iter().enumerate() {
            let alone = embed(&engine, json!({"input": text, "truncate": true})).await;
            let alone = numbers(&alone["data"][0]["embedding"]);
            let among = numbers(&together["data"][index]["embedding"]);
            for (alone, among) in alone.iter().zip(&among) {
                assert!((alone - among).abs() < 1e-5, "{name}: {text}");
            }
        }
        engine.stop().await.expect("it stops");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn token_input_base64_output_and_truncated_dimensions_agree_on_the_embedding() {
    let engine = start("bert-mean").await;
    let text = "What is the capital of Japan?";
    let whole = embed(&engine, json!({"input": text, "user": "somebody"})).await;
    let whole = numbers(&whole["data"][0]["embedding"]);
    let (_, tokens) = engine.post("/tokenize", &json!({"prompt": text})).await;
    let ids = &tokens["tokens"];
    for input in [json!(ids), json!([ids, ids])] {
        let response = embed(&engine, json!({"input": input})).await;
        let vector = numbers(&response["data"][0]["embedding"]);
        assert!(cosine(&vector, &whole) > 1.0 - 1e-9);
    }
    let fields = json!({"input": text, "encoding_format": "base64"});
    let response = embed(&engine, fields).await;
    let letters = response["data"][0]["embedding"].as_str().expect("letters");
    assert_eq!(letters.len(), (4 * whole.len()).div_ceil(3) * 4);
    let response = embed(&engine, json!({"input": text, "dimensions": 8})).await;
    let short = numbers(&response["data"][0]["embedding"]);
    assert_eq!(short.len(), 8);
    assert!(cosine(&short, &whole[..8]) > 1.0 - 1e-9);
    let length = short.iter().map(|number| number * number).sum::<f64>();
    assert!((length - 1.0).abs() < 1e-6, "{length}");
    let response = embed(&engine, json!({"input": text, "normalize": false})).await;
    let raw = numbers(&response["data"][0]["embedding"]);
    assert!(cosine(&raw, &whole) > 1.0 - 1e-9);
    assert!((raw.iter().map(|number| number * number).sum::<f64>() - 1.0).abs() > 0.1);
    engine.stop().await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rerank_has_the_best_document_first_in_each_dialect() {
    let engine = start("xlm-roberta-ranker").await;
    let query = "What is the capital of Japan?";
    let documents = [
        "Tokyo.",
        "The pool keeps many models.",
        "東京は日本の首都です。",
    ];
    let asked = json!({"model": MODEL, "query": query, "documents": [documents[0], {"text": documents[1]}, documents[2]], "return_documents": true});
    let (status, response) = engine.post("/v1/rerank", &asked).await;
    assert_eq!(status, StatusCode::OK, "{response}");
    let results = response["results"].as_array().expect("results");
    assert_eq!(results.len(), 3);
    let scores: Vec<f64> = results
        .iter()
        .map(|result| result["relevance_score"].as_f64().expect("a score"))
        .collect();
    assert!(scores.is_sorted_by(|one, next| one >= next), "{scores:?}");
    for result in results {
        let index = result["index"].as_u64().expect("an index") as usize;
        assert_eq!(result["document"]["text"], documents[index]);
        let pair = json!({"text_1": query, "text_2": documents[index]});
        let (_, score) = engine.post("/v1/score", &pair).await;
        let (one, other) = (&score["data"][0]["score"], &result["relevance_score"]);
        assert!((one.as_f64().expect("a score") - other.as_f64().expect("a score")).abs() < 1e-6);
    }
    let fewer = json!({"query": query, "documents": documents, "top_n": 1});
    let (_, best) = engine.post("/v2/rerank", &fewer).await;
    assert_eq!(best["results"].as_array().map(Vec::len), Some(1));
    assert_eq!(best["results"][0]["index"], results[0]["index"]);
    assert!(best["results"][0].get("document").is_none());
    let tei = json!({"query": query, "texts": documents, "raw_scores": true, "return_text": true, "truncate": true});
    let (_, ranks) = engine.post("/rerank", &tei).await;
    assert_eq!(ranks[0]["index"], results[0]["index"]);
    let index = ranks[0]["index"].as_u64().expect("an index") as usize;
    assert_eq!(ranks[0]["text"], documents[index]);
    let logit = ranks[0]["score"].as_f64().expect("a score");
    assert!((1.0 / (1.0 + (-logit).exp()) - scores[0]).abs() < 1e-6);
    engine.stop().await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedding_model_ranks_by_cosine_similarity() {
    let engine = start("distilbert").await;
    let texts = ["a pool", "a pool", "Größe und Maß"];
    let response = embed(&engine, json!({"input": texts})).await;
    let vector = |index: usize| numbers(&response["data"][index]["embedding"]);
    let pair = json!({"queries": texts[0], "documents": [texts[1], texts[2]]});
    let (status, scores) = engine.post("/v1/score", &pair).await;
    assert_eq!(status, StatusCode::OK, "{scores}");
    for index in 0..2 {
        let score = scores["data"][index]["score"].as_f64().expect("a score");
        assert!((score - cosine(&vector(0), &vector(index + 1))).abs() < 1e-5);
    }
    engine.stop().await.expect("it stops");
}
