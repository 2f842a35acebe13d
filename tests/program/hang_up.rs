//! A thousand clients that disconnect at random times: within their head, their body, the queue, or the response. They leave
//! nothing in the engine or the service.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::thread;
use std::time::Duration;

use http_body_util::BodyExt;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use serde_json::Value;
use support::net::{chat, connect, engine, h2, head, memory_kib, open_files, post, runtime, stats};
use support::service::{Pool, wait_for};

const CLIENTS: usize = 1_000;
const AT_ONCE: usize = 50;
const SEED: u64 = 0x6861_6e67_7570;
const GROWTH_KIB_MAX: u64 = 48 << 10;

/// Maximum time that a client stays, in milliseconds.
const STAY_MS_MAX: u64 = 150;

/// Over HTTP/1.1, disconnects after a random part of its request or a random time.
fn leaves(pool: &Pool, chance: &mut Pcg64) {
    let body = chat("talker", chance.random());
    let length = format!("Content-Length: {}\r\n", body.len());
    let text = head("POST", "/v1/chat/completions", &length) + &body;
    let mut socket = connect(pool);
    let part = match chance.random_range(0..5) {
        0 => chance.random_range(0..text.len()),
        _ => text.len(),
    };
    let _ = socket.write_all(&text.as_bytes()[..part]);
    let stay = Duration::from_millis(chance.random_range(0..STAY_MS_MAX));
    if chance.random() {
        let _ = socket.set_read_timeout(Some(stay.max(Duration::from_millis(1))));
        let _ = socket.read(&mut [0; 512]);
    } else {
        thread::park_timeout(stay);
    }
    if chance.random() {
        let _ = socket.shutdown(Shutdown::Both);
    }
}

/// Over HTTP/2, streams that are reset on one connection, which then ends.
fn resets(pool: &Pool, chance: &mut Pcg64, streams: usize) {
    runtime().block_on(async {
        let mut client = h2(pool).await;
        let asks = (0..streams).map(|_| {
            let uri = "http://localhost/v1/chat/completions";
            let sent = client.send_request(post(uri, &chat("talker", chance.random())));
            let stay = Duration::from_millis(chance.random_range(0..STAY_MS_MAX));
            tokio::time::timeout(stay, async move {
                let mut body = sent.await.ok()?.into_body();
                while let Some(Ok(_)) = body.frame().await {}
                Some(())
            })
        });
        let asks: Vec<_> = asks.collect();
        futures_util::future::join_all(asks).await;
    });
}

/// All clients, several of them simultaneously.
fn storm(pool: &Pool, seed: u64, clients: usize) {
    thread::scope(|scope| {
        for number in 0..AT_ONCE {
            scope.spawn(move || {
                let mut chance = Pcg64::seed_from_u64(seed ^ number as u64);
                for _ in 0..clients * 4 / 5 / AT_ONCE {
                    leaves(pool, &mut chance);
                }
            });
        }
        scope.spawn(move || {
            let mut chance = Pcg64::seed_from_u64(!seed);
            for _ in 0..10 {
                resets(pool, &mut chance, clients / 50);
            }
        });
    });
}

#[test]
fn a_thousand_clients_that_hang_up_leave_nothing_behind() {
    // Some clients wait for the load, and each response would take a minute.
    let talk = [
        "--ready-after-ms",
        "300",
        "--tokens",
        "3000",
        "--token-ms",
        "20",
    ];
    let pool = Pool::with_models(&[support::net::stub("talker", &talk)], "");
    let key = pool.admin_key();
    let admin = |path: &str| pool.request("GET", path, "", Some(&key)).1;
    storm(&pool, SEED + 1, CLIENTS / 10);
    // Clients that left the queue may have left no request to load for.
    let stayer = pool.stream("/v1/chat/completions", &chat("talker", true));
    wait_for("the model", || stayer.text().contains("data: "));
    drop(stayer);
    let engine = engine(&pool, "talker");
    let is_quiet = || stats(&engine)["running"] == 0;
    wait_for("the engine to be free", is_quiet);
    let (files, memory) = (open_files(pool.pid()), memory_kib(pool.pid()));
    storm(&pool, SEED, CLIENTS);
    wait_for("the engine to be free", is_quiet);
    let stats = stats(&engine);
    assert!(stats["abandoned"].as_u64() > Some(100), "{stats}");
    wait_for("all seats to be free", || {
        let shown: Value = serde_json::from_str(&admin("/llm/admin/models?model=talker")).unwrap();
        let replicas = shown["models"][0]["replicas"].as_array().unwrap().clone();
        replicas.iter().all(|replica| replica["in_flight"] == 0)
    });
    wait_for("the queue to be empty", || {
        !admin("/llm/admin/queue").contains("\"position\"")
    });
    wait_for("the connections to be closed", || {
        open_files(pool.pid()) <= files + 4
    });
    let grown = memory_kib(pool.pid()).saturating_sub(memory);
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB more than before");
    assert!(!pool.log().contains("panicked"), "{}", pool.log());
}
