//! Embeddings and ranks in the whole program: they wait for their model like any request, and go through as
//! they are.

#[path = "support/stub.rs"]
mod stub;
#[path = "support/whole.rs"]
mod whole;

use serde_json::{Value, json};
use whole::Pool;

fn model(name: &str, served: &str) -> (String, String) {
    let program = stub::stub_engine().display().to_string();
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
fn a_cold_model_is_loaded_for_embeddings_and_called_by_the_pools_name() {
    let pool = Pool::with_models(&[model("embedder", "theirs")], "");
    for path in ["/v1/embeddings", "/llm/v1/embeddings"] {
        let body = json!({"model": "embedder", "input": ["one two", "three"], "dimensions": 2});
        let (status, answer) = ask(&pool, path, &body);
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["data"][0]["embedding"], json!([7, 2]));
        assert_eq!(answer["data"][1]["embedding"], json!([5, 1]));
        assert_eq!(answer["model"], "embedder");
    }
    let (_, metrics, _) = pool.request("GET", "/metrics", "", None);
    assert!(
        metrics.contains(r#"model_pool_tokens_total{model="embedder",kind="prompt"} 12"#),
        "{metrics}"
    );
}

#[test]
fn ranks_go_through_and_what_the_engine_does_not_do_it_says_itself() {
    let pool = Pool::with_models(&[model("ranker", "ranker")], "");
    let body = json!({"model": "ranker", "query": "q", "documents": ["a", "bbb"]});
    let (status, answer) = ask(&pool, "/v1/rerank", &body);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(
        answer["results"][1],
        json!({"index": 1, "relevance_score": 3})
    );
    let (status, answer) = ask(
        &pool,
        "/v1/rerank",
        &json!({"model": "ranker", "query": "q"}),
    );
    assert_eq!(
        (status, &answer["error"]["message"]),
        (400, &json!("no documents"))
    );
    let (status, answer) = ask(
        &pool,
        "/v1/score",
        &json!({"model": "ranker", "text_1": "a", "text_2": "b"}),
    );
    assert_eq!(status, 404, "{answer}");
}

#[test]
fn wrong_requests_are_refused_and_load_nothing() {
    let pool = Pool::with_models(&[model("embedder", "embedder")], "");
    let (status, answer) = ask(&pool, "/v1/embeddings", &json!({"input": "x"}));
    assert_eq!((status, &answer["error"]["param"]), (400, &json!("model")));
    let (status, answer) = ask(
        &pool,
        "/v1/embeddings",
        &json!({"model": "embeder", "input": "x"}),
    );
    assert_eq!(status, 404, "{answer}");
    assert!(
        answer["error"]["message"]
            .as_str()
            .unwrap()
            .contains("embedder")
    );
    let (status, _) = ask(&pool, "/v1/audio/speech", &json!({"model": "embedder"}));
    assert_eq!(status, 501);
    assert!(pool.engine_pids().is_empty());
}

#[test]
fn an_engine_that_never_says_a_token_is_not_taken_for_dead() {
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
        let (status, answer) = ask(
            &pool,
            "/v1/embeddings",
            &json!({"model": "embedder", "input": "x"}),
        );
        assert_eq!(status, 200, "after {asked}: {answer}");
        asked += 1;
    }
    assert!(!pool.log().contains("unresponsive"), "{}", pool.log());
}

#[test]
fn a_field_that_the_engine_does_nothing_with_is_named_in_a_header() {
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
