//! The answer of an engine that was asked plainly, passed on as the bytes that it is. A short one is held until all of it is
//! there, so that the error has its status when the engine breaks off meanwhile, and the request is placed again. Of a
//! longer one a part is with the client by then, and its connection is broken off, too.

use std::pin::pin;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::BytesMut;
use http_body_util::BodyExt;
use hyper::body::{Body as _, Frame, SizeHint};
use thiserror::Error;
use tokio::sync::mpsc;

use crate::error::Failure;
use crate::inference::admission;
use crate::inference::answer::slow_reader::taken;
use crate::inference::answer::stream::spawn;
use crate::inference::answer::usage_scan::UsageScan;
use crate::inference::upstream::in_flight::{InFlightRequest, JSON, why};
use crate::inference::upstream::proxy::Incoming;

/// A longer answer is passed on before all of it is there.
const HELD_BYTES_MAX: usize = 64 << 10;
/// Pieces of a long answer that may wait for a slow reader before the engine is held back.
const PIECES_MAX: usize = 2;

/// How the answer goes on, once its beginning is there.
pub(crate) enum Whole {
    /// All of it was held.
    Held(Response),
    /// The client gets it while it comes.
    Passing(Response),
}

/// Reads the answer, or as much of it as is held. It has no head yet.
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
            // An end within the answer is no end, however politely the connection was closed.
            None | Some(Err(_)) => {
                served.lease.worked(false);
                return Err(why(&served).await);
            }
        }
    }
    end(&served, &scan);
    // Its seat is for others while the answer is written.
    drop(served);
    Ok(Whole::Held(Response::new(Body::from(held))))
}

/// Mostly all of it comes at once.
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
    served.answered(200);
}

/// The answer with its head, which is written into this map.
pub(crate) fn with_head(mut answer: Response, map: HeaderMap) -> Response {
    let own = std::mem::replace(answer.headers_mut(), map);
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, JSON);
    headers.extend(own);
    answer
}

/// The answer ended before it was whole.
#[derive(Debug, Error)]
#[error("the engine broke its answer off")]
struct BrokenOff;

type Piece = Result<Bytes, BrokenOff>;

/// The pieces of an answer, as a body of its known length.
struct Pieces {
    pieces: mpsc::Receiver<Piece>,
    /// Of the whole body, where the engine sent it.
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

/// Passes a long answer on, from a task of its own.
fn passed_on(
    served: InFlightRequest,
    mut upstream: Incoming,
    mut scan: UsageScan,
    held: Bytes,
) -> Response {
    // It has been computed: what takes time from now on is the client.
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
                served.answered(502);
                let _ = sender.try_send(Err(BrokenOff));
            }
            // The client has left.
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
