//! Clients that read their stream more slowly than its engine writes: the engine is throttled and memory stays bounded, both for
//! streams that pass through and for rewritten streams.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use support::net::{connect, engine, head, memory_kib, stats, stub};
use support::service::{Pool, wait_for};

/// Tokens of 200 bytes each: more than all buffers and the permitted memory growth.
const TOKENS: &str = "2000000";
/// At most 1 MiB of the engine's bytes wait for a client. The translated form in other dialects is longer.
const GROWTH_KIB_MAX: u64 = 8 << 10;
const GROWTH_ANEW_KIB_MAX: u64 = 16 << 10;
/// An engine is throttled if it produces no token during this many polls, 10 ms apart.
const LOOKS: u32 = 20;
/// Bytes that a slow client reads between two polls.
const SIP: usize = 256 << 10;
/// Number of times that the engine is allowed to continue.
const ROUNDS: usize = 1;

/// A client of a stream, and its engine.
struct Reader {
    socket: TcpStream,
    engine: String,
    largest_kib: u64,
    pid: u32,
}

impl Reader {
    fn begin(pool: &Pool, path: &str, body: &Value) -> Reader {
        let body = body.to_string();
        let length = format!("Content-Length: {}\r\n", body.len());
        let mut socket = connect(pool);
        let request = head("POST", path, &length) + &body;
        socket.write_all(request.as_bytes()).unwrap();
        let mut begin = [0; 15];
        socket.read_exact(&mut begin).unwrap();
        assert_eq!(String::from_utf8_lossy(&begin), "HTTP/1.1 200 OK", "{path}");
        Reader {
            socket,
            engine: engine(pool, "flood"),
            largest_kib: 0,
            pid: pool.pid(),
        }
    }

    fn tokens(&mut self) -> u64 {
        self.largest_kib = self.largest_kib.max(memory_kib(self.pid));
        stats(&self.engine)["tokens"].as_u64().unwrap()
    }

    /// Waits without reading until the engine produces no more tokens.
    fn until_held_back(&mut self) {
        let (mut last, mut looks) = (0, 0);
        wait_for("the engine to be held back", || {
            let tokens = self.tokens();
            looks = if tokens == last { looks + 1 } else { 0 };
            last = tokens;
            looks == LOOKS
        });
    }

    /// Reads until the engine produces tokens again.
    fn until_it_goes_on(&mut self) {
        let before = self.tokens();
        let mut sip = vec![0; SIP];
        wait_for("the engine to continue", || {
            self.socket.read_exact(&mut sip).unwrap();
            self.tokens() > before
        });
    }
}

#[test]
fn a_slow_reader_pauses_its_engine_and_its_tokens_do_not_accumulate_in_memory() {
    let pool = Pool::with_models(&[stub("flood", &["--tokens", TOKENS])], "");
    let ask = json!([{"role": "user", "content": "What is a priority?"}]);
    let warm = json!({"model": "flood", "messages": ask, "max_tokens": 1});
    let (status, text) = pool.post("/v1/chat/completions", &warm.to_string());
    assert_eq!(status, 200, "{text}");
    let before = memory_kib(pool.pid());
    for (path, mut body, most) in [
        (
            "/v1/chat/completions",
            json!({"messages": ask}),
            GROWTH_KIB_MAX,
        ),
        (
            "/v1/completions",
            json!({"prompt": "A priority is"}),
            GROWTH_KIB_MAX,
        ),
        (
            "/v1/messages",
            json!({"messages": ask, "max_tokens": 2_000_000}),
            GROWTH_ANEW_KIB_MAX,
        ),
        (
            "/v1/responses",
            json!({"input": "What is a priority?", "store": false}),
            GROWTH_ANEW_KIB_MAX,
        ),
    ] {
        body["model"] = json!("flood");
        body["stream"] = json!(true);
        let mut reader = Reader::begin(&pool, path, &body);
        reader.until_held_back();
        for _ in 0..ROUNDS {
            reader.until_it_goes_on();
            reader.until_held_back();
        }
        let made = reader.tokens();
        let grown = reader.largest_kib.saturating_sub(before);
        assert!(grown < most, "{path}: {grown} KiB for {made} tokens");
        let engine = reader.engine.clone();
        drop(reader);
        wait_for("the engine to be freed", || stats(&engine)["running"] == 0);
    }
}

#[test]
fn a_slow_reader_delays_no_other_client() {
    let pool = Pool::with_models(&[stub("flood", &["--tokens", TOKENS])], "");
    let ask = json!([{"role": "user", "content": "What is a priority?"}]);
    let short = json!({"model": "flood", "messages": ask, "stream": true, "max_tokens": 5});
    let (status, _) = pool.post("/v1/chat/completions", &short.to_string());
    assert_eq!(status, 200);
    let long = json!({"model": "flood", "messages": ask, "stream": true});
    let readers: Vec<Reader> = (0..4)
        .map(|_| Reader::begin(&pool, "/v1/chat/completions", &long))
        .collect();
    for mut reader in readers {
        reader.until_held_back();
        let (status, text) = pool.post("/v1/chat/completions", &short.to_string());
        assert_eq!(status, 200, "{text}");
        assert!(text.contains("[DONE]"), "{text}");
        reader.until_it_goes_on();
    }
}
