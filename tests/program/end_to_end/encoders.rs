//! Embeddings, ranks and scores by the embedded engine with tiny encoders and the real program.

use std::path::Path;

use serde_json::{Value, json};

use support::service::Pool;

/// An encoder with random weights, as in the engine's tests.
fn encoder(name: &str) -> (String, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("candle-engine/tests/vectors/encoders")
        .join(name);
    assert!(path.is_dir(), "{} is there", path.display());
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CandleEngine\n  model_path: {path:?}\n"
    );
    (format!("{name}.yaml"), text)
}

fn pool() -> Pool {
    let config = "inventory: {provider: host, host_memory: 512MiB}\n";
    Pool::with_devices(&[encoder("bert-mean"), encoder("bert-ranker")], config)
}

fn post(pool: &Pool, path: &str, body: &Value) -> (u16, Value) {
    let (status, text) = pool.post(path, &body.to_string());
    let response = serde_json::from_str(&text);
    (
        status,
        response.unwrap_or_else(|_| panic!("{status} {text}")),
    )
}

fn numbers(value: &Value) -> Vec<f64> {
    let all = value.as_array().expect("a list").iter();
    all.map(|number| number.as_f64().expect("a number"))
        .collect()
}

#[test]
fn texts_are_embedded_and_documents_are_ranked() {
    let pool = pool();
    let body = json!({"model": "bert-mean", "input": ["one text", "another one", "one text"]});
    let (status, response) = post(&pool, "/v1/embeddings", &body);
    assert_eq!(status, 200, "{response}");
    let vectors: Vec<Vec<f64>> = (0..3)
        .map(|nth| numbers(&response["data"][nth]["embedding"]))
        .collect();
    assert_eq!(vectors[0], vectors[2]);
    assert_ne!(vectors[0], vectors[1]);
    assert_eq!(response["model"], "bert-mean");
    assert!(
        response["usage"]["prompt_tokens"].as_u64() > Some(3),
        "{response}"
    );
    let body = json!({"model": "bert-mean", "input": "one text", "dimensions": 4});
    let (status, response) = post(&pool, "/v1/embeddings", &body);
    assert_eq!(
        (status, numbers(&response["data"][0]["embedding"]).len()),
        (200, 4)
    );

    let documents = ["a place", "a time", "a priority"];
    let body =
        json!({"model": "bert-ranker", "query": "when?", "documents": documents, "top_n": 2});
    let (status, response) = post(&pool, "/v1/rerank", &body);
    assert_eq!(status, 200, "{response}");
    let results = response["results"].as_array().expect("results");
    let scores: Vec<f64> = results
        .iter()
        .map(|result| result["relevance_score"].as_f64().expect("a score"))
        .collect();
    assert!(scores.len() == 2 && scores[0] >= scores[1], "{response}");
    let body = json!({"model": "bert-ranker", "text_1": "when?", "text_2": documents});
    let (status, response) = post(&pool, "/v1/score", &body);
    assert_eq!(
        (status, response["data"].as_array().map(Vec::len)),
        (200, Some(3)),
        "{response}"
    );
}

#[test]
fn a_request_that_a_model_does_not_support_is_refused_before_it_is_loaded() {
    let pool = pool();
    let chat = json!({"model": "bert-mean", "messages": [{"role": "user", "content": "Hi"}]});
    let ranks = json!({"model": "bert-mean", "query": "when?", "documents": ["a time"]});
    let vector = json!({"model": "bert-ranker", "input": "a text"});
    for (path, body, word) in [
        ("/v1/chat/completions", &chat, "for embeddings"),
        ("/v1/rerank", &ranks, "a model for ranks"),
        ("/v1/embeddings", &vector, "a model for embeddings"),
    ] {
        let (status, response) = post(&pool, path, body);
        let said = response["error"]["message"].as_str().expect("a message");
        assert!(status == 501 && said.contains(word), "{status} {said}");
    }
    assert_eq!(pool.engine_pids(), Vec::<u32>::new());
}
