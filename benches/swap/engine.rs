//! The measuring tools of all parts of the bench: an engine that it starts and ends itself, requests with their times, and
//! percentiles.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub const NAMES: [&str; 2] = ["a", "b"];
/// The interval between probes of a start, the same as the pool's. Without a pause the probes would take the processor from the
/// measured engine.
const PAUSE: Duration = Duration::from_millis(1);

/// The command line of an engine, without its port.
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
            let response = exchange(&self.address(), "GET", "/health", "");
            response.is_some_and(|response| response.status == 200)
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

/// A response, with times since its request.
pub struct TimedResponse {
    pub status: u16,
    /// The first byte of the body. Comments sent while waiting do not count.
    pub first: Duration,
    pub all: Duration,
    /// The time of the first comment sent while waiting, and the seconds that it promised.
    pub promise: Option<(Duration, u64)>,
    pub text: String,
}

/// Sends a request on a new connection; `None` without a response.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub fn exchange(address: &str, method: &str, path: &str, body: &str) -> Option<TimedResponse> {
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
    Some(TimedResponse {
        status: text.split(' ').nth(1)?.parse().ok()?,
        first: first?,
        all: began.elapsed(),
        promise,
        text,
    })
}

/// The promise of the first complete comment such as `: waiting position=1 stage=queued expected_seconds=31`. Without a position
/// the request was not in the queue yet.
fn promised_seconds(text: &str) -> Option<u64> {
    let mut comments = text.split(": waiting position=").skip(1);
    let comment = comments.find(|comment| !comment.starts_with('0'))?;
    let (_, seconds) = comment.split_once("expected_seconds=")?;
    seconds.split_once('\n')?.0.parse().ok()
}

/// A streamed response of at most this many tokens.
pub fn stream(address: &str, model: &str, tokens: u32) -> TimedResponse {
    let body = format!(
        r#"{{"model":"{model}","stream":true,"max_tokens":{tokens},"messages":[{{"role":"user","content":"Hi"}}]}}"#
    );
    let response = exchange(address, "POST", "/v1/chat/completions", &body);
    let response = response.expect("a response");
    assert_eq!(response.status, 200, "{}", response.text);
    response
}

/// The time from the request to the first byte of a short response.
pub fn ask(address: &str, model: &str) -> Duration {
    stream(address, model, 2).first
}

/// The engine's own times.
pub struct EngineTimes {
    pub start: f64,
    pub response: f64,
    pub stop: f64,
}

impl EngineTimes {
    pub fn all(&self) -> f64 {
        self.start + self.response + self.stop
    }

    /// `model` is the engine's name for its model.
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    pub fn measure(program: &Path, launch: &Launch, model: &str) -> EngineTimes {
        let began = Instant::now();
        let server = Server::start(program, launch);
        server.until_ready();
        let start = milliseconds(began.elapsed());
        let response = milliseconds(ask(&server.address(), model));
        let began = Instant::now();
        server.stop();
        let stop = milliseconds(began.elapsed());
        EngineTimes {
            start,
            response,
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

/// The flags of a test double with this load time, and its model file, which uses 10 of a device's 16 GiB and defaults otherwise.
/// `pool` holds more keys of its `pool_config`.
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
