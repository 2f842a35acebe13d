//! Sends one batch to the collector and returns the outcome. Does not retry.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};

use crate::batch::Batch;
use crate::metric::MetricBatch;
use crate::{json, protobuf};

const CONNECT_MAX: Duration = Duration::from_secs(3);
/// Time limit per request, as specified.
const RESPONSE_MAX: Duration = Duration::from_secs(10);
/// Only the beginning of an error is useful.
const ERROR_BYTES_MAX: usize = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    Protobuf,
    Json,
}

/// The HTTP client cannot be created, for example without certificate authorities.
#[derive(Debug, thiserror::Error)]
#[error("cannot create an HTTP client for the collector of telemetry: {0}")]
pub struct ClientError(String);

/// The content of one request to the collector.
pub(crate) enum Payload<'a> {
    Spans(&'a Batch<'a>),
    Metrics(&'a MetricBatch<'a>),
}

impl Payload<'_> {
    /// The `content-type` and the body.
    fn encode(&self, encoding: Encoding) -> (&'static str, Vec<u8>) {
        match encoding {
            Encoding::Protobuf => (
                "application/x-protobuf",
                match self {
                    Payload::Spans(batch) => protobuf::encode(batch),
                    Payload::Metrics(batch) => protobuf::encode_metrics(batch),
                },
            ),
            Encoding::Json => (
                "application/json",
                match self {
                    Payload::Spans(batch) => json::encode(batch),
                    Payload::Metrics(batch) => json::encode_metrics(batch),
                },
            ),
        }
    }

    /// The number of spans or points that the collector refused, and the reason; 0 if it accepted all.
    fn rejected(&self, encoding: Encoding, response: &[u8]) -> (u64, String) {
        match (encoding, self) {
            // Both responses have the same field numbers.
            (Encoding::Protobuf, _) => protobuf::rejected(response),
            (Encoding::Json, Payload::Spans(_)) => json::rejected(response, "rejectedSpans"),
            (Encoding::Json, Payload::Metrics(_)) => json::rejected(response, "rejectedDataPoints"),
        }
    }
}

pub(crate) struct Sender {
    client: Client,
    url: Url,
    headers: HeaderMap,
    encoding: Encoding,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SendResult {
    /// The collector accepted all spans or points except `rejected`, with its reason.
    Accepted { rejected: u64, message: String },
    /// A retry may succeed.
    Later {
        why: String,
        retry_after: Option<Duration>,
    },
    /// A retry cannot succeed.
    Refused { why: String },
}

impl Sender {
    pub fn new(url: Url, headers: HeaderMap, encoding: Encoding) -> Result<Sender, ClientError> {
        // An error means that the same provider is already installed.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .connect_timeout(CONNECT_MAX)
            .timeout(RESPONSE_MAX)
            .redirect(Policy::none())
            .referer(false)
            .user_agent(concat!("model-pool/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| ClientError(root_of(&error)))?;
        Ok(Sender {
            client,
            url,
            headers,
            encoding,
        })
    }

    pub async fn send(&self, payload: &Payload<'_>) -> SendResult {
        let (kind, body) = payload.encode(self.encoding);
        let request = self
            .client
            .post(self.url.clone())
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, kind)
            .body(body);
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) => {
                return SendResult::Later {
                    why: root_of(&error.without_url()),
                    retry_after: None,
                };
            }
        };
        let status = response.status();
        let seconds = response.headers().get(RETRY_AFTER);
        let seconds = seconds.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let body = start_of(response).await;
        if status.is_success() {
            let (rejected, message) = payload.rejected(self.encoding, &body);
            return SendResult::Accepted { rejected, message };
        }
        let body = String::from_utf8_lossy(&body);
        let why = match body.trim() {
            "" => format!("it answered {status}"),
            text => {
                let text: String = text.chars().take(ERROR_BYTES_MAX).collect();
                format!("it answered {status}: {}", text.replace('\n', " "))
            }
        };
        let is_passing = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        );
        if is_passing {
            SendResult::Later {
                why,
                retry_after: seconds.map(Duration::from_secs),
            }
        } else {
            SendResult::Refused { why }
        }
    }
}

/// Reads the beginning of a response, which is enough for a collector's message.
async fn start_of(mut response: reqwest::Response) -> Vec<u8> {
    const RESPONSE_BYTES_MAX: usize = 64 << 10;
    let mut body = Vec::new();
    while let Ok(Some(piece)) = response.chunk().await {
        body.extend_from_slice(&piece);
        if body.len() >= RESPONSE_BYTES_MAX {
            break;
        }
    }
    body
}

fn root_of(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(deeper) = cause.source() {
        cause = deeper;
    }
    cause.to_string()
}

/// Parses header lines such as `authorization: Bearer …`. An error names the line by its number, without its content.
pub fn parse_headers<'a>(lines: impl Iterator<Item = &'a str>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (nth, line) in lines.enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |what: &str| format!("line {}: {what}", nth + 1);
        let (name, value) = line
            .split_once([':', '='])
            .ok_or_else(|| wrong("write a header such as `authorization: Bearer …`"))?;
        let name = HeaderName::from_bytes(name.trim().as_bytes());
        let name =
            name.map_err(|_| wrong("the name of the header has a character that is not allowed"))?;
        let value = HeaderValue::from_str(value.trim());
        let mut value = value
            .map_err(|_| wrong("the value of the header has a character that is not allowed"))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_parsed_line_by_line_and_errors_never_quote_them() {
        let headers = parse_headers("# key\nauthorization: Bearer a=b\n\nx-team = lab\n".lines());
        let headers = headers.unwrap();
        assert_eq!(headers["authorization"], "Bearer a=b");
        assert_eq!(headers["x-team"], "lab");
        assert!(headers["authorization"].is_sensitive());
        for wrong in ["secret", "secret word: x", "x: \u{7}secret"] {
            let error = parse_headers(["", wrong].into_iter()).unwrap_err();
            assert!(error.starts_with("line 2: "), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
