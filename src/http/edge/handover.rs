//! A stream over HTTP/1.1, taken from hyper once its head is sent and it has nothing for the moment: a connection that only carries
//! a stream needs no parser, and none of the buffers of one.

use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use axum::http::{Method, Request, Response, Version, header};
use hyper::body::{Body, Frame, SizeHint};

use super::fed::Streamed;

/// No stream is on offer.
const NONE: u8 = 0;
/// What the stream had until it was offered is in hyper's buffer, and perhaps not sent.
const OFFERED: u8 = 1;
const SENT: u8 = 2;

/// How far a stream has come. All of it happens in the task of the connection.
#[derive(Debug, Default)]
pub(super) struct Stage(AtomicU8);

impl Stage {
    /// All that hyper has written is sent.
    pub fn flushed(&self) {
        if self.0.load(Ordering::Relaxed) == OFFERED {
            self.0.store(SENT, Ordering::Relaxed);
        }
    }
}

/// Between hyper and the connection.
pub(super) struct Handover<B> {
    body: Mutex<Option<B>>,
    stage: Arc<Stage>,
}

/// Whether the connection may go on after a streamed answer to this request without hyper.
pub(super) fn is_simple<B>(request: &Request<B>) -> bool {
    let mut values = request.headers().get_all(header::CONNECTION).into_iter();
    request.version() == Version::HTTP_11
        && *request.method() == Method::POST
        && values.all(|it| it.as_bytes().eq_ignore_ascii_case(b"keep-alive"))
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

    /// The rest of a stream whose beginning is sent.
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
    /// A stream of which hyper sends the head and what comes with it, and every other answer as it is.
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

/// The body of an answer as hyper sees it.
pub(super) struct Outgoing<B> {
    /// `None` once it is offered: it has no end for hyper then, and nothing in it.
    body: Option<B>,
    /// Where it is offered as soon as it has nothing for the moment.
    handover: Option<Arc<Handover<B>>>,
}

impl<B> Outgoing<B> {
    /// For hyper, to the end.
    pub fn of(body: B) -> Outgoing<B> {
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
        // hyper has written the head before it asks for the body, and flushes both when there is no more for the moment.
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
