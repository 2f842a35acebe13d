//! A thousand streams of fifty tokens per second: measures how late each token arrives. The engine writes the due time into each
//! token, and the client is this process, on a single thread.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::engine::since_epoch;
use crate::parts::{MeasuredServer, Rounds, Scale, number};
use crate::servers::MODEL;

const STREAMS: u64 = 1_000;
/// The pause between two tokens of a stream, in milliseconds.
const PAUSE_MS: u64 = 20;
/// Streams begin one after the other, to spread their tokens over the pause.
const BEGIN_EVERY: Duration = Duration::from_millis(1);
/// The number of tokens at both ends of a stream that are not counted, because not all streams are open then.
const ENDS: usize = 50;
/// With a direct connection to the engine, larger delays are the machine's fault.
const DIRECT_LATE_US_MAX: f64 = 5_000.0;
/// The text around the due time of every token except a stream's first. The number of digits stays the same until the year 2286.
const BEFORE_DUE: &[u8] = b"\"content\":\" ";
const DUE_DIGITS: usize = 19;
/// The last chunk of a response.
const END: &[u8] = b"\r\n0\r\n\r\n";
const READ_BYTES: usize = 4 << 10;

pub fn paced(places: &[MeasuredServer], scale: &Scale) -> Value {
    let tokens = scale.paced_tokens;
    println!("{STREAMS} streams of {tokens} tokens, one every {PAUSE_MS} ms (times in us):");
    let once = |place: &MeasuredServer| place.measured(|| all(place.address(), tokens));
    let rounds = Rounds::by(places, scale.rounds.min(3), once);
    let columns = [
        ("tokens/s", "/tokens_per_second", false),
        ("late p50", "/late_us/p50", false),
        ("late p99", "/late_us/p99", false),
        ("late p99.9", "/late_us/p99.9", false),
        ("longest", "/late_us/max", false),
        ("added p50", "/late_us/p50", true),
        ("added p99", "/late_us/p99", true),
        ("cpu/token", "/cpu_us_per_token", false),
        ("machine/token", "/machine_us_per_token", true),
    ];
    let result = rounds.told(places, &columns);
    if number(&result, "/direct/late_p99") > DIRECT_LATE_US_MAX {
        println!(
            "  the engine and the client alone are late: this machine is too busy for this part"
        );
    }
    result
}

/// All streams at one place.
fn all(address: &str, tokens: u64) -> Value {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let began = since_epoch();
    let mut late = runtime.block_on(async {
        let mut streams = JoinSet::new();
        for nth in 0..STREAMS {
            let address = address.to_owned();
            streams.spawn(async move {
                tokio::time::sleep(BEGIN_EVERY * nth as u32).await;
                stream(&address, tokens).await
            });
        }
        let mut late = Vec::new();
        while let Some(ended) = streams.join_next().await {
            let ended = ended.expect("a stream ends well");
            let last = ended.len().saturating_sub(ENDS);
            late.extend_from_slice(ended.get(ENDS..last).unwrap_or_default());
        }
        late
    });
    let seconds = since_epoch().saturating_sub(began).as_secs_f64();
    late.sort_unstable();
    let all = STREAMS * tokens;
    json!({
        "requests": STREAMS,
        "tokens": all,
        "tokens_per_second": all as f64 / seconds,
        "late_us": {
            "p50": percentile(&late, 50.0),
            "p99": percentile(&late, 99.0),
            "p99.9": percentile(&late, 99.9),
            "max": percentile(&late, 100.0),
        },
    })
}

/// A percentile of sorted times, in microseconds.
fn percentile(late: &[Duration], percent: f64) -> f64 {
    let rank = (late.len() as f64 * percent / 100.0).ceil() as usize;
    let time = late.get(rank.saturating_sub(1));
    time.map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

/// Returns how late each token of a stream was read.
async fn stream(address: &str, tokens: u64) -> Vec<Duration> {
    let mut socket = TcpStream::connect(address).await.expect("it listens");
    socket.set_nodelay(true).expect("a socket");
    let body = format!(
        r#"{{"model":"{MODEL}","messages":[{{"role":"user","content":"hello"}}],"stream":true,"seed":{PAUSE_MS},"max_tokens":{tokens}}}"#
    );
    let length = body.len();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    socket.write_all(request.as_bytes()).await.expect("sent");
    let mut late = Vec::with_capacity(tokens as usize);
    let mut held = Vec::with_capacity(READ_BYTES);
    // The number of held bytes that have been searched.
    let mut seen = 0;
    loop {
        let count = socket.read_buf(&mut held).await.expect("a response");
        let shown = || String::from_utf8_lossy(&held).into_owned();
        assert!(count > 0, "{address} ended a stream early: {}", shown());
        seen += read_tokens(&held[seen..], &mut late);
        if held.ends_with(END) {
            // A read that ends within a token's due time hides it.
            let found = late.len() as u64;
            assert!(
                found * 100 >= (tokens - 1) * 99,
                "{found} tokens: {}",
                shown()
            );
            return late;
        }
        // The end may arrive in two pieces.
        let done = seen.min(held.len().saturating_sub(END.len()));
        held.drain(..done);
        seen -= done;
    }
}

/// Adds the tokens of all complete lines; returns the length of these lines.
fn read_tokens(bytes: &[u8], late: &mut Vec<Duration>) -> usize {
    let now = since_epoch();
    let Some(last) = memchr::memrchr(b'\n', bytes) else {
        return 0;
    };
    let lines = bytes[..last].split(|byte| *byte == b'\n');
    late.extend(lines.filter_map(due_of).map(|due| now.saturating_sub(due)));
    last + 1
}

fn due_of(line: &[u8]) -> Option<Duration> {
    let at = memchr::memmem::find(line, BEFORE_DUE)? + BEFORE_DUE.len();
    let digits = line.get(at..at + DUE_DIGITS)?;
    let due: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    Some(Duration::from_nanos(due))
}
