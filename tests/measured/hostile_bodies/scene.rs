//! The real program with simple engines, the cost of a request to its process, and the response time of other requests during it.
//! Makes no assertions.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use super::bodies::{BOUNDARY, Route};
use super::stub_program::stub_engine;
use support::service::Pool;

const PATIENCE: Duration = Duration::from_secs(120);
/// Interval of samples and health checks.
const EVERY: Duration = Duration::from_millis(3);

/// A model whose engine is the stub; `flags` and `more` go into its command and its `pool_config`.
pub fn stub(name: &str, flags: &str, more: &str) -> (String, String) {
    let engine = stub_engine().display().to_string();
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  listen: port\n  \
         command: [{engine:?}, \"--port\", \"{{{{ port }}}}\", \"--model\", {name:?}{flags}]\n\
         pool_config: {{memory_gib: 0.5, keep_hot: 1h{more}}}\n"
    );
    (format!("{name}.yaml"), text)
}

/// A pool with one model per way of reading bodies.
pub fn pool() -> Pool {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo/models/tiny-chat");
    let tiny = format!(
        "engine_config:\n  model_id: tiny\n  type: CandleEngine\n  model_path: {demo:?}\n  \
         max_total_tokens: 512\n  engine_kwargs: {{device: cpu}}\npool_config: {{keep_hot: 1h}}\n"
    );
    let files = [
        stub("talker", "", ""),
        stub("ruled", "", ", validation: {max_characters: 100000000}"),
        ("tiny.yaml".to_owned(), tiny),
    ];
    Pool::with_models(&files, "compat: {run: true, ncsa: true}\n")
}

/// The outcome and cost of one request.
#[derive(Clone, Debug)]
pub struct Cost {
    pub status: u16,
    pub response_bytes: usize,
    pub processor: Duration,
    /// Growth of the process's resident memory during the request.
    pub growth_bytes: u64,
    pub message: String,
}

/// User and system time of a process so far; proc(5) has them in ticks of 10 ms.
pub fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let ticks = fields[11..13]
        .iter()
        .filter_map(|number| number.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

pub fn resident_bytes(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.expect("a number") << 10
}

/// Sends a body unchanged, and returns the status and the response so far.
pub fn send(pool: &Pool, route: &Route, key: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let mut socket = TcpStream::connect(pool.address()).expect("connected");
    socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
    let kind = if route.is_form {
        format!("multipart/form-data; boundary={BOUNDARY}")
    } else {
        "application/json".to_owned()
    };
    let bearer = if route.by_admin {
        format!("Authorization: Bearer {key}\r\n")
    } else {
        String::new()
    };
    let head = format!(
        "{} {} HTTP/1.1\r\nHost: {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{bearer}Connection: close\r\n\r\n",
        route.method,
        route.path,
        pool.address(),
        body.len()
    );
    socket.write_all(head.as_bytes()).expect("sent");
    // A body that is refused early may not be read to its end.
    let _ = socket.write_all(body);
    let mut response = Vec::new();
    let _ = socket.read_to_end(&mut response);
    let status = String::from_utf8_lossy(&response[..response.len().min(16)]).into_owned();
    let status = status
        .split_whitespace()
        .nth(1)
        .and_then(|number| number.parse().ok());
    (status.unwrap_or(0), response)
}

/// Sends a request and measures its cost.
pub fn measure(pool: &Pool, watch: &Watch, route: &Route, key: &str, body: &[u8]) -> Cost {
    let pid = pool.pid();
    let resident = resident_bytes(pid);
    watch.peak.store(resident, Ordering::SeqCst);
    let before = processor_time(pid);
    let (status, response) = send(pool, route, key, body);
    let processor = processor_time(pid) - before;
    let shown = &response[response.len().saturating_sub(300)..];
    Cost {
        status,
        response_bytes: response.len(),
        processor,
        growth_bytes: watch.peak.load(Ordering::SeqCst).saturating_sub(resident),
        message: String::from_utf8_lossy(shown).into_owned(),
    }
}

/// Samples the process continuously: its memory, and the response time of its health check.
pub struct Watch {
    peak: Arc<AtomicU64>,
    waits: Arc<Mutex<Vec<Duration>>>,
    enough: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Watch {
    pub fn new(pool: &Pool) -> Watch {
        let mut watch = Watch {
            peak: Arc::default(),
            waits: Arc::default(),
            enough: Arc::default(),
            threads: Vec::new(),
        };
        let (pid, enough, peak) = (
            pool.pid(),
            Arc::clone(&watch.enough),
            Arc::clone(&watch.peak),
        );
        watch.threads.push(thread::spawn(move || {
            while !enough.load(Ordering::SeqCst) {
                peak.fetch_max(resident_bytes(pid), Ordering::SeqCst);
                thread::park_timeout(EVERY);
            }
        }));
        let (address, enough, waits) = (
            pool.address().to_owned(),
            Arc::clone(&watch.enough),
            Arc::clone(&watch.waits),
        );
        watch.threads.push(thread::spawn(move || {
            let mut socket = TcpStream::connect(&address).expect("connected");
            let _ = socket.set_read_timeout(Some(PATIENCE));
            let text = format!("GET /llm/health HTTP/1.1\r\nHost: {address}\r\n\r\n");
            let mut response = [0; 4096];
            while !enough.load(Ordering::SeqCst) {
                let start = SystemTime::now();
                socket.write_all(text.as_bytes()).expect("sent");
                let count = socket.read(&mut response).expect("a response");
                assert!(
                    response[..count].starts_with(b"HTTP/1.1 200"),
                    "it is not well"
                );
                let waited = start.elapsed().unwrap_or_default();
                waits.lock().expect("not poisoned").push(waited);
                thread::park_timeout(EVERY);
            }
        }));
        watch
    }

    /// Response times of the health check since the last call, in ascending order.
    pub fn waits(&self) -> Vec<Duration> {
        let mut waits = std::mem::take(&mut *self.waits.lock().expect("not poisoned"));
        waits.sort();
        waits
    }

    pub fn forget_peak(&self, pid: u32) -> u64 {
        let resident = resident_bytes(pid);
        self.peak.store(resident, Ordering::SeqCst);
        resident
    }

    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::SeqCst)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.enough.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
