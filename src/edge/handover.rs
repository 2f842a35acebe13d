//! Takes an HTTP/1.1 stream over from hyper once its head is sent and the stream is pending. A connection that only carries a
//! stream then needs neither a parser nor its buffers.

use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::http::{Method, Request, Response, Version, header};
use hyper::body::{Body, Frame, SizeHint};

use super::fed::Streamed;

/// No stream is offered.
const NONE: u8 = 0;
/// The earlier part of the stream is in hyper's buffer, and may not be sent yet.
const OFFERED: u8 = 1;
const SENT: u8 = 2;

/// The stage of a handover. Only used by the connection's task.
#[derive(Debug, Default)]
pub(super) struct Stage(AtomicU8);

impl Stage {
    /// Called when hyper has flushed everything it has written.
    pub(crate) fn flushed(&self) {
        if self.0.load(Ordering::Relaxed) == OFFERED {
            self.0.store(SENT, Ordering::Relaxed);
        }
    }
}

/// The link between hyper and the connection.
pub(super) struct Handover<B> {
    body: Mutex<Option<B>>,
    stage: Arc<Stage>,
}

/// Returns true if a streaming response to this request can be taken over from hyper.
pub(super) fn is_simple<B>(request: &Request<B>) -> bool {
    let mut values = request.headers().get_all(header::CONNECTION).into_iter();
    request.version() == Version::HTTP_11
        && *request.method() == Method::POST
        && values.all(|value| value.as_bytes().eq_ignore_ascii_case(b"keep-alive"))
}

impl<B> Handover<B> {
    pub fn new(stage: &Arc<Stage>) -> Handover<B> {
        Handover {
            body: Mutex::new(None),
            stage: Arc::clone(stage),
        }
    }

    fn offer(&self, body: B) {
        *self.body.lock().unwrap_or_else(PoisonError::into_inner) = Some(body);
        self.stage.0.store(OFFERED, Ordering::Relaxed);
    }

    /// Takes the rest of a stream once its beginning has been sent.
    pub fn take(&self) -> Option<B> {
        if self.stage.0.load(Ordering::Relaxed) != SENT {
            return None;
        }
        self.stage.0.store(NONE, Ordering::Relaxed);
        let mut body = self.body.lock().unwrap_or_else(PoisonError::into_inner);
        body.take()
    }
}

impl<B: Body> Handover<B> {
    /// Wraps a response for hyper. Of a stream, hyper only sends the head and the first pieces; other responses are unchanged.
    pub fn outgoing(self: &Arc<Self>, mut response: Response<B>) -> Response<Outgoing<B>> {
        let is_streamed = response.extensions_mut().remove::<Streamed>().is_some();
        let headers = response.headers();
        let has_end = response.body().size_hint().exact().is_some()
            || headers.contains_key(header::CONTENT_LENGTH)
            || headers.contains_key(header::CONNECTION);
        let handover = (is_streamed && !has_end).then(|| Arc::clone(self));
        response.map(|body| Outgoing {
            body: Some(body),
            handover,
        })
    }
}

/// A response body as hyper sees it.
pub(super) struct Outgoing<B> {
    /// `None` once offered: hyper then sees a body that is pending forever.
    body: Option<B>,
    /// The handover to which the body is offered as soon as it is pending.
    handover: Option<Arc<Handover<B>>>,
}

impl<B> Outgoing<B> {
    /// A body that hyper sends completely.
    pub fn new(body: B) -> Outgoing<B> {
        Outgoing {
            body: Some(body),
            handover: None,
        }
    }
}

impl<B: Body + Unpin> Body for Outgoing<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.get_mut();
        let Some(body) = &mut this.body else {
            return Poll::Pending;
        };
        let polled = Pin::new(body).poll_frame(context);
        // hyper has written the head before it polls the body, and flushes both when the body is pending.
        if polled.is_pending()
            && let Some(handover) = &this.handover
            && let Some(body) = this.body.take()
        {
            handover.offer(body);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_some_and(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .as_ref()
            .map_or_else(SizeHint::new, Body::size_hint)
    }
}
