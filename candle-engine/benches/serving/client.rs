//! The HTTP client: sends a completion request and records the arrival times of its pieces.

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// The result of one request; times count from when it was sent.
#[derive(Debug)]
pub struct RequestResult {
    pub sent: Instant,
    /// The arrival time of each event with text.
    pub events: Vec<Duration>,
    pub done: Duration,
    pub tokens: usize,
    pub text: String,
}

impl RequestResult {
    pub fn first_at(&self) -> Instant {
        self.sent + self.events.first().copied().unwrap_or(self.done)
    }

    pub fn done_at(&self) -> Instant {
        self.sent + self.done
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// Posts a streaming completion and reads it to its end. Calls `heard` for each event with text.
pub async fn complete(
    address: SocketAddr,
    body: &Value,
    mut heard: impl FnMut(),
) -> Result<RequestResult, String> {
    let sent = now();
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| error.to_string())?;
    stream
        .set_nodelay(true)
        .map_err(|error| error.to_string())?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    let request = Request::post("/v1/completions")
        .header("host", "engine")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .expect("a request");
    // The connection ends when its sender is dropped after the response has been read.
    let reading = async move {
        let mut sender = sender;
        let mut result = RequestResult {
            sent,
            events: Vec::new(),
            done: Duration::ZERO,
            tokens: 0,
            text: String::new(),
        };
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| error.to_string())?;
        let status = response.status();
        let mut body = response.into_body();
        let mut unread = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| error.to_string())?;
            unread.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            if status != StatusCode::OK {
                continue;
            }
            while let Some(end) = unread.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = unread.drain(..end + 2).collect();
                if read_event(&event, &mut result)? {
                    heard();
                }
            }
        }
        if status != StatusCode::OK {
            return Err(format!("{status}: {}", String::from_utf8_lossy(&unread)));
        }
        result.done = sent.elapsed();
        Ok(result)
    };
    futures_util::future::join(reading, connection).await.0
}

/// Returns true if the event has text.
fn read_event(event: &[u8], response: &mut RequestResult) -> Result<bool, String> {
    let event = String::from_utf8_lossy(event);
    let Some(data) = event
        .trim()
        .strip_prefix("data: ")
        .filter(|data| *data != "[DONE]")
    else {
        return Ok(false);
    };
    let data: Value = serde_json::from_str(data).map_err(|error| format!("{error} in {data}"))?;
    if let Some(error) = data.get("error") {
        return Err(error.to_string());
    }
    if let Some(tokens) = data["usage"]["completion_tokens"].as_u64() {
        response.tokens = tokens as usize;
    }
    let text = data["choices"][0]["text"].as_str().unwrap_or_default();
    if text.is_empty() {
        return Ok(false);
    }
    response.text += text;
    response.events.push(response.sent.elapsed());
    Ok(true)
}
