//! A client that disconnects stops the engine's work within a tenth of a second in every state, according to the engine's own
//! counters.

use std::time::{Duration, SystemTime};

use http_body_util::BodyExt;

use support::net::{chat, engine, h2, post, runtime, stats, stub};
use support::service::{Pool, wait_for};

const WITHIN: Duration = Duration::from_millis(100);
/// Other tests may delay a measurement, so the best of several tries counts.
const TRIES: usize = 5;

fn start() -> (Pool, String) {
    // An engine that would continue for minutes.
    let talk = stub("talker", &["--tokens", "100000", "--token-ms", "5"]);
    let pool = Pool::with_models(&[talk], "");
    let first = pool.stream("/v1/chat/completions", &chat("talker", true));
    wait_for("the first chunk", || first.text().contains("data: "));
    drop(first);
    let engine = engine(&pool, "talker");
    wait_for("the engine to be free", || stats(&engine)["running"] == 0);
    (pool, engine)
}

/// Time that the engine continues after `leave`.
fn measure(engine: &str, leave: impl FnOnce()) -> Duration {
    wait_for("the engine to work", || stats(engine)["running"] == 1);
    leave();
    let left = SystemTime::now();
    while stats(engine)["running"] != 0 {
        assert!(
            left.elapsed().unwrap_or_default() < Duration::from_secs(20),
            "it works without a client"
        );
        std::thread::park_timeout(Duration::from_millis(2));
    }
    left.elapsed().unwrap_or_default()
}

fn assert_quick(times: &[Duration]) {
    let best = times.iter().min().unwrap();
    assert!(*best <= WITHIN, "{times:?}");
}

#[test]
fn disconnects_over_http_1_stop_the_engine_for_complete_and_streamed_responses() {
    let (pool, engine) = start();
    for stream in [true, false] {
        let times: Vec<Duration> = (0..TRIES)
            .map(|_| {
                let client = pool.stream("/v1/chat/completions", &chat("talker", stream));
                measure(&engine, || drop(client))
            })
            .collect();
        assert_quick(&times);
    }
}

#[test]
fn resets_and_closed_connections_over_http_2_stop_the_engine() {
    let (pool, engine) = start();
    let runtime = runtime();
    let uri = "http://localhost/v1/chat/completions";
    for stream in [true, false] {
        let mut client = runtime.block_on(h2(&pool));
        let times: Vec<Duration> = (0..TRIES)
            .map(|_| {
                let sent = client.send_request(post(uri, &chat("talker", stream)));
                let asked = runtime.spawn(async move {
                    let mut body = sent.await.unwrap().into_body();
                    while let Some(Ok(_)) = body.frame().await {}
                });
                measure(&engine, || asked.abort())
            })
            .collect();
        assert_quick(&times);
        assert!(!client.is_closed(), "the connection continues");
        let own = support::net::runtime();
        let mut client = own.block_on(h2(&pool));
        let sent = client.send_request(post(uri, &chat("talker", stream)));
        own.spawn(async move {
            let mut body = sent.await.unwrap().into_body();
            while let Some(Ok(_)) = body.frame().await {}
        });
        assert_quick(&[measure(&engine, || own.shutdown_background())]);
    }
}

#[test]
fn a_client_that_disconnects_while_waiting_leaves_no_entry_in_the_queue() {
    let slow = stub("slow", &["--ready-after-ms", "60000"]);
    let pool = Pool::with_models(&[slow], "");
    let key = pool.admin_key();
    let waiting = || {
        let (_, text, _) = pool.request("GET", "/llm/admin/queue", "", Some(&key));
        text.matches("\"model\":\"slow\"").count()
    };
    let runtime = runtime();
    for stream in [true, false] {
        let client = pool.stream("/v1/chat/completions", &chat("slow", stream));
        wait_for("it to wait", || waiting() > 0);
        drop(client);
        wait_for("the queue to be empty", || waiting() == 0);
        let mut client = runtime.block_on(h2(&pool));
        let uri = "http://localhost/v1/chat/completions";
        let asked = runtime.spawn(client.send_request(post(uri, &chat("slow", stream))));
        wait_for("it to wait", || waiting() > 0);
        asked.abort();
        drop(client);
        wait_for("the queue to be empty", || waiting() == 0);
    }
}
