//! A stream over HTTP/1.1, taken from hyper once the head of its answer is sent: a connection that only carries a stream then
//! needs no parser, and none of the buffers of one.

use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::body::Bytes;
use axum::http::{Method, Request, Response, Version, header};
use hyper::body::{Body, Frame, SizeHint};

use super::exchange::Sent;
use super::fed::Streamed;

/// No stream is on offer, or its head is not written yet.
const NONE: u8 = 0;
/// The head of the answer is in hyper's buffer, and perhaps not sent.
const HEAD_WRITTEN: u8 = 1;
const HEAD_SENT: u8 = 2;

/// Between hyper and the connection: all of it happens in the task of the connection.
#[derive(Default)]
pub(super) struct Handover {
    body: Mutex<Option<Sent>>,
    stage: AtomicU8,
}

/// Whether the connection may go on after a streamed answer to this request without hyper.
pub(super) fn is_simple<B>(request: &Request<B>) -> bool {
    let mut values = request.headers().get_all(header::CONNECTION).into_iter();
    request.version() == Version::HTTP_11
        && *request.method() == Method::POST
        && values.all(|it| it.as_bytes().eq_ignore_ascii_case(b"keep-alive"))
}

impl Handover {
    /// Keeps the body of a stream for [`Handover::take`]; every other answer stays as it is.
    pub fn offer(self: &Arc<Handover>, mut response: Response<Sent>) -> Response<Outgoing> {
        let is_streamed = response.extensions_mut().remove::<Streamed>().is_some();
        let headers = response.headers();
        let has_end = [header::CONTENT_LENGTH, header::CONNECTION]
            .iter()
            .any(|it| headers.contains_key(it));
        if !is_streamed || has_end {
            return response.map(Outgoing::Sent);
        }
        response.map(|body| {
            self.stage.store(NONE, Ordering::Relaxed);
            *self.body.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
            Outgoing::Kept(Arc::clone(self))
        })
    }

    /// All that hyper has written is sent.
    pub fn flushed(&self) {
        if self.stage.load(Ordering::Relaxed) == HEAD_WRITTEN {
            self.stage.store(HEAD_SENT, Ordering::Relaxed);
        }
    }

    /// The body of the stream whose head is sent.
    pub fn take(&self) -> Option<Sent> {
        if self.stage.load(Ordering::Relaxed) != HEAD_SENT {
            return None;
        }
        self.stage.store(NONE, Ordering::Relaxed);
        let mut body = self.body.lock().unwrap_or_else(PoisonError::into_inner);
        body.take()
    }
}

/// The body of an answer as hyper sees it.
pub(super) enum Outgoing {
    Sent(Sent),
    /// Without an end, and with nothing in it: the connection writes it.
    Kept(Arc<Handover>),
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match self.get_mut() {
            Outgoing::Sent(body) => Pin::new(body).poll_frame(context),
            Outgoing::Kept(handover) => {
                // hyper polls a body once its head is written, and flushes when the body has no more.
                if handover.stage.load(Ordering::Relaxed) == NONE {
                    handover.stage.store(HEAD_WRITTEN, Ordering::Relaxed);
                }
                Poll::Pending
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Outgoing::Sent(body) => body.is_end_stream(),
            Outgoing::Kept(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Outgoing::Sent(body) => body.size_hint(),
            Outgoing::Kept(_) => SizeHint::new(),
        }
    }
}
