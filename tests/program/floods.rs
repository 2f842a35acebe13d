//! Tokens and decisions under load: a flood of one does not delay the other. The bounds are for two cores that also run the engine,
//! the clients and other tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use support::net::{chat, connect, engine, head, stats, stub};
use support::service::{Pool, wait_for};

const STREAMS: usize = 64;
/// Median time of decisions and plans during a flood of tokens.
const DECISION_MAX: Duration = Duration::from_secs(2);
/// Nine of ten tokens arrive within this time after the previous token (due after 20 ms) during a flood of decisions.
const TOKEN_MAX: Duration = Duration::from_millis(500);
const LOADED: [&str; 5] = ["one", "two", "three", "four", "five"];
/// Clients that send orders, plans and reads simultaneously.
const ADMINISTRATORS: usize = 4;

/// A model whose engine serves all streams simultaneously.
fn flooding(flags: &[&str]) -> (String, String) {
    let (file, text) = stub("flood", flags);
    let more = format!("deployment_config: {{max_ongoing_requests: {STREAMS}}}\n");
    (file, text + &more)
}

fn open_stream(pool: &Pool) -> TcpStream {
    let body = chat("flood", true);
    let length = format!("Content-Length: {}\r\n", body.len());
    let request = head("POST", "/v1/chat/completions", &length) + &body;
    let mut socket = connect(pool);
    socket.write_all(request.as_bytes()).unwrap();
    socket
}

/// Streams that are read as fast as they arrive, until dropped.
struct Flood {
    sockets: Vec<TcpStream>,
    readers: Vec<JoinHandle<()>>,
    bytes: Arc<AtomicU64>,
}

impl Flood {
    fn begin(pool: &Pool) -> Flood {
        let mut flood = Flood {
            sockets: Vec::new(),
            readers: Vec::new(),
            bytes: Arc::default(),
        };
        for _ in 0..STREAMS {
            let mut socket = open_stream(pool);
            flood.sockets.push(socket.try_clone().unwrap());
            let bytes = Arc::clone(&flood.bytes);
            flood.readers.push(thread::spawn(move || {
                let mut piece = vec![0; 64 << 10];
                while let Ok(count @ 1..) = socket.read(&mut piece) {
                    bytes.fetch_add(count as u64, Ordering::Relaxed);
                }
            }));
        }
        let all = STREAMS as u64;
        wait_for("all streams to run", || {
            flood.bytes() > 0
                && pool
                    .journal()
                    .iter()
                    .any(|record| record["model"] == "flood")
                && stats(&engine(pool, "flood"))["running"] == all
        });
        flood
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        for socket in &self.sockets {
            let _ = socket.shutdown(Shutdown::Both);
        }
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
    }
}

fn since(began: SystemTime) -> Duration {
    began.elapsed().unwrap_or_default()
}

/// The time within which this share of all operations finished; sorts the times.
fn part(times: &mut [Duration], of_ten: usize) -> Duration {
    times.sort_unstable();
    times[(times.len() * of_ten / 10).min(times.len() - 1)]
}

#[test]
fn the_pools_loop_runs_in_a_dedicated_thread() {
    let pool = Pool::with_models(&[], "");
    let threads = std::fs::read_dir(format!("/proc/{}/task", pool.pid())).unwrap();
    let names = threads.flatten().filter_map(|thread| {
        let name = std::fs::read_to_string(thread.path().join("comm")).ok()?;
        Some(name.trim().to_owned())
    });
    let names: Vec<String> = names.collect();
    let count = names.iter().filter(|name| *name == "pool").count();
    assert_eq!(count, 1, "{names:?}");
}

