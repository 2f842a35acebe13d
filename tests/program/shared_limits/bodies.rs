//! Memory for bodies, and the workers that parse them.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::json;
use support::net::{chat, connect, head, rest, runtime, status, stub};
use support::service::{Pool, wait_for};

use super::{assert_as_fast, median, start, user_key};

const MIB: usize = 1 << 20;
/// Announced by idle connections: more than twice `server.bodies_memory`.
const LARGE: usize = 40;
const SMALL: usize = 600;
/// Another address of the loopback network.
const STRANGER: [u8; 4] = [127, 0, 0, 2];

/// A connection that announces a body and sends one byte of it.
fn announce(mut socket: TcpStream, path: &str, key: Option<&str>, bytes: usize) -> TcpStream {
    let key = key.map(|key| format!("Authorization: Bearer {key}\r\n"));
    let more = format!("Content-Length: {bytes}\r\n{}", key.unwrap_or_default());
    let request = head("POST", path, &more) + "{";
    socket.write_all(request.as_bytes()).unwrap();
    socket
}

/// A connection from another address.
fn from_stranger(pool: &Pool) -> TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((STRANGER, 0).into()).unwrap();
    let address = pool.address().parse().unwrap();
    let socket = runtime().block_on(async { socket.connect(address).await.unwrap().into_std() });
    let socket = socket.unwrap();
    socket.set_nonblocking(false).unwrap();
    socket
}

/// Asserts that users, administrators and logins are served as before while the result of `fill` is held.
fn assert_others_are_served<T>(pool: &Pool, key: &str, fill: impl FnOnce() -> T) {
    let admin = pool.admin_key();
    let small = chat("talker", false);
    let padding = "x".repeat(300 << 10);
    let large = small.replace("What is", &format!("{padding} What is"));
    let login = json!({"key": admin}).to_string();
    let order = json!({"model": "talker"}).to_string();
    let requests = [
        ("a chat", "/v1/chat/completions", &small, Some(key)),
        ("a long chat", "/v1/chat/completions", &large, Some(key)),
        ("a plan", "/llm/admin/plan", &order, Some(admin.as_str())),
        ("a login", "/llm/session", &login, None),
    ];
    let measure = || {
        requests.map(|(what, path, body, key)| {
            let took = median(|| {
                let (status, text, _) = pool.request("POST", path, body, key);
                assert_eq!(status, 200, "{what}: {text}");
            });
            (what, took)
        })
    };
    let before = measure();
    let held = fill();
    let filled = measure();
    drop(held);
    for ((what, before), (_, filled)) in before.into_iter().zip(filled) {
        assert_as_fast(what, before, filled);
    }
}

#[test]
fn b1_one_caller_with_idle_bodies_delays_no_other() {
    let pool = start(&[stub("talker", &[])], "", &[]);
    let (one, other) = (user_key(&pool, "one"), user_key(&pool, "other"));
    let announce_all = |connect: &dyn Fn() -> TcpStream, path: &str, key: Option<&str>| {
        let sizes = [vec![10 * MIB; LARGE], vec![256 << 10; SMALL]].concat();
        let held: Vec<TcpStream> = sizes
            .into_iter()
            .map(|bytes| announce(connect(), path, key, bytes))
            .collect();
        held
    };
    assert_others_are_served(&pool, &other, || {
        announce_all(&|| connect(&pool), "/v1/chat/completions", Some(&one))
    });
    assert_others_are_served(&pool, &other, || {
        announce_all(&|| from_stranger(&pool), "/llm/session", None)
    });
}

#[test]
fn b1_a_caller_that_has_used_its_share_of_body_memory_delays_no_other() {
    let env = [("MODEL_POOL__SERVER__BODIES_MEMORY", "32MiB")];
    let pool = start(&[stub("talker", &[])], "", &env);
    let (one, other) = (user_key(&pool, "one"), user_key(&pool, "other"));
    assert_others_are_served(&pool, &other, || {
        let bytes = 9 * MIB;
        let held: Vec<TcpStream> = (0..6)
            .map(|_| {
                let mut socket = announce(connect(&pool), "/v1/completions", Some(&one), bytes);
                // Everything except the end, as far as the pool reads it.
                socket.set_nonblocking(true).unwrap();
                let piece = vec![b' '; 1 << 20];
                for _ in 0..8 {
                    let _ = socket.write(&piece);
                }
                socket
            })
            .collect();
        held
    });
}

#[test]
fn b1_a_caller_with_many_long_bodies_delays_another_caller_by_one_body() {
    let env = [("MODEL_POOL__SERVER__READING_WORKERS", "1")];
    let pool = start(&[], "", &env);
    let (one, other) = (user_key(&pool, "one"), user_key(&pool, "other"));
    // Long enough that reading takes some time.
    let texts: Vec<String> = (0..8_000)
        .map(|nth| format!("[{nth}, \"{nth}\"]"))
        .collect();
    let long = format!(
        "{{\"model\": \"none\", \"prompt\": [{}]}}",
        texts.join(", ")
    );
    let ended = Mutex::new(Vec::new());
    let send = |key: &str, name: &'static str| {
        let (status, text, _) = pool.request("POST", "/v1/completions", &long, Some(key));
        assert!(matches!(status, 400 | 404), "{status} {text}");
        ended.lock().unwrap().push(name);
    };
    thread::scope(|scope| {
        for _ in 0..40 {
            scope.spawn(|| send(&one, "one"));
        }
        wait_for("bodies that wait for a worker", || {
            let (_, text, _) = pool.request("GET", "/metrics", "", Some(&pool.admin_key()));
            let line = text
                .lines()
                .find(|line| line.starts_with("model_pool_work_pending{kind=\"reading\"}"));
            let pending = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
            pending.unwrap_or_default() > 10.0 || ended.lock().unwrap().len() > 20
        });
        let before = ended.lock().unwrap().len();
        send(&other, "other");
        let ended = ended.lock().unwrap();
        let at = ended.iter().position(|name| *name == "other").unwrap();
        // Bodies being read, and responses in transit.
        assert!(at <= before + 8, "{at} of them, {before} before");
    });
}

#[test]
fn b1_a_slow_body_is_refused_when_other_bodies_of_its_caller_are_waiting() {
    let env = [
        ("MODEL_POOL__SERVER__BODIES_MEMORY", "4MiB"),
        ("MODEL_POOL__SERVER__BODY_LIMIT", "2MiB"),
    ];
    let pool = start(&[stub("talker", &[])], "", &env);
    let one = user_key(&pool, "one");
    let large = 3 * MIB / 2;
    let mut idle = announce(connect(&pool), "/v1/completions", Some(&one), large);
    let has_response = &AtomicBool::new(false);
    let (pool, one) = (&pool, &one);
    thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            let body = format!(r#"{{"model":"talker","prompt":"{}"}}"#, "x".repeat(large));
            while !has_response.load(Ordering::Relaxed) {
                let (status, text, _) = pool.request("POST", "/v1/completions", &body, Some(one));
                assert_eq!(status, 200, "{text}");
            }
        });
        let said = rest(&mut idle);
        has_response.store(true, Ordering::Relaxed);
        assert_eq!(status(&said), 503, "{said}");
        assert!(said.contains("arrived slowly"), "{said}");
        waiting.join().unwrap();
    });
}
