//! Reads the first event of an engine's stream. If it is an error, the client still gets it as an HTTP status.

use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::inference::in_flight::{InFlightRequest, why};
use crate::upstream::proxy::Incoming;
use crate::upstream::remote;
use crate::virtual_models::causes::PromptTooLong;
use api_types::error::Failure;
use dialect::events::{BodyForm, LINE_ENDS_MAX, data_of, event_end_from};
use dialect::overflow;

/// Longer first events are not treated as errors.
const ERROR_BYTES_MAX: usize = 64 << 10;

/// The beginning of a stream.
pub(crate) enum Beginning {
    /// The bytes received so far.
    Stream(Bytes),
    Refused(Refusal),
}

/// An error sent by the engine in place of a response.
pub struct Refusal {
    pub status: StatusCode,
    /// The error as OpenAI's object.
    pub error: Value,
}

impl Refusal {
    pub(crate) fn from_error(error: Value) -> Refusal {
        let error = overflow::retold(&error).unwrap_or(error);
        Refusal {
            status: overflow::status_of(&error),
            error,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let is_too_long = self.error["code"] == overflow::CODE;
        let mut response = (self.status, Json(json!({ "error": self.error }))).into_response();
        if is_too_long {
            response.extensions_mut().insert(PromptTooLong);
        }
        response
    }
}

/// Waits a limited time for the first event. After that, the stream counts as begun.
pub(crate) async fn wait(
    upstream: &mut Incoming,
    served: &InFlightRequest,
    within: Duration,
) -> Result<Beginning, Failure> {
    let cut = served.lease.cut();
    let mut text = Vec::new();
    let mut search = Search::default();
    let read = async {
        loop {
            let frame = tokio::select! {
                biased;
                frame = upstream.frame(), if served.lease.why().is_none() => frame,
                () = cut.cancelled() => return Err(why(served).await),
                () = served.ending.cancelled() => return Err(Failure::ending(&served.model)),
            };
            match frame {
                Some(Ok(frame)) => {
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    text.extend_from_slice(&data);
                    match search.first(&text) {
                        First::Error(error) => return Ok(Some(error)),
                        First::Answer => return Ok(None),
                        First::Nothing if text.len() > ERROR_BYTES_MAX => return Ok(None),
                        First::Nothing => {}
                    }
                }
                // The forwarding code decides what the end means.
                None => return Ok(None),
                Some(Err(_)) => {
                    served.lease.worked(false);
                    return Err(why(served).await);
                }
            }
        }
    };
    let error = match tokio::time::timeout(within, read).await {
        Ok(read) => read?,
        Err(_) => None,
    };
    Ok(match error {
        Some(error) => Beginning::Refused(refused(served, error)),
        None => Beginning::Stream(text.into()),
    })
}

fn refused(served: &InFlightRequest, error: Value) -> Refusal {
    let masked = remote::masked(&served.lease, error.to_string().into());
    let refusal = Refusal::from_error(serde_json::from_slice(&masked).unwrap_or(error));
    served.lease.worked(!refusal.status.is_server_error());
    refusal
}

enum First {
    /// No complete event with data yet.
    Nothing,
    Answer,
    Error(Value),
}

/// Searches a growing text for its first event with data. Reads each byte about once, even if the text grows in small steps.
#[derive(Default)]
struct Search {
    /// Start of the incomplete event.
    begun: usize,
    /// Length of its part that was already searched.
    without_end: usize,
}

impl Search {
    fn first(&mut self, text: &[u8]) -> First {
        if BodyForm::read(text) == Some(BodyForm::Json) {
            return First::Answer;
        }
        loop {
            let rest = &text[self.begun..];
            let from = self.without_end.saturating_sub(LINE_ENDS_MAX);
            let Some(length) = event_end_from(rest, from) else {
                self.without_end = rest.len();
                return First::Nothing;
            };
            (self.begun, self.without_end) = (self.begun + length, 0);
            let Some(data) = data_of(&rest[..length]) else {
                continue;
            };
            // A search is cheap, and few events match and need to be parsed.
            if memchr::memmem::find(&data, b"\"error\"").is_none() {
                return First::Answer;
            }
            let value: Value = serde_json::from_slice(&data).unwrap_or_default();
            return match value.get("error") {
                // vLLM's older form.
                None if value["object"] == "error" => First::Error(value),
                Some(Value::String(message)) => First::Error(json!({"message": message})),
                Some(error) if error.is_object() => First::Error(error.clone()),
                _ => First::Answer,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api_types::error::ErrorKind;

    #[test]
    fn the_first_event_with_data_decides_between_response_and_error() {
        for (text, is_error, is_response) in [
            ("", false, false),
            (": waiting\n\n", false, false),
            ("data: {\"error\":{\"message\":\"x\"}}", false, false),
            (
                ": waiting\n\ndata: {\"error\":{\"message\":\"x\"}}\n\n",
                true,
                false,
            ),
            ("data: {\"error\":\"x\"}\n\n", true, false),
            (
                "data: {\"object\":\"error\",\"message\":\"x\"}\n\n",
                true,
                false,
            ),
            ("{\"error\":\"x\"}", false, true),
            ("data: {\"error\":null,\"choices\":[]}\n\n", false, true),
            (
                "data: {\"choices\":[]}\n\ndata: {\"error\":{}}\n\n",
                false,
                true,
            ),
        ] {
            let (mut whole, mut by_bytes) = (Search::default(), Search::default());
            let whole = whole.first(text.as_bytes());
            let mut first = First::Nothing;
            for end in 0..=text.len() {
                if matches!(first, First::Nothing) {
                    first = by_bytes.first(&text.as_bytes()[..end]);
                }
            }
            for first in [whole, first] {
                assert_eq!(matches!(first, First::Error(_)), is_error, "{text}");
                assert_eq!(matches!(first, First::Answer), is_response, "{text}");
            }
        }
    }

    #[test]
    fn an_engines_context_refusal_gets_the_status_and_code_that_clients_expect() {
        let error = json!({"message": "This model's maximum context length is 8 tokens. However, your messages resulted in 9 tokens.", "type": "BadRequestError", "code": 400});
        let refusal = Refusal::from_error(error);
        assert_eq!(refusal.status, ErrorKind::Invalid.status());
        assert_eq!(refusal.error["code"], overflow::CODE);
    }
}
