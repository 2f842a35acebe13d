//! `serve --takeover`: another process replaces the serving one, while clients arrive every few milliseconds. No connection is
//! refused, no stream is cut, no engine is started.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use support::family::{Family, asks, chat, shown, stub, told};
use support::manager::Manager;
use support::service::{Pool, wait_for};

/// Sends a request on a separate connection. Fails with a description of the problem.
fn request(address: &str, path: &str, body: &str) -> Result<(), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut socket = TcpStream::connect(address).map_err(text)?;
    let patience = Some(Duration::from_secs(20));
    socket.set_read_timeout(patience).map_err(text)?;
    let method = if body.is_empty() { "GET" } else { "POST" };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(head.as_bytes()).map_err(text)?;
    let mut response = String::new();
    socket.read_to_string(&mut response).map_err(text)?;
    if response.starts_with("HTTP/1.1 200") {
        Ok(())
    } else {
        Err(response.lines().next().unwrap_or("no response").to_owned())
    }
}

/// Sends requests until stopped. Counts requests and failures, and measures the longest response.
fn visitor(address: &str, path: &str, body: &str, stop: &AtomicBool) -> VisitReport {
    let mut visits = VisitReport::default();
    while !stop.load(Ordering::Relaxed) {
        let began = SystemTime::now();
        visits.failures.extend(request(address, path, body).err());
        visits.count += 1;
        visits.longest = visits.longest.max(began.elapsed().unwrap());
        thread::park_timeout(Duration::from_millis(3));
    }
    visits
}

#[derive(Default)]
struct VisitReport {
    count: usize,
    failures: Vec<String>,
    longest: Duration,
}

fn ends(mut process: Child) {
    wait_for("the old process to end", || {
        process.try_wait().unwrap().is_some()
    });
}

#[test]
fn a_takeover_refuses_no_connection_cuts_no_stream_and_restarts_no_engine() {
    let talk = ["--tokens", "150", "--token-ms", "20"];
    let models = [stub("hot", &[]), stub("talker", &talk)];
    let mut pool = Pool::that_adopts(&models, "", "1m");
    assert_eq!(asks(&pool, "hot").0, 200);
    let stream = pool.stream("/v1/chat/completions", &chat("talker", true));
    wait_for("the first chunk", || stream.text().contains("data: "));
    let family = Family::new(&pool);
    let stop = AtomicBool::new(false);
    let address = pool.address().to_owned();
    thread::scope(|scope| {
        let visit = |path: &'static str, body: String| {
            let (stop, address) = (&stop, address.as_str());
            scope.spawn(move || visitor(address, path, &body, stop))
        };
        let visitors = [
            visit("/llm/health", String::new()),
            visit("/v1/models", String::new()),
            visit("/v1/chat/completions", chat("hot", false)),
            visit("/v1/chat/completions", chat("hot", true)),
        ];
        let mut took = Vec::new();
        // Twice, because a process that took over can itself be replaced.
        for _ in 0..2 {
            let began = SystemTime::now();
            let old = pool.take_over();
            took.push(began.elapsed().unwrap());
            if took.len() == 1 {
                assert!(stream.whole().trim_end().ends_with("data: [DONE]"));
            }
            ends(old);
        }
        stop.store(true, Ordering::Relaxed);
        for visitor in visitors {
            let visits = visitor.join().unwrap();
            println!(
                "{} requests, the longest took {:?}",
                visits.count, visits.longest
            );
            assert!(visits.failures.is_empty(), "{:?}", visits.failures);
            assert!(visits.count > 20, "{}", visits.count);
        }
        println!("takeovers took {took:?}");
    });
    assert_eq!(pool.engine_pids(), family.engines);
    assert_eq!(told(&pool, "adopt", 4).len(), 4, "two engines, twice");
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(20)));
    wait_for("everything to be gone", || family.alive().is_empty());
}

