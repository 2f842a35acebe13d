//! Health probes of an engine: one HTTP request on a new connection, and the wait until the engine is ready. The caller handles the
//! deadline of a load.

use std::convert::Infallible;
use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::time::Instant;

use crate::connection::Endpoint;
use crate::connection::endpoint::connect;

/// A probe that takes longer is repeated.
const QUESTION_MAX: Duration = Duration::from_secs(2);
const BODY_BYTES_MAX: usize = 64 << 10;
/// The pause between probes is this fraction of the load's age, within bounds. Detects readiness within 0.1 % of the load time, or
/// within a millisecond for short loads, without disturbing long ones.
const PAUSE_PART: u32 = 1_000;
const PAUSE_LEAST: Duration = Duration::from_millis(1);
/// The runtime's timers are too coarse for shorter pauses.
const EXACT_BELOW: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_millis(50);

type BoxError = Box<dyn Error + Send + Sync>;

/// The response of a health route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthResponse {
    pub status: u16,
    /// At most 64 KiB.
    pub body: Bytes,
}

/// Sends one `GET` of `path` on a new connection. Errors if the engine does not listen, if the response is not HTTP or too large,
/// and after 2 s.
pub async fn probe(endpoint: &Endpoint, path: &str) -> Result<HealthResponse, BoxError> {
    tokio::time::timeout(QUESTION_MAX, get(endpoint, path)).await?
}

/// Like [`probe`], without a timeout.
pub(crate) async fn get(endpoint: &Endpoint, path: &str) -> Result<HealthResponse, BoxError> {
    ask(endpoint, Request::get(path), Bytes::new(), BODY_BYTES_MAX).await
}

/// Sends one `GET` whose response may be longer than a health route's. Errors after 2 s.
pub(crate) async fn get_long(
    endpoint: &Endpoint,
    path: &str,
    bytes_max: usize,
) -> Result<HealthResponse, BoxError> {
    let question = ask(endpoint, Request::get(path), Bytes::new(), bytes_max);
    tokio::time::timeout(QUESTION_MAX, question).await?
}

/// Sends one `POST` of JSON, without a timeout.
pub(super) async fn post(
    endpoint: &Endpoint,
    path: &str,
    body: String,
) -> Result<HealthResponse, BoxError> {
    let request = Request::post(path).header(header::CONTENT_TYPE, "application/json");
    ask(endpoint, request, body.into(), BODY_BYTES_MAX).await
}

async fn ask(
    endpoint: &Endpoint,
    request: hyper::http::request::Builder,
    body: Bytes,
    bytes_max: usize,
) -> Result<HealthResponse, BoxError> {
    let stream = TokioIo::new(connect(endpoint).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    let host = match endpoint {
        Endpoint::Tcp(address) => address.to_string(),
        Endpoint::Unix(_) | Endpoint::Node(_) => "localhost".to_owned(),
        Endpoint::Remote(_) => String::new(),
    };
    let mut request = request
        .header(header::HOST, host)
        .header(header::CONNECTION, "close")
        .body(Full::new(body))?;
    if let Endpoint::Remote(remote) = endpoint {
        *request.uri_mut() = remote.path(&request.uri().to_string()).parse()?;
        request.headers_mut().extend(remote.headers());
    }
    let question = async {
        let response = sender.send_request(request).await?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), bytes_max);
        let body = body.collect().await?.to_bytes();
        Ok(HealthResponse { status, body })
    };
    // Drives the connection and never completes. Its errors surface as errors of the request.
    let drive = async {
        let _ = connection.await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        reply = question => reply,
        never = drive => match never {},
    }
}

/// Returns once a load that began at `started` responds with 2xx. `not_yet` gets every earlier response, since a 503 reports
/// progress. While the engine does not listen, a probe is a failed connect, which costs microseconds.
pub(crate) async fn until_ready(
    endpoint: &Endpoint,
    path: &str,
    started: Instant,
    mut not_yet: impl FnMut(HealthResponse),
) {
    loop {
        match probe(endpoint, path).await {
            Ok(response) if is_success(response.status) => return,
            Ok(response) => not_yet(response),
            // The engine does not listen yet, or is too busy to respond.
            Err(_) => {}
        }
        pause(pause_at(started.elapsed())).await;
    }
}

/// Sleeps for `time`. The runtime's timers count in milliseconds, and a pause of 1 ms would take 2, so short pauses sleep on a
/// thread.
async fn pause(time: Duration) {
    if time >= EXACT_BELOW {
        return tokio::time::sleep(time).await;
    }
    let slept = tokio::task::spawn_blocking(move || std::thread::park_timeout(time));
    // Fails only while the runtime ends.
    let _ = slept.await;
}

fn pause_at(passed: Duration) -> Duration {
    (passed / PAUSE_PART).clamp(PAUSE_LEAST, PAUSE_MAX)
}

/// The body of a 503 while an engine loads: `{"stage":"reading weights","percent":40}`. The embedded engine
/// sends it, and any command may.
#[derive(Deserialize)]
struct Loading {
    stage: String,
    percent: Option<f64>,
}

/// The stage, in at most 80 characters, and integer per cent. `None` when the body has another form.
pub(crate) fn stage_of(body: &[u8]) -> Option<(String, Option<u8>)> {
    let Loading { stage, percent } = serde_json::from_slice(body).ok()?;
    let percent = percent.map(|percent| percent.clamp(0.0, 100.0) as u8);
    Some((brief(&stage), percent))
}

/// A stage is a short text on a dashboard, not an error report.
pub(crate) fn brief(text: &str) -> String {
    const CHARS_MAX: usize = 80;
    let plain = text.chars().filter(|character| !character.is_control());
    plain.take(CHARS_MAX).collect()
}

pub(crate) fn is_success(status: u16) -> bool {
    StatusCode::from_u16(status).is_ok_and(|status| status.is_success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_short_pause_is_accurate_to_the_millisecond() {
        let time = Duration::from_millis(1);
        let mut shortest = Duration::MAX;
        // A busy machine lengthens some pauses.
        for _ in 0..50 {
            #[expect(clippy::disallowed_methods, reason = "real timers are measured")]
            let began = std::time::Instant::now();
            pause(time).await;
            shortest = shortest.min(began.elapsed());
        }
        assert!(shortest < time * 2, "{shortest:?}");
    }

    #[test]
    fn a_young_load_is_polled_often_and_an_old_one_rarely() {
        let pause = |milliseconds| pause_at(Duration::from_millis(milliseconds)).as_millis();
        let pauses = [0, 500, 1_000, 3_000, 10_000, 25_000, 600_000].map(pause);
        assert_eq!(pauses, [1, 1, 1, 3, 10, 25, 50]);
    }

    #[test]
    fn the_health_response_of_a_loading_engine_yields_its_stage_and_percentage() {
        let body = br#"{"status":"loading","stage":"weights","percent":41.7}"#;
        assert_eq!(stage_of(body), Some(("weights".to_owned(), Some(41))));
        let body = br#"{"status":"loading","stage":"starting","percent":null}"#;
        assert_eq!(stage_of(body), Some(("starting".to_owned(), None)));
        assert_eq!(stage_of(b"not JSON"), None);
    }
}
