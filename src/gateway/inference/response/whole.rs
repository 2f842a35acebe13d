//! Non-streaming responses, forwarded byte for byte. A short response is held until it is complete; if the engine fails before, the
//! client gets an error status or the request is retried. A longer response has already been sent in part, so its connection is
//! closed.

use std::pin::pin;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::BytesMut;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Frame, SizeHint};
use thiserror::Error;
use tokio::sync::mpsc;

use crate::inference::admission;
use crate::inference::in_flight::{InFlightRequest, JSON, why};
use crate::inference::response::slow_reader::taken;
use crate::inference::response::stream::spawn;
use crate::inference::response::usage_scan::UsageScan;
use crate::upstream::proxy::Incoming;
use api_types::error::Failure;

/// Longer responses are forwarded before they are complete.
const HELD_BYTES_MAX: usize = 64 << 10;
/// Number of pieces that may wait for a slow client before the engine is held back.
const PIECES_MAX: usize = 2;

/// A non-streaming response, after its beginning has arrived.
pub(crate) enum Whole {
    /// Complete.
    Held(Response),
    /// Forwarded to the client while it arrives.
    Passing(Response),
}

/// Reads the response completely, or up to the number of bytes that are held. The headers are added later.
pub(crate) async fn pass(
    served: InFlightRequest,
    mut upstream: Incoming,
) -> Result<Whole, Failure> {
    let (cut, ending) = (served.lease.cut(), served.ending.clone());
    let mut cut = pin!(cut.cancelled());
    let mut ending = pin!(ending.cancelled());
    let mut scan = UsageScan::default();
    let mut held = Bytes::new();
    loop {
        let frame = tokio::select! {
            biased;
            frame = upstream.frame(), if served.lease.why().is_none() => frame,
            () = &mut cut => return Err(why(&served).await),
            () = &mut ending => return Err(Failure::ending(&served.model)),
        };
        match frame {
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else {
                    continue;
                };
                served.token();
                scan.push(&data);
                held = joined(held, data);
                if held.len() > HELD_BYTES_MAX {
                    return Ok(Whole::Passing(passed_on(served, upstream, scan, held)));
                }
            }
            None if scan.is_whole() => break,
            // An incomplete response is an error even if the connection was closed properly.
            None | Some(Err(_)) => {
                served.lease.worked(false);
                return Err(why(&served).await);
            }
        }
    }
    end(&served, &scan);
    // Frees the seat for other requests while the response is written.
    drop(served);
    Ok(Whole::Held(Response::new(Body::from(held))))
}

/// Appends `data`. Most responses arrive in one piece.
fn joined(held: Bytes, data: Bytes) -> Bytes {
    if held.is_empty() {
        return data;
    }
    let mut both = BytesMut::from(held);
    both.extend_from_slice(&data);
    both.freeze()
}

fn end(served: &InFlightRequest, scan: &UsageScan) {
    if let Some(usage) = scan.usage() {
        served.tokens(usage);
    }
    served.responded(200);
}

/// The response with its headers, which are added to `map` to reuse its memory.
pub(crate) fn with_head(mut response: Response, map: HeaderMap) -> Response {
    let own = std::mem::replace(response.headers_mut(), map);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, JSON);
    headers.extend(own);
    response
}

/// The response ended before it was complete.
#[derive(Debug, Error)]
#[error("the engine closed the connection before its response was complete")]
struct BrokenOff;

type Piece = Result<Bytes, BrokenOff>;

/// The pieces of a response, as a body of known length.
struct Pieces {
    pieces: mpsc::Receiver<Piece>,
    /// The length of the complete body, if the engine sent it.
    length: Option<u64>,
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let piece = self.pieces.poll_recv(context);
        piece.map(|piece| piece.map(|piece| piece.map(Frame::data)))
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

/// Forwards a long response from a separate task.
fn passed_on(
    served: InFlightRequest,
    mut upstream: Incoming,
    mut scan: UsageScan,
    held: Bytes,
) -> Response {
    // The response has been computed; only the client takes time now.
    served.lease.hold();
    let length = upstream.size_hint().exact();
    let length = length.map(|rest| rest + held.len() as u64);
    let (sender, pieces) = mpsc::channel(PIECES_MAX);
    spawn(async move {
        let work = async {
            match taken(&served.lease, sender.send(Ok(held))).await {
                Some(Ok(())) => {}
                Some(Err(_)) => return None,
                None => return Some(false),
            }
            while let Some(frame) = upstream.frame().await {
                let Ok(frame) = frame else {
                    return Some(false);
                };
                let Ok(data) = frame.into_data() else {
                    continue;
                };
                scan.push(&data);
                match taken(&served.lease, sender.send(Ok(data))).await {
                    Some(Ok(())) => {}
                    Some(Err(_)) => return None,
                    None => return Some(false),
                }
            }
            Some(scan.is_whole())
        };
        let cut = served.lease.cut();
        let is_whole = tokio::select! {
            biased;
            is_whole = work => is_whole,
            () = cut.cancelled() => Some(false),
            () = served.ending.cancelled() => Some(false),
            () = sender.closed() => None,
            () = admission::over(served.clock, served.deadline) => Some(false),
        };
        match is_whole {
            Some(true) => end(&served, &scan),
            Some(false) => {
                served.lease.worked(false);
                served.responded(502);
                let _ = sender.try_send(Err(BrokenOff));
            }
            // The client has disconnected.
            None => {}
        }
    });
    let body = Pieces { pieces, length };
    let mut response = Response::new(Body::new(body));
    if let Some(length) = length {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    response
}
