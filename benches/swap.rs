//! What a swap costs beside the engine's own time: two models of a real llama-server of which one fits at
//! a time, asked in turn, through the pool and through llama-server's own router, in the same run.
//! `.ci/llama-server && cargo bench --bench swap`.
//!
//! ```text
//! overhead = request to first byte − engine's own stop − engine's own start to ready − its answer
//! ```
//!
//! The engine's own times are measured in the same rounds on a process of our own.

#[path = "../tests/support/tiny_gguf.rs"]
mod tiny_gguf;
#[path = "../tests/support/whole.rs"]
mod whole;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use whole::Pool;

const ROUNDS: usize = 20;

fn program() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/llama/bin/llama-server");
    built.is_file().then_some(built)
}

/// A llama-server that is stopped when dropped.
struct Server(Child, u16);

impl Server {
    fn start(program: &Path, arguments: &[&str]) -> Server {
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("bound").port();
        drop(free);
        let child = Command::new(program)
            .args(arguments)
            .args(["--port", &port.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        Server(child, port)
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.1)
    }

    fn until_ready(&self) {
        while !matches!(
            exchange(&self.address(), "GET", "/health", ""),
            Some((200, ..))
        ) {
            std::thread::yield_now();
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

/// One request on a connection of its own: the status, and when the first byte of the body came.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn exchange(
    address: &str,
    method: &str,
    path: &str,
    body: &str,
) -> Option<(u16, Duration, String)> {
    let began = Instant::now();
    let mut socket = TcpStream::connect(address).ok()?;
    let length = body.len();
    write!(
        socket,
        "{method} {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .ok()?;
    let mut text = Vec::new();
    let mut first = None;
    let mut piece = [0; 4096];
    loop {
        match socket.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => {
                text.extend_from_slice(&piece[..count]);
                // Comments of the wait are no answer.
                let said = String::from_utf8_lossy(&text).contains("data: {");
                if first.is_none() && (said || method == "GET") {
                    first = Some(began.elapsed());
                }
            }
            Err(_) => return None,
        }
    }
    let text = String::from_utf8_lossy(&text).into_owned();
    let status = text.split(' ').nth(1)?.parse().ok()?;
    Some((status, first?, text))
}

/// From the request to the first byte of the answer.
fn ask(address: &str, model: &str) -> Duration {
    let body = format!(
        r#"{{"model":"{model}","stream":true,"max_tokens":2,"messages":[{{"role":"user","content":"Hi"}}]}}"#
    );
    let answer = exchange(address, "POST", "/v1/chat/completions", &body);
    let (status, first, text) = answer.expect("an answer");
    assert_eq!(status, 200, "{text}");
    first
}

/// Stop, start to ready, and answer of one engine by itself.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn own(program: &Path, weights: &str) -> Duration {
    let began = Instant::now();
    let server = Server::start(program, &["--model", weights, "--ctx-size", "256"]);
    server.until_ready();
    let started = began.elapsed();
    let answered = ask(&server.address(), "any");
    let began = Instant::now();
    server.stop();
    started + answered + began.elapsed()
}

fn percentile(times: &[f64], hundredths: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times[(times.len() - 1) * hundredths / 100]
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn main() {
    let Some(program) = program() else {
        println!("skipped: there is no llama-server; build one with .ci/llama-server");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let weights = |name: &str| {
        folder
            .path()
            .join(format!("{name}.gguf"))
            .display()
            .to_string()
    };
    for (seed, name) in ["a", "b"].into_iter().enumerate() {
        tiny_gguf::write(Path::new(&weights(name)), seed as u64 + 1);
    }
    let model = |name: &str| {
        let text = format!(
            "engine_config:\n  model_id: {name}\n  type: LlamaCppEngine\n  model_path: {:?}\n  program: {:?}\n  max_total_tokens: 256\npool_config: {{memory_gib: 10, min_resident: 0s}}\n",
            weights(name),
            program.display().to_string()
        );
        (format!("{name}.yaml"), text)
    };
    let pool = Pool::with_models(&[model("a"), model("b")], "");
    let folder_of_models = folder.path().display().to_string();
    let router = Server::start(
        &program,
        &[
            "--models-dir",
            &folder_of_models,
            "--models-max",
            "1",
            "--ctx-size",
            "256",
        ],
    );
    router.until_ready();
    for name in ["a", "b"] {
        ask(pool.address(), name);
        ask(&router.address(), name);
    }
    let (mut through_pool, mut through_router, mut alone) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let name = ["a", "b"][round % 2];
        let engine = milliseconds(own(&program, &weights(name)));
        alone.push(engine);
        through_pool.push(milliseconds(ask(pool.address(), name)) - engine);
        through_router.push(milliseconds(ask(&router.address(), name)) - engine);
    }
    println!(
        "the engine's own stop, start and answer: p50 {:.1} ms, p90 {:.1} ms",
        percentile(&alone, 50),
        percentile(&alone, 90)
    );
    for (who, times) in [
        ("model-pool", &through_pool),
        ("llama-server's router", &through_router),
    ] {
        println!(
            "swap overhead of {who}: p50 {:.1} ms, p90 {:.1} ms",
            percentile(times, 50),
            percentile(times, 90)
        );
    }
}