#[test]
fn a_stream_in_an_old_process_keeps_its_engine_hot_until_after_its_end() {
    let talk = ["--tokens", "480", "--token-ms", "25"];
    let mut pool = Pool::that_adopts(&[stub("talker", &talk)], "pool: {keep_hot: 2s}\n", "1m");
    let stream = pool.stream("/v1/chat/completions", &chat("talker", true));
    wait_for("the first chunk", || stream.text().contains("data: "));
    let first = pool.take_over();
    let in_flight = |pool: &Pool| shown(pool, "talker")["replicas"][0]["in_flight"].clone();
    assert_eq!(in_flight(&pool), 1);
    let second = pool.take_over();
    ends(second);
    assert_eq!(in_flight(&pool), 1, "of the one before the last");
    // A crash of the serving process does not affect a stream in another process.
    pool.kill_and_restart();
    assert_eq!(in_flight(&pool), 1, "of another process altogether");
    assert!(stream.whole().trim_end().ends_with("data: [DONE]"));
    let ended = SystemTime::now();
    wait_for("its keep-hot time", || pool.engine_pids().is_empty());
    let kept = ended.elapsed().unwrap();
    let drains = told(&pool, "drain", 1);
    println!("kept for {kept:?} after its stream: {drains:?}");
    assert!(
        drains.iter().all(|reason| reason.contains("keep-hot")),
        "{drains:?}"
    );
    assert!(kept > Duration::from_millis(1_500), "{kept:?}");
    ends(first);
}

#[test]
fn a_drain_waits_for_the_streams_of_an_old_process() {
    let talk = ["--tokens", "240", "--token-ms", "25"];
    let mut pool = Pool::that_adopts(&[stub("talker", &talk)], "", "1m");
    let stream = pool.stream("/v1/chat/completions", &chat("talker", true));
    wait_for("the first chunk", || stream.text().contains("data: "));
    let old = pool.take_over();
    let (key, body) = (pool.admin_key(), r#"{"model":"talker"}"#);
    let (status, text, _) = pool.request("POST", "/llm/admin/unload", body, Some(&key));
    assert_eq!(status, 200, "{text}");
    assert!(stream.whole().trim_end().ends_with("data: [DONE]"));
    assert!(pool.engine_pids().is_empty());
    ends(old);
}

#[test]
fn a_request_waiting_for_a_load_is_served_before_the_old_process_exits() {
    let models = [stub("slow", &["--ready-after-ms", "1500"])];
    let mut pool = Pool::that_adopts(&models, "", "1m");
    let waits = pool.stream("/v1/chat/completions", &chat("slow", false));
    wait_for("the engine to start", || pool.engine_pids().len() == 1);
    let engines = pool.engine_pids();
    let old = pool.take_over();
    assert!(
        waits.whole().contains("chat.completion"),
        "{}",
        waits.text()
    );
    ends(old);
    assert_eq!(pool.engine_pids(), engines);
    assert_eq!(asks(&pool, "slow").0, 200);
}

#[test]
fn engines_tied_to_the_old_process_survive_a_takeover() {
    let mut pool = Pool::with_models(&[stub("a", &[])], "");
    assert_eq!(asks(&pool, "a").0, 200);
    let engines = pool.engine_pids();
    pool.set_env("MODEL_POOL__POOL__ON_RESTART", "adopt");
    ends(pool.take_over());
    assert_eq!(pool.engine_pids(), engines);
}

#[test]
fn the_service_manager_is_notified_of_the_main_process_and_the_watchdog() {
    let mut manager = Manager::start();
    let mut pool = Pool::that_adopts(&[stub("a", &[])], "", "1m");
    assert_eq!(asks(&pool, "a").0, 200);
    pool.kill();
    pool.set_env("NOTIFY_SOCKET", manager.path());
    pool.set_env("WATCHDOG_USEC", "300000");
    pool.restart();
    manager.hears(&format!("READY=1\nMAINPID={}\n", pool.pid()));
    manager.hears("WATCHDOG=1");
    manager.hears("WATCHDOG=1");
    // The new process has another parent, and learns of the manager from the old one.
    pool.forget_env();
    ends(pool.take_over());
    manager.hears(&format!("READY=1\nMAINPID={}\n", pool.pid()));
    manager.hears("WATCHDOG=1");
    let text = manager.text();
    assert!(!text.contains("STOPPING"), "{text}");
    pool.terminate();
    manager.hears("STOPPING=1");
    assert!(pool.wait(Duration::from_secs(20)));
}

#[test]
fn a_takeover_without_a_running_service_starts_normally() {
    let mut pool = Pool::that_adopts(&[stub("a", &[])], "", "1m");
    assert_eq!(asks(&pool, "a").0, 200);
    let engines = pool.engine_pids();
    pool.kill();
    // The system chose the port, and no process holds it.
    pool.take_over_from_nobody();
    pool.wait_for_log("no model-pool to take over from");
    assert_eq!(pool.engine_pids(), engines, "adopted as after any crash");
}
