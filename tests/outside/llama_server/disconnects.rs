//! The real llama-server and requests whose client has disconnected: it ends a stream immediately, but a plain request only while
//! it has no output for any other request. For this reason the pool requests streams from it.

use std::io::Write;
use std::net::TcpStream;

use serde_json::{Value, json};
use support::service::Pool;

use super::{ONLY_MODEL, llama_server, only_model};
use crate::vllm::rig::*;

/// Time between two polls. The engine checks for a disconnected client after a second without output, and a response with its
/// metrics is output.
const BETWEEN_LOOKS: std::time::Duration = std::time::Duration::from_secs(3);
const LOOKS: usize = 10;

pub fn engine(pool: &Pool) -> u32 {
    let pids = pool.engine_pids();
    *pids.first().expect("an engine")
}

/// Number of requests that the engine reports as processing.
pub fn computed(pool: &Pool) -> f64 {
    number_of_process(engine(pool), "llamacpp:requests_processing")
}

/// An endless chat: with `context_shift` the engine drops its beginning.
pub fn endless(stream: bool) -> Value {
    json!({
        "model": "real", "stream": stream, "ignore_eos": true, "temperature": 0,
        "messages": [{"role": "user", "content": "Go on"}],
    })
}

/// A pool whose engine is ready and serves a chat until its client disconnects, and the folder of its weights.
pub fn endless_pool(
    make: impl FnOnce(&[(String, String)]) -> Pool,
) -> Option<(Pool, tempfile::TempDir)> {
    let program = llama_server()?;
    let folder = tempfile::tempdir().expect("a folder");
    let weights = folder.path().join("tiny.gguf");
    support::tiny_gguf::write(&weights, 5);
    let pool = make(&only_model(&program, &weights, "context_shift: true"));
    load(&pool, "real");
    Some((pool, folder))
}

/// A client of the engine that bypasses the pool.
fn ask_the_engine(pool: &Pool, stream: bool) -> TcpStream {
    let body = endless(stream).to_string();
    let mut socket = connect(engine(pool));
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let sent = socket.write_all(format!("{head}{body}").as_bytes());
    sent.expect("sent");
    socket
}

/// Polls occasionally until it computes nothing, and returns the last number.
fn after_a_while(pool: &Pool) -> f64 {
    for _ in 0..LOOKS {
        std::thread::park_timeout(BETWEEN_LOOKS);
        if computed(pool) == 0.0 {
            return 0.0;
        }
    }
    computed(pool)
}

#[test]
fn a_pool_client_that_disconnects_leaves_no_work_running_in_llama_server() {
    let Some((pool, _folder)) = endless_pool(|files| Pool::with_devices(files, ONLY_MODEL)) else {
        return;
    };
    for stream in [true, false] {
        let client = pool.stream(CHAT, &endless(stream).to_string());
        wait_long("the engine to compute it", WITHIN, || {
            computed(&pool) >= 1.0
        });
        if stream {
            wait_long("its first token", WITHIN, || {
                client.text().contains("\"content\":\"")
            });
        }
        drop(client);
        wait_long("the engine to stop", WITHIN, || computed(&pool) == 0.0);
    }
    ask(&pool, CHAT, &short("real"));
}

#[test]
fn llama_server_on_its_own_ends_an_abandoned_request_only_if_it_computes_no_other() {
    let Some((pool, _folder)) = endless_pool(|files| Pool::with_devices(files, ONLY_MODEL)) else {
        return;
    };
    let plain = ask_the_engine(&pool, false);
    wait_long("it to compute", WITHIN, || computed(&pool) >= 1.0);
    drop(plain);
    assert_eq!(after_a_while(&pool), 0.0, "alone, it ends on its own");
    let other = pool.stream(CHAT, &endless(true).to_string());
    let plain = ask_the_engine(&pool, false);
    wait_long("it to compute both", WITHIN, || computed(&pool) >= 2.0);
    drop(plain);
    // As many tokens of the other request as it generates in several seconds. If neither request is computed any more, llama-server
    // now detects disconnected clients, and src/catalog/engines/llama_cpp.rs should set `ends_with_client`.
    let began = std::time::SystemTime::now();
    wait_long("some seconds", WITHIN, || {
        assert!(!other.text().contains("\"error\""), "{}", other.text());
        began.elapsed().unwrap_or_default() > BETWEEN_LOOKS
    });
    assert!(
        computed(&pool) >= 2.0,
        "next to another request, it continues"
    );
    drop(other);
    assert_eq!(after_a_while(&pool), 0.0, "alone again, it ends on its own");
}

/// The engine's own numbers, under the pool's names.
#[test]
fn llama_servers_metrics_are_read_during_and_after_computation() {
    let Some((pool, _folder)) = endless_pool(|files| Pool::with_devices(files, ONLY_MODEL)) else {
        return;
    };
    let shows = |state: &str, count: u32| {
        let (_, text, _) = pool.request("GET", "/metrics", "", Some(&pool.admin_key()));
        let label = format!("state=\"{state}\"}} {count}");
        text.lines().any(|line| {
            line.starts_with("model_pool_engine_requests{model=\"real\",") && line.ends_with(&label)
        })
    };
    let client = pool.stream(CHAT, &endless(true).to_string());
    wait_long("one request to be shown", WITHIN, || shows("running", 1));
    assert!(shows("waiting", 0));
    drop(client);
    wait_long("no request to be shown", WITHIN, || shows("running", 0));
}
