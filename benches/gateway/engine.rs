//! An engine that computes nothing. Its response is known, so the bench measures only what stands in front of it. It speaks just
//! enough HTTP for that, on a single thread, at a few microseconds per request.
//!
//! It reports vLLM's token counter. A response has `max_tokens` tokens. Each token of a stream is written separately, as engines
//! do. `seed`, a field that gateways pass on, is the pause before each token except the first, in milliseconds. Tokens are due at
//! fixed times after the first one, and each contains its due time as text, in nanoseconds of the system clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const ROLE: &str = r#"{"id":"c","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}"#;
const TOKEN: &str = r#"{"id":"c","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}]}"#;
const LAST: &str = r#"{"id":"c","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const STREAM_HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked\r\n\r\n";
const READ_BYTES: usize = 1 << 10;
/// The total number of tokens of all responses.
static TOKENS: AtomicU64 = AtomicU64::new(0);
/// Connections that are silent for longer count as idle.
const LONG: Duration = Duration::from_secs(1);

/// The times at which the tokens of a stream are due.
struct Pace {
    first: tokio::time::Instant,
    /// The same time by the system clock.
    first_at: Duration,
    pause: Duration,
}

impl Pace {
    #[expect(
        clippy::disallowed_methods,
        reason = "an engine writes its tokens in real time"
    )]
    fn new(pause: Duration) -> Pace {
        Pace {
            first: tokio::time::Instant::now(),
            first_at: since_epoch(),
            pause,
        }
    }

    /// The time between the first token and this one.
    fn after(&self, nth: u64) -> Duration {
        Duration::from_nanos((self.pause.as_nanos() as u64).saturating_mul(nth))
    }

    /// The data of a due token, which contains its due time.
    fn token(&self, nth: u64) -> String {
        let due = (self.first_at + self.after(nth)).as_nanos();
        TOKEN.replace("word", &due.to_string())
    }
}

pub fn since_epoch() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

/// Serves until the process ends.
pub fn serve(port: u16) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", port))
            .await
            .expect("the port is free");
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => if let Ok((socket, _)) = accepted {
                    let _ = socket.set_nodelay(true);
                    connections.spawn(async move { drop(connection(socket).await) });
                },
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
            }
        }
    });
}

async fn connection(mut socket: TcpStream) -> std::io::Result<()> {
    let mut held = Vec::new();
    loop {
        let length = loop {
            if let Some(length) = whole_request(&held) {
                break length;
            }
            held.reserve(READ_BYTES);
            if socket.read_buf(&mut held).await? == 0 {
                return Ok(());
            }
        };
        let request: Vec<u8> = held.drain(..length).collect();
        if held.is_empty() {
            // Ten thousand idle connections keep no buffers.
            held = Vec::new();
        }
        respond(&mut socket, &request).await?;
    }
}

/// The length of the first request in the buffer, once it is complete.
fn whole_request(held: &[u8]) -> Option<usize> {
    let head = memchr::memmem::find(held, b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(&held[..head]).ok()?;
    let length = text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse::<usize>().ok())?
    });
    let whole = head + length.unwrap_or(0);
    (held.len() >= whole).then_some(whole)
}

fn number(request: &[u8], field: &str) -> Option<u64> {
    let name = format!("\"{field}\":");
    let at = memchr::memmem::find(request, name.as_bytes())? + name.len();
    let digits = request[at..].iter().skip_while(|byte| **byte == b' ');
    let digits = digits.take_while(|byte| byte.is_ascii_digit());
    let text: Vec<u8> = digits.copied().collect();
    std::str::from_utf8(&text).ok()?.parse().ok()
}

fn usage(tokens: u64) -> String {
    format!(
        r#""usage":{{"prompt_tokens":3,"completion_tokens":{tokens},"total_tokens":{}}}"#,
        tokens + 3
    )
}

async fn respond(socket: &mut TcpStream, request: &[u8]) -> std::io::Result<()> {
    if request.starts_with(b"GET /metrics") {
        let tokens = TOKENS.load(Ordering::Relaxed);
        let body = format!("vllm:generation_tokens_total {tokens}\n");
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        return socket.write_all(format!("{head}{body}").as_bytes()).await;
    }
    if request.starts_with(b"GET") {
        return socket
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            .await;
    }
    let tokens = number(request, "max_tokens").unwrap_or(8);
    TOKENS.fetch_add(tokens, Ordering::Relaxed);
    if memchr::memmem::find(request, b"\"stream\":true").is_none() {
        let text = " word".repeat(tokens as usize);
        let body = format!(
            r#"{{"id":"c","object":"chat.completion","created":1700000000,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],{}}}"#,
            usage(tokens)
        );
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        return socket.write_all(format!("{head}{body}").as_bytes()).await;
    }
    let pause = Duration::from_millis(number(request, "seed").unwrap_or(0));
    let pace = Pace::new(pause);
    let mut out = Vec::with_capacity(1024 + tokens as usize * 220);
    out.extend_from_slice(STREAM_HEAD.as_bytes());
    event(&mut out, ROLE);
    for nth in 0..tokens {
        if nth > 0 {
            socket.write_all(&out).await?;
            out.clear();
            if pause.is_zero() {
                tokio::task::yield_now().await;
            } else if pause > LONG {
                // Ten thousand of them keep no buffers.
                out = Vec::new();
            }
            tokio::select! {
                () = tokio::time::sleep_until(pace.first + pace.after(nth)), if !pause.is_zero() => {}
                () = async {}, if pause.is_zero() => {}
                // A client that disconnects in the meantime ends the work.
                left = socket.readable() => left?,
            }
        }
        if nth > 0 && !pause.is_zero() {
            event(&mut out, &pace.token(nth))
        } else {
            event(&mut out, TOKEN)
        }
    }
    event(&mut out, LAST);
    let last = format!(
        r#"{{"id":"c","object":"chat.completion.chunk","created":1700000000,"model":"m","choices":[],{}}}"#,
        usage(tokens)
    );
    event(&mut out, &last);
    event(&mut out, "[DONE]");
    out.extend_from_slice(b"0\r\n\r\n");
    socket.write_all(&out).await
}

/// Formats an event as a chunk.
fn event(out: &mut Vec<u8>, data: &str) {
    use std::io::Write;
    let _ = write!(out, "{:x}\r\ndata: {data}\n\n\r\n", data.len() + 8);
}
