//! What every part of the bench measures with: an engine that it starts and ends itself, requests with their times, and the
//! percentiles of many.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const NAMES: [&str; 2] = ["a", "b"];
/// How often a start is probed, as the pool probes it. Without a pause, the probes would take the processor from the engine
/// that is measured.
const PAUSE: Duration = Duration::from_millis(1);

/// What an engine is started with, but for its port.
pub struct Launch {
    pub words: Vec<String>,
    pub environment: Vec<(String, String)>,
}

/// An engine that is stopped when dropped.
pub struct Server(Child, u16);

impl Server {
    pub fn start(program: &Path, launch: &Launch) -> Server {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("bound").port();
        drop(free);
        let child = Command::new(program)
            .args(&launch.words)
            .args(["--port", &port.to_string()])
            .envs(launch.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        Server(child, port)
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.1)
    }

    pub fn until_ready(&self) {
        let is_ready = || {
            let answer = exchange(&self.address(), "GET", "/health", "");
            answer.is_some_and(|answer| answer.status == 200)
        };
        while !is_ready() {
            std::thread::park_timeout(PAUSE);
        }
    }

    fn stop(mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.0.id()).expect("a process"));
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// One answer, with times since its request.
pub struct Answer {
    pub status: u16,
    /// The first byte of the body; comments of the wait do not count.
    pub first: Duration,
    pub all: Duration,
    /// When the first comment of the wait came, and the seconds that it promised.
    pub promise: Option<(Duration, u64)>,
    pub text: String,
}

/// One request on a connection of its own; `None` if there is no answer.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub fn exchange(address: &str, method: &str, path: &str, body: &str) -> Option<Answer> {
    let began = Instant::now();
    let mut socket = TcpStream::connect(address).ok()?;
    let length = body.len();
    write!(
        socket,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .ok()?;
    let mut bytes = Vec::new();
    let (mut first, mut promise) = (None, None);
    let mut piece = [0; 4096];
    loop {
        let count = socket.read(&mut piece).ok()?;
        if count == 0 {
            break;
        }
        bytes.extend_from_slice(&piece[..count]);
        if first.is_some() {
            continue;
        }
        let text = String::from_utf8_lossy(&bytes);
        if method == "GET" || text.contains("data: {") {
            first = Some(began.elapsed());
        } else if promise.is_none() {
            promise = promised_seconds(&text).map(|seconds| (began.elapsed(), seconds));
        }
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    Some(Answer {
        status: text.split(' ').nth(1)?.parse().ok()?,
        first: first?,
        all: began.elapsed(),
        promise,
        text,
    })
}

/// From the first whole comment such as `: waiting position=1 stage=queued expected_seconds=31`. Without a position the
/// request was not in the queue yet.
fn promised_seconds(text: &str) -> Option<u64> {
    let mut comments = text.split(": waiting position=").skip(1);
    let comment = comments.find(|comment| !comment.starts_with('0'))?;
    let (_, seconds) = comment.split_once("expected_seconds=")?;
    seconds.split_once('\n')?.0.parse().ok()
}

/// A streamed answer of at most so many tokens.
pub fn stream(address: &str, model: &str, tokens: u32) -> Answer {
    let body = format!(
        r#"{{"model":"{model}","stream":true,"max_tokens":{tokens},"messages":[{{"role":"user","content":"Hi"}}]}}"#
    );
    let answer = exchange(address, "POST", "/v1/chat/completions", &body);
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer
}

/// From the request to the first byte of a short answer.
pub fn ask(address: &str, model: &str) -> Duration {
    stream(address, model, 2).first
}

/// What one engine takes by itself.
pub struct Own {
    pub start: f64,
    pub answer: f64,
    pub stop: f64,
}

impl Own {
    pub fn all(&self) -> f64 {
        self.start + self.answer + self.stop
    }

    /// `model`: what the engine calls its model.
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    pub fn measure(program: &Path, launch: &Launch, model: &str) -> Own {
        let began = Instant::now();
        let server = Server::start(program, launch);
        server.until_ready();
        let start = milliseconds(began.elapsed());
        let answer = milliseconds(ask(&server.address(), model));
        let began = Instant::now();
        server.stop();
        let stop = milliseconds(began.elapsed());
        Own {
            start,
            answer,
            stop,
        }
    }
}

pub fn percentile(times: &[f64], hundredths: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times[(times.len() - 1) * hundredths / 100]
}

pub fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// The flags of a test double whose load takes so long, and the file of a model that it serves on 10 of a device's 16 GiB,
/// with everything else as it is by default. `pool`: more keys of its `pool_config`.
pub fn double(name: &str, load: Duration, more: &[&str], pool: &str) -> (Launch, (String, String)) {
    let load = load.as_millis().to_string();
    let mut flags = vec!["--model", name, "--ready-after-ms", &load];
    flags.extend(more);
    let file = support::stub::model(name, &flags, &format!("memory_gib: 10{pool}"));
    let launch = Launch {
        words: flags.iter().map(|flag| (*flag).to_owned()).collect(),
        environment: Vec::new(),
    };
    (launch, file)
}
