//! The life cycle of a real engine: loading, health, memory, sleep, shutdown, and listening addresses.

mod support;

use candle_engine::{Listen, serve};
use hyper::StatusCode;
use serde_json::{Value, json};
use std::net::SocketAddr;
use support::{
    CHAT, CONTEXT_TOKENS, Engine, MODEL, RESPONSE, ask, demo_model, endless, options, text,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn health_reports_load_progress_and_models_reports_the_name() {
    let engine = Engine::start_loading(1);
    let (status, health) = loop {
        if engine.socket().exists() {
            break engine.get("/health").await;
        }
        tokio::task::yield_now().await;
    };
    if status == StatusCode::SERVICE_UNAVAILABLE {
        assert_eq!(health["status"], "loading");
        assert!(
            health["stage"].is_string() && health["percent"].is_u64(),
            "{health}"
        );
    }
    while engine.get("/health").await.0 != StatusCode::OK {
        tokio::task::yield_now().await;
    }
    assert_eq!(engine.get("/health").await.1, json!({"status": "ready"}));
    let (_, models) = engine.get("/v1/models").await;
    assert_eq!(
        (models["object"].as_str(), models["data"][0]["id"].as_str()),
        (Some("list"), Some(MODEL))
    );
}

#[tokio::test]
async fn memory_is_reported_in_bytes() {
    let engine = Engine::start(2).await;
    let (_, memory) = engine.get("/memory").await;
    let config: Value = serde_json::from_slice(
        &std::fs::read(demo_model("tiny-chat").join("config.json")).expect("a file"),
    )
    .expect("JSON");
    let number = |name: &str| config[name].as_u64().expect("a number");
    let per_token = 2
        * number("num_hidden_layers")
        * number("num_key_value_heads")
        * (number("hidden_size") / number("num_attention_heads"))
        * 4;
    assert_eq!(
        memory["kv_cache_bytes_max"],
        per_token * CONTEXT_TOKENS as u64 * 2
    );
    assert_eq!(memory["kv_cache_bytes_used"], 0);
    let file = std::fs::metadata(demo_model("tiny-chat").join("model.safetensors"))
        .expect("a file")
        .len();
    let weights = memory["weights_bytes"].as_u64().expect("a number");
    assert!(
        weights < file && weights + 100_000 > file,
        "{weights} of {file}"
    );
    if cfg!(target_os = "linux") {
        assert!(
            memory["resident_bytes"]
                .as_u64()
                .is_some_and(|bytes| bytes > weights),
            "{memory}"
        );
    }
}

#[tokio::test]
async fn shutdown_waits_for_the_running_response() {
    let mut engine = Engine::start(1).await;
    let mut stream = engine
        .stream(CHAT, &endless(&json!({"stream": true})))
        .await;
    assert!(stream.next().await.is_some());
    engine.begin_stop();
    let chunks = stream.collect().await;
    assert_eq!(
        chunks.last().expect("chunks")["choices"][0]["finish_reason"],
        "length"
    );
    let socket = engine.socket();
    engine.stop().await.expect("a clean end");
    assert!(!socket.exists(), "the socket file is gone");
}

#[tokio::test]
async fn a_socket_that_a_dead_engine_left_is_replaced() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    drop(tokio::net::UnixListener::bind(&path).expect("a socket"));
    assert!(path.exists());
    let served = serve(
        options(&demo_model("tiny-chat"), Listen::Unix(path)),
        std::future::ready(()),
    )
    .await;
    assert!(served.is_ok(), "{served:?}");
}

#[tokio::test]
async fn an_address_in_use_is_a_clear_error() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let address = taken.local_addr().expect("an address");
    let error = serve(
        options(&demo_model("tiny-chat"), Listen::Tcp(address)),
        std::future::ready(()),
    )
    .await
    .expect_err("the port is taken");
    assert!(
        error
            .to_string()
            .starts_with(&format!("cannot listen on {address}")),
        "{error}"
    );
}

#[tokio::test]
async fn the_engine_also_serves_over_tcp() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address: SocketAddr = free.local_addr().expect("an address");
    drop(free);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let client = async {
        let mut stream = loop {
            match tokio::net::TcpStream::connect(address).await {
                Ok(stream) => break stream,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        stream
            .write_all(b"GET /v1/models HTTP/1.1\r\nhost: engine\r\nconnection: close\r\n\r\n")
            .await
            .expect("a request");
        let mut response = String::new();
        stream
            .read_to_string(&mut response)
            .await
            .expect("a response");
        drop(stop);
        response
    };
    let server = serve(
        options(&demo_model("tiny-chat"), Listen::Tcp(address)),
        async { drop(stopped.await) },
    );
    let (served, response) = tokio::join!(server, client);
    served.expect("a clean end");
    assert!(
        response.starts_with("HTTP/1.1 200") && response.contains(MODEL),
        "{response}"
    );
}

#[tokio::test]
async fn a_sleeping_engine_serves_no_request_and_wakes_to_the_same_responses() {
    let engine = Engine::start(1).await;
    let asleep = async || engine.get("/is_sleeping").await.1["is_sleeping"].clone();
    assert_eq!(asleep().await, false);
    let begun = engine
        .stream(CHAT, &endless(&json!({"stream": true, "max_tokens": 40})))
        .await;
    let nothing = json!({});
    let sleep = engine.post("/sleep", &nothing);
    let (chunks, (slept, _)) = tokio::join!(begun.collect(), sleep);
    assert_eq!(slept, StatusCode::OK, "it sleeps when the stream is over");
    assert_eq!(
        chunks.last().expect("chunks")["choices"][0]["finish_reason"],
        "length"
    );
    assert_eq!(asleep().await, true);
    let (health, body) = engine.get("/health").await;
    assert_eq!(
        (health, &body["status"]),
        (StatusCode::OK, &json!("asleep"))
    );
    let (refused, body) = engine.post(CHAT, &ask(&json!({}))).await;
    assert_eq!(refused, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(body["error"]["code"], "model_asleep");
    assert_eq!(engine.get("/memory").await.1["weights_mapped_bytes"], 0);
    assert_eq!(engine.post("/wake_up", &json!({})).await.0, StatusCode::OK);
    assert_eq!(asleep().await, false);
    let (_, response) = engine.post(CHAT, &ask(&json!({"temperature": 0}))).await;
    assert_eq!(text(&response), RESPONSE);
    engine.stop().await.expect("a clean end");
}
