//! Encoders, cross-encoders, and decoders that embed or rank, over HTTP, compared with the results of `transformers` and
//! `sentence-transformers` on the same files (`vectors/encoders.py`).
//! One file because every test compares one stored result with the engine's.

#[path = "encoders/decoders.rs"]
mod decoders;
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
async fn vectors_are_those_of_transformers_with_every_architecture_and_pooling() {
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
async fn scores_are_those_of_transformers_with_every_cross_encoder() {
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
async fn a_text_has_the_same_vector_alone_and_among_others() {
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
async fn tokens_base64_and_fewer_dimensions_are_the_same_vector() {
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
async fn a_model_for_embeddings_ranks_by_cosine() {
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

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_request_is_said_with_its_field() {
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
async fn long_texts_are_cut_where_the_request_says_so() {
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
async fn a_model_says_what_it_is_for() {
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
async fn an_encoder_tells_its_health_its_limit_and_its_memory() {
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
async fn many_requests_at_once_are_all_answered_right() {
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
