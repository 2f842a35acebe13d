//! Stalled readers and the seats of their model.

use std::time::{Duration, SystemTime};

use hyper::client::conn::http2;
use hyper_util::rt::TokioExecutor;
use support::net::{chat, h2_with, post, runtime, stub};
use support::service::Pool;

use super::{start, user_key};

const SEATS: u64 = 2;
/// A stalled reader keeps its stream for ten seconds; `server.write_timeout` is five minutes.
const FREED_WITHIN: Duration = Duration::from_secs(30);

/// Fills the seats with unread streams, and returns the time that another user's request takes.
fn wait_behind_stalled(pool: &Pool, tokens: u64) -> Duration {
    let (one, other) = (user_key(pool, "one"), user_key(pool, "other"));
    let short = chat("flood", false).replacen('{', "{\"max_tokens\":2,", 1);
    let request = || pool.request("POST", "/v1/chat/completions", &short, Some(&other));
    assert_eq!(request().0, 200);
    runtime().block_on(async {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(0);
        let socket = tokio::net::TcpStream::connect(pool.address()).await;
        let client = h2_with(socket.unwrap(), &builder).await;
        let body = chat("flood", true).replacen('{', &format!("{{\"max_tokens\":{tokens},"), 1);
        let mut held = Vec::new();
        for _ in 0..SEATS {
            let mut request = post("http://localhost/v1/chat/completions", &body);
            let bearer = format!("Bearer {one}").parse().unwrap();
            request.headers_mut().insert("authorization", bearer);
            let mut client = client.clone();
            // The head has arrived, so the request has its seat.
            held.push(client.send_request(request).await.unwrap());
        }
        let began = SystemTime::now();
        let (status, text, _) = tokio::task::block_in_place(request);
        assert_eq!(status, 200, "{text}");
        drop(held);
        began.elapsed().unwrap_or_default()
    })
}

fn pool() -> Pool {
    let (file, text) = stub("flood", &["--tokens", "1000000000"]);
    let seats = format!("deployment_config: {{max_ongoing_requests: {SEATS}}}\n");
    start(&[(file, text + &seats)], "", &[])
}

#[test]
fn b1_readers_that_stall_free_their_seats() {
    let pool = pool();
    // The response fits into the buffer: the seats are free as soon as the engine has finished.
    let took = wait_behind_stalled(&pool, 5_000);
    assert!(took < Duration::from_secs(8), "{took:?}");
    // This stream does not end.
    let took = wait_behind_stalled(&pool, 1_000_000_000);
    assert!(took < FREED_WITHIN, "{took:?}");
}
