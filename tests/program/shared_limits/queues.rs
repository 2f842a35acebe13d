//! The queue of a model.

use std::io::{Read, Write};
use std::net::TcpStream;

use support::net::{chat, connect, engine, head, stats, status, stub};
use support::service::{Pool, wait_for};

use super::{start, user_key};

const QUEUE: usize = 4;

fn open(pool: &Pool, key: &str) -> TcpStream {
    let body = chat("talker", false);
    let more = format!(
        "Authorization: Bearer {key}\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    let mut socket = connect(pool);
    let request = head("POST", "/v1/chat/completions", &more) + &body;
    socket.write_all(request.as_bytes()).unwrap();
    socket
}

fn waiting(pool: &Pool) -> usize {
    let (_, text, _) = pool.request("GET", "/llm/admin/queue", "", Some(&pool.admin_key()));
    text.matches("\"ticket\"").count()
}

#[test]
fn b1_a_full_queue_keeps_a_place_for_another_caller() {
    let (file, text) = stub("talker", &["--tokens", "100000", "--token-ms", "20"]);
    let one_seat = text + "deployment_config: {max_ongoing_requests: 1}\n";
    let config = format!("pool: {{queue_limit: {QUEUE}}}\n");
    let pool = start(&[(file, one_seat)], &config, &[]);
    let (one, other) = (user_key(&pool, "one"), user_key(&pool, "other"));
    let short = chat("talker", false).replacen('{', "{\"max_tokens\":1,", 1);
    let (loaded, text, _) = pool.request("POST", "/v1/chat/completions", &short, Some(&one));
    assert_eq!(loaded, 200, "{text}");
    let mut held = vec![open(&pool, &one)];
    wait_for("the seat to be taken", || {
        stats(&engine(&pool, "talker"))["running"] == 1
    });
    held.extend((0..QUEUE).map(|_| open(&pool, &one)));
    wait_for("a full queue", || waiting(&pool) == QUEUE);
    let mut refused = open(&pool, &one);
    assert_eq!(status(&support::net::rest(&mut refused)), 429);
    let mut others = open(&pool, &other);
    // A request of the caller with the most requests is dropped for it.
    wait_for("a request to be displaced", || {
        held[1..].iter().any(|socket| {
            socket.set_nonblocking(true).unwrap();
            let mut begin = [0; 12];
            let read = (&*socket).read(&mut begin).unwrap_or_default();
            read == begin.len() && begin == *b"HTTP/1.1 429"
        })
    });
    assert_eq!(waiting(&pool), QUEUE);
    // The key served least has the next turn.
    drop(held.remove(0));
    others.set_nonblocking(true).unwrap();
    wait_for("the seat to be given on", || {
        stats(&engine(&pool, "talker"))["running"] == 1 && waiting(&pool) == QUEUE - 1
    });
    let read = others.read(&mut [0; 16]);
    assert!(read.is_err(), "it was not refused");
}