#[test]
fn a_flood_of_tokens_delays_no_decision() {
    let mut models = vec![flooding(&["--tokens", "1000000000"])];
    models.extend(LOADED.map(|name| stub(name, &[])));
    let pool = Pool::with_models(&models, "");
    let key = pool.admin_key();
    let flood = Flood::begin(&pool);
    let (mut loads, mut plans) = (Vec::new(), Vec::new());
    for name in LOADED {
        let before = flood.bytes();
        let began = SystemTime::now();
        let (status, plan) = pool.admin("POST", "/llm/admin/plan", &json!({"model": name}));
        plans.push(since(began));
        assert_eq!((status, &plan["feasible"]), (200, &json!(true)), "{plan}");
        let began = SystemTime::now();
        let order = json!({"model": name, "wait": false});
        let (status, response) = pool.admin("POST", "/llm/admin/load", &order);
        assert!(matches!(status, 200 | 202), "{response}");
        let path = format!("/llm/admin/events?model={name}&kind=load");
        wait_for("the decision in the history", || {
            let (_, events) = pool.call(Some(&key), "GET", &path, &Value::Null);
            events["events"]
                .as_array()
                .is_some_and(|events| !events.is_empty())
        });
        loads.push(since(began));
        wait_for("tokens to arrive in this time", || flood.bytes() > before);
    }
    assert!(part(&mut plans, 5) < DECISION_MAX, "{plans:?}");
    assert!(part(&mut loads, 5) < DECISION_MAX, "{loads:?}");
    let counts = stats(&engine(&pool, "flood"));
    assert_eq!(counts["running"], STREAMS as u64, "the flood went on");
}

/// Also on failure: the test's threads would never end.
struct OverAtDrop<'a>(&'a AtomicBool);

impl Drop for OverAtDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends orders, plans and reads until `is_over`, and returns the number of responses.
fn decide(pool: &Pool, name: &str, is_over: &AtomicBool) -> u64 {
    let key = pool.admin_key();
    let model = json!({"model": name});
    let mut responded = 0;
    while !is_over.load(Ordering::Relaxed) {
        for (method, path, body) in [
            ("POST", "/llm/admin/plan", &model),
            ("POST", "/llm/admin/load", &model),
            ("GET", "/llm/admin/models", &Value::Null),
            ("GET", "/llm/admin/events?limit=100", &Value::Null),
            ("POST", "/llm/admin/unload", &model),
        ] {
            let (status, response) = pool.call(Some(&key), method, path, body);
            assert_eq!(status, 200, "{path}: {response}");
            responded += 1;
        }
    }
    responded
}

#[test]
fn a_flood_of_decisions_delays_no_token() {
    let mut models = vec![flooding(&["--tokens", "150", "--token-ms", "20"])];
    models.extend(LOADED.map(|name| stub(name, &[])));
    let pool = Pool::with_models(&models, "");
    let warm = pool.post("/v1/chat/completions", &chat("flood", false));
    assert_eq!(warm.0, 200, "{}", warm.1);
    let is_over = AtomicBool::new(false);
    let (mut gaps, responded) = thread::scope(|scope| {
        let end = OverAtDrop(&is_over);
        let (pool, is_over) = (&pool, &is_over);
        let deciding = LOADED[..ADMINISTRATORS]
            .iter()
            .map(|name| scope.spawn(move || decide(pool, name, is_over)));
        let deciding: Vec<_> = deciding.collect();
        let gaps = gaps_of(pool);
        drop(end);
        let responded = deciding.into_iter().map(|thread| thread.join().unwrap());
        (gaps, responded.sum::<u64>())
    });
    assert!(gaps.len() > 100, "{} gaps", gaps.len());
    assert!(part(&mut gaps, 9) < TOKEN_MAX, "{gaps:?}");
    assert!(responded > 20, "{responded} responses are not a flood");
}

/// The times between the tokens of a stream.
fn gaps_of(pool: &Pool) -> Vec<Duration> {
    let mut lines = BufReader::new(open_stream(pool)).lines();
    let mut last = None;
    let mut gaps = Vec::new();
    loop {
        let line = lines.next().expect("the stream has an end").unwrap();
        if line == "data: [DONE]" {
            return gaps;
        }
        if line.contains("\"content\"") {
            let now = SystemTime::now();
            let before = last.replace(now);
            gaps.extend(before.and_then(|before| now.duration_since(before).ok()));
        }
    }
}
