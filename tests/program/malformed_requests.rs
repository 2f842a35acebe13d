//! Ten thousand malformed requests from a seed, over kept connections: each is refused with 4xx or its connection is closed, and
//! the service is unaffected.

mod cases;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;

use cases::{Case, Expect};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use support::net::{ask, chat, connect, memory_kib, open_files};
use support::service::{Pool, wait_for};

const REQUESTS: usize = 10_000;
const CLIENTS: usize = 8;
const SEED: u64 = 0x6d6f_6465_6c70_6f6f;
/// Permitted growth of a process, to allow for its allocator.
const GROWTH_KIB_MAX: u64 = 48 << 10;

/// The status of a response, and true if the connection may be reused; `None` if it was closed.
fn read_response(socket: &mut TcpStream) -> Option<(u16, bool)> {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
            let status = support::net::status(&head);
            if status == 100 {
                bytes.drain(..end + 4);
                continue;
            }
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.and_then(|text| text.parse().ok()).unwrap_or(0);
            let is_kept = !head.contains("connection: close") && !head.contains("chunked");
            if bytes.len() >= end + 4 + length || !is_kept {
                return Some((status, is_kept && bytes.len() == end + 4 + length));
            }
        }
        match socket.read(&mut chunk) {
            Ok(0) => return None,
            Ok(count) => bytes.extend_from_slice(&chunk[..count]),
            // With a timeout, a read ends like this after the process was stopped and continued.
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!(
                    "neither an answer nor an end: {}",
                    String::from_utf8_lossy(&bytes)
                )
            }
            Err(_) => return None,
        }
    }
}

/// Sends one case, on the previous connection if it is still open.
fn send(pool: &Pool, kept: &mut Option<TcpStream>, case: &Case) {
    let mut socket = kept.take().unwrap_or_else(|| connect(pool));
    let written = socket.write_all(&case.bytes);
    if case.expect != Expect::Refused {
        let _ = socket.shutdown(Shutdown::Write);
    }
    let shown = || {
        let text = String::from_utf8_lossy(&case.bytes[..case.bytes.len().min(400)]).into_owned();
        format!("{}: {text:?}", case.kind)
    };
    let responded = read_response(&mut socket);
    match (responded, case.expect) {
        (Some((200, _)), Expect::RefusedOrServed) => {}
        (Some((status, is_kept)), _) => {
            assert!((400..500).contains(&status), "{status} to {}", shown());
            if is_kept && case.expect == Expect::Refused {
                *kept = Some(socket);
            }
        }
        (None, Expect::Refused) if written.is_ok() => {
            panic!("closed without a word after {}", shown())
        }
        (None, _) => {}
    }
}

fn storm(pool: &Pool, seed: u64, requests: usize) {
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            scope.spawn(move || {
                let mut chance = Pcg64::seed_from_u64(seed ^ client as u64);
                let mut kept = None;
                for _ in 0..requests / CLIENTS {
                    send(pool, &mut kept, &cases::any(&mut chance));
                }
            });
        }
    });
}

#[test]
fn ten_thousand_malformed_requests_are_refused_and_leave_nothing_behind() {
    let pool = Pool::with_models(&[support::net::stub("talker", &[])], "");
    assert_eq!(
        pool.post("/v1/chat/completions", &chat("talker", false)).0,
        200
    );
    // Warms up the pools of threads, buffers and connections.
    storm(&pool, SEED + 1, REQUESTS / 10);
    let files = open_files(pool.pid());
    let memory = memory_kib(pool.pid());
    storm(&pool, SEED, REQUESTS);
    assert_eq!(ask(&pool, "GET", "/llm/ready", "").0, 200);
    assert_eq!(
        pool.post("/v1/chat/completions", &chat("talker", false)).0,
        200
    );
    wait_for("the connections to be closed", || {
        open_files(pool.pid()) <= files + 2
    });
    let grown = memory_kib(pool.pid()).saturating_sub(memory);
    assert!(grown < GROWTH_KIB_MAX, "{grown} KiB more than before");
    let log = pool.log();
    assert!(!log.contains("panicked"), "{log}");
}
