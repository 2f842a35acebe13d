//! State shared by all threads: the service's address, its killed processes, counts and faults; and a client that sends one request
//! per connection.

use std::fmt;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};

/// A response that takes longer is a fault.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The storm ends after this many faults.
const FOUND_MAX: usize = 5;

#[derive(Default)]
pub struct Tally {
    pub kills: AtomicU64,
    pub takeovers: AtomicU64,
    pub broken_takeovers: AtomicU64,
    pub evenings: AtomicU64,
    pub wishes: AtomicU64,
    pub yielded: AtomicU64,
    /// Loads without waiting, refused because every replica in the way was loading.
    pub refused_behind_loads: AtomicU64,
    pub without_response: AtomicU64,
    pub compared: AtomicU64,
    pub requests: AtomicU64,
    pub refused: AtomicU64,
    pub streams: AtomicU64,
    pub streams_of_the_killed: AtomicU64,
    pub streams_told: AtomicU64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        write!(
            f,
            "{} kills, {} takeovers and {} broken ones, {} evenings finished; {} wishes acknowledged, {} ended by an eviction, {} refused behind loads, {} without a response, compared {} times; {} requests answered, {} refused; {} streams whole, {} ended by an order, {} broken with their process",
            count(&self.kills),
            count(&self.takeovers),
            count(&self.broken_takeovers),
            count(&self.evenings),
            count(&self.wishes),
            count(&self.yielded),
            count(&self.refused_behind_loads),
            count(&self.without_response),
            count(&self.compared),
            count(&self.requests),
            count(&self.refused),
            count(&self.streams),
            count(&self.streams_told),
            count(&self.streams_of_the_killed),
        )
    }
}

pub fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::SeqCst);
}

pub struct World {
    pub address: SocketAddr,
    pub admin_key: Mutex<String>,
    pub user_key: Mutex<String>,
    /// The serving process; processes are counted from 1.
    pub serving: AtomicU64,
    /// The last process that was started, which may already have the socket.
    pub started: AtomicU64,
    /// In order; recorded before the kill.
    pub killed: Mutex<Vec<u64>>,
    /// Odd while no process serves although the serving process was not killed: the process that took over was.
    pub outages: AtomicU64,
    /// Pauses all changes during an evening.
    pub quiet: AtomicBool,
    /// Number of administrators paused for it.
    pub waiting: AtomicU64,
    /// True while an administrator waits for the response to a change.
    pub changing: AtomicBool,
    pub over: AtomicBool,
    pub tally: Tally,
    found: Mutex<Vec<String>>,
}

/// The processes that may have served a request.
#[derive(Clone, Copy)]
pub struct Span {
    first: u64,
    /// Number of kills before the request.
    dead: usize,
    outages: u64,
}

impl World {
    pub fn new(address: SocketAddr) -> World {
        World {
            address,
            admin_key: Mutex::default(),
            user_key: Mutex::default(),
            serving: AtomicU64::new(0),
            started: AtomicU64::new(0),
            killed: Mutex::default(),
            outages: AtomicU64::new(0),
            quiet: AtomicBool::new(false),
            waiting: AtomicU64::new(0),
            changing: AtomicBool::new(false),
            over: AtomicBool::new(false),
            tally: Tally::default(),
            found: Mutex::default(),
        }
    }

    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    pub fn lost(&self, what: String) {
        eprintln!("LOST: {what}");
        lock(&self.found).push(what);
    }

    pub fn found(&self) -> Vec<String> {
        lock(&self.found).clone()
    }

    pub fn is_whole(&self) -> bool {
        lock(&self.found).len() < FOUND_MAX
    }

    pub fn begins(&self) -> Span {
        Span {
            outages: self.outages.load(Ordering::SeqCst),
            dead: lock(&self.killed).len(),
            first: self.serving.load(Ordering::SeqCst),
        }
    }

    /// Returns true if a later kill explains a fault.
    pub fn excuses(&self, span: Span) -> bool {
        let last = self.started.load(Ordering::SeqCst);
        let outages = self.outages.load(Ordering::SeqCst);
        if outages != span.outages || outages % 2 == 1 {
            return true;
        }
        let killed = lock(&self.killed);
        let since = killed[span.dead..].iter();
        killed.contains(&span.first)
            || since
                .into_iter()
                .any(|process| (span.first..=last).contains(process))
    }

    /// Returns true if a later process may have taken over since.
    pub fn is_older(&self, span: Span) -> bool {
        self.started.load(Ordering::SeqCst) > span.first
    }

    pub fn pause(&self, ms: u64) {
        let until = SystemTime::now() + Duration::from_millis(ms);
        while SystemTime::now() < until && !self.is_over() {
            thread::park_timeout(Duration::from_millis(ms.clamp(1, 20)));
        }
    }

    /// Sends an administrator's request.
    pub fn admin(
        &self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<(u16, serde_json::Value), String> {
        let key = lock(&self.admin_key).clone();
        let (status, text) = call(self.address, method, path, body, &key)?;
        let json = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
        Ok((status, json))
    }

    pub fn lock_key(&self) -> String {
        lock(&self.user_key).clone()
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Status and body of a complete response.
pub fn call(
    address: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
    key: &str,
) -> Result<(u16, String), String> {
    let text = |error: std::io::Error| error.to_string();
    let mut socket = TcpStream::connect_timeout(&address, Duration::from_secs(10)).map_err(text)?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(text)?;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nAuthorization: Bearer {key}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(head.as_bytes()).map_err(text)?;
    let mut bytes = Vec::new();
    let read = socket.read_to_end(&mut bytes);
    let response = String::from_utf8_lossy(&bytes);
    let Some((head, rest)) = response.split_once("\r\n\r\n") else {
        return Err(format!("no answer: {read:?}"));
    };
    let status = head
        .split_whitespace()
        .nth(1)
        .and_then(|status| status.parse().ok());
    let status: u16 = status.ok_or_else(|| format!("no status: {head}"))?;
    let lower = head.to_lowercase();
    if lower.contains("transfer-encoding: chunked") {
        return unchunked(rest).map(|body| (status, body));
    }
    let length = lower
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    match length.and_then(|length| length.trim().parse::<usize>().ok()) {
        Some(length) if length > rest.len() => Err(format!("{} of {length} bytes", rest.len())),
        _ => Ok((status, rest.to_owned())),
    }
}

/// An error if the last chunk is missing, with the text so far.
fn unchunked(mut rest: &str) -> Result<String, String> {
    let mut whole = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let Ok(size) = usize::from_str_radix(size.trim(), 16) else {
            break;
        };
        if size == 0 {
            return Ok(whole);
        }
        let Some(piece) = after.get(..size) else {
            break;
        };
        whole.push_str(piece);
        rest = after[size..].trim_start_matches("\r\n");
    }
    Err(format!("cut short after: {}", tail(&whole)))
}

pub fn tail(text: &str) -> String {
    let start = text.char_indices().rev().nth(300).map_or(0, |(at, _)| at);
    text[start..].to_owned()
}
