//! Forwards engine responses as raw bytes while they arrive: audio, images, and llama.cpp's own formats.

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use http_body_util::BodyExt;
use memchr::memmem;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::inference::admission;
use crate::inference::in_flight::{InFlightRequest, why};
use crate::inference::request::failed;
use crate::inference::response::slow_reader::taken;
use crate::inference::response::stream::spawn;
use crate::upstream::proxy::Incoming;
use dialect::usage::Usage;

/// Number of pieces that may wait for a slow client.
const PIECES_MAX: usize = 16;

/// Forwards the engine's bytes as they arrive. If the engine fails, the client's connection is aborted, because half an audio file
/// must not look complete. `scan` reads the token usage.
pub(crate) fn flowing(
    served: InFlightRequest,
    reply: hyper::Response<Incoming>,
    mut scan: Option<TokenScan>,
) -> Response {
    let (pieces, received) = mpsc::channel::<Result<Bytes, std::io::Error>>(PIECES_MAX + 1);
    // Reserves a place for the final error, even if the queue is full.
    let last = pieces.clone().try_reserve_owned().ok();
    let (head, mut upstream) = reply.into_parts();
    spawn(async move {
        let fail = move |error: std::io::Error| drop(last.map(|last| last.send(Err(error))));
        let cut = served.lease.cut();
        let mut late = std::pin::pin!(admission::over(served.clock, served.deadline));
        loop {
            let frame = tokio::select! {
                biased;
                () = cut.cancelled() => None,
                () = served.ending.cancelled() => None,
                () = pieces.closed() => return,
                () = &mut late => {
                    served.responded(504);
                    let timeout_error = std::io::Error::other("the deadline of x-request-timeout has passed");
                    fail(timeout_error);
                    return;
                }
                frame = upstream.frame() => Some(frame),
            };
            match frame {
                Some(Some(Ok(frame))) => {
                    let Ok(data) = frame.into_data() else {
                        continue;
                    };
                    // Any data counts as progress of the engine, even without tokens.
                    served.lease.token();
                    if let Some(usage) = scan.as_mut().and_then(|scan| scan.read(&data)) {
                        served.tokens(usage);
                    }
                    served.lease.hold();
                    let sent = tokio::select! {
                        biased;
                        sent = taken(&served.lease, pieces.send(Ok(data))) => matches!(sent, Some(Ok(()))),
                        () = cut.cancelled() => true,
                        () = served.ending.cancelled() => true,
                        () = admission::over(served.clock, served.deadline) => true,
                    };
                    served.lease.resume();
                    if !sent {
                        fail(std::io::Error::other(
                            "the client did not read for too long",
                        ));
                        return;
                    }
                }
                Some(None) => return served.responded(200),
                broken @ (Some(Some(Err(_))) | None) => {
                    if broken.is_some() {
                        served.lease.worked(false);
                    }
                    let why = why(&served).await;
                    failed::note(&why);
                    served.responded(why.status().as_u16());
                    let timeout_error = std::io::Error::other(why.body.error.message.clone());
                    fail(timeout_error);
                    return;
                }
            }
        }
    });
    let mut response = Response::new(Body::from_stream(ReceiverStream::new(received)));
    let kind = head.headers.get(header::CONTENT_TYPE);
    let kind = kind.filter(|kind| is_data(kind)).cloned();
    let unknown = HeaderValue::from_static("application/octet-stream");
    let kind = kind.unwrap_or(unknown);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Returns true for types that a browser does not execute as a page of this service.
fn is_data(kind: &HeaderValue) -> bool {
    let text = kind.to_str().unwrap_or_default().to_ascii_lowercase();
    let essence = text.split(';').next().unwrap_or_default().trim();
    let (group, name) = essence.split_once('/').unwrap_or_default();
    matches!(
        essence,
        "application/json" | "text/event-stream" | "text/plain"
    ) || (matches!(group, "audio" | "image" | "video") && !name.contains("xml"))
}

/// Reads llama.cpp's token counts from a response without parsing it. Text in the response cannot contain the marks, because its
/// quotes are escaped.
#[derive(Debug, Default)]
pub(crate) struct TokenScan {
    /// The end of the previous piece, because a mark may span two pieces.
    rest: Vec<u8>,
    found: Usage,
}

const PROMPT: &[u8] = b"\"tokens_evaluated\":";
const COMPLETION: &[u8] = b"\"tokens_predicted\":";
/// Length of a mark with its number.
const MARK_BYTES_MAX: usize = PROMPT.len() + 24;

impl TokenScan {
    /// Returns the counts so far if this piece has changed them.
    fn read(&mut self, piece: &[u8]) -> Option<Usage> {
        let before = self.found;
        let mut text = std::mem::take(&mut self.rest);
        text.extend_from_slice(piece);
        for (mark, count) in [
            (PROMPT, &mut self.found.prompt_tokens),
            (COMPLETION, &mut self.found.completion_tokens),
        ] {
            for at in memmem::find_iter(&text, mark) {
                *count = number(&text[at + mark.len()..]).max(*count);
            }
        }
        let kept = text.len().saturating_sub(MARK_BYTES_MAX);
        self.rest = text.split_off(kept);
        (self.found != before).then_some(self.found)
    }
}

/// The number at the beginning of a text, or 0.
fn number(text: &[u8]) -> u64 {
    let digits = text.trim_ascii_start().iter().take(20);
    let digits = digits.take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |sum, digit| {
        sum.saturating_mul(10)
            .saturating_add(u64::from(digit - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_counted_for_any_split_of_the_response() {
        let text = br#"{"content":"\"tokens_predicted\":99","tokens_predicted":12,"tokens_evaluated": 345,"prompt":"x"}"#;
        for size in [1, 2, 7, 40, text.len()] {
            let mut scan = TokenScan::default();
            for piece in text.chunks(size) {
                scan.read(piece);
            }
            let expected = Usage {
                prompt_tokens: 345,
                completion_tokens: 12,
            };
            assert_eq!(scan.found, expected, "{size}");
        }
    }

    #[test]
    fn an_engine_cannot_return_a_web_page() {
        for (kind, expected) in [
            ("application/json; charset=utf-8", true),
            ("image/png", true),
            ("audio/mpeg", true),
            ("image/svg+xml", false),
            ("text/html", false),
            ("application/xhtml+xml", false),
        ] {
            assert_eq!(is_data(&HeaderValue::from_static(kind)), expected, "{kind}");
        }
    }
}
