//! Embedding and reranking models on the real engine, compared with the embedded engine's results for the same files.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::rig::*;

/// A fixture encoder with one head instead of four: vLLM does not support heads of eight numbers on the CPU. It is another model
/// with the same weights.
fn with_one_head(kept: &str, into: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = into.join(kept);
    copy_kept(
        &root.join("candle-engine/tests/vectors/encoders").join(kept),
        &folder,
    );
    let path = folder.join("config.json");
    let text = std::fs::read_to_string(&path).expect("config.json");
    let mut config: Value = serde_json::from_str(&text).expect("JSON");
    config["num_attention_heads"] = json!(1);
    std::fs::write(&path, config.to_string()).expect("written");
    folder
}

fn copy_kept(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("it is kept").flatten() {
        let into = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_kept(&entry.path(), &into);
        } else {
            std::fs::copy(entry.path(), into).expect("copied");
        }
    }
}

fn numbers(value: &Value) -> Vec<f64> {
    let numbers = value.as_array().into_iter().flatten();
    numbers.filter_map(Value::as_f64).collect()
}

fn assert_close(what: &str, one: &[f64], other: &[f64]) {
    assert!(!one.is_empty(), "{what}");
    assert_eq!(one.len(), other.len(), "{what}");
    let farthest = one.iter().zip(other).map(|(a, b)| (a - b).abs());
    let farthest = farthest.fold(0.0, f64::max);
    assert!(farthest < 2e-3, "{what}: {one:?} and {other:?}");
}

#[test]
fn vllm_embeddings_match_those_of_the_embedded_engine() {
    let Some(environment) = environment() else {
        return;
    };
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let kept = with_one_head("bert-mean", folder.path());
    let model = RealModel {
        context: 64,
        kwargs: "runner: pooling",
        ..RealModel::new(&environment, "real", &kept)
    };
    let pool = pool(&[
        model.file(),
        embedded("embedded", &kept, 64, "memory_gib: 0.06"),
    ]);
    load(&pool, "real");
    let vectors = |model: &str, input: Value| {
        let response = ask(
            &pool,
            "/v1/embeddings",
            &json!({"model": model, "input": input}),
        );
        let data = response["data"].as_array().cloned().unwrap_or_default();
        let tokens = response["usage"]["prompt_tokens"].as_u64();
        assert!(tokens > Some(0), "{response}");
        data.iter()
            .map(|item| numbers(&item["embedding"]))
            .collect::<Vec<_>>()
    };
    for input in [json!("a model"), json!(["a model", "pool of models"])] {
        let (one, other) = (
            vectors("real", input.clone()),
            vectors("embedded", input.clone()),
        );
        assert_eq!(one.len(), other.len(), "{input}");
        for (one, other) in one.iter().zip(&other) {
            assert_close(&input.to_string(), one, other);
        }
    }
    // Unsupported requests get the engine's own clear refusal.
    let (status, text) = pool.post(CHAT, &short("real").to_string());
    assert!((400..500).contains(&status), "{status} {text}");
}

#[test]
fn vllm_ranks_and_scores_match_those_of_the_embedded_engine() {
    let Some(environment) = environment() else {
        return;
    };
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let kept = with_one_head("bert-ranker", folder.path());
    let model = RealModel {
        context: 64,
        kwargs: "runner: pooling",
        ..RealModel::new(&environment, "real", &kept)
    };
    let pool = pool(&[
        model.file(),
        embedded("embedded", &kept, 64, "memory_gib: 0.06"),
    ]);
    load(&pool, "real");
    let documents = ["the pool", "a model", "of memory"];
    let ranks = |model: &str| {
        let body = json!({"model": model, "query": "models", "documents": documents});
        let response = ask(&pool, "/v1/rerank", &body);
        let results = response["results"].as_array().cloned().unwrap_or_default();
        let mut scores = vec![f64::NAN; documents.len()];
        for one in &results {
            let index = one["index"].as_u64().expect("an index") as usize;
            scores[index] = one["relevance_score"].as_f64().expect("a score");
        }
        scores
    };
    assert_close("ranks", &ranks("real"), &ranks("embedded"));
    let scores = |model: &str| {
        let body = json!({"model": model, "text_1": "models", "text_2": documents});
        let response = ask(&pool, "/v1/score", &body);
        let data = response["data"].as_array().cloned().unwrap_or_default();
        data.iter()
            .filter_map(|item| item["score"].as_f64())
            .collect::<Vec<_>>()
    };
    assert_close("scores", &scores("real"), &scores("embedded"));
}
