//! The incoming body of an upload, passed to its handler while it arrives. Its handler limits its size and the client's silence.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::arriving::Outcome;
use super::record::Record;

/// The body as its handler sees it.
pub struct Streaming {
    /// `None` once it is over.
    body: Option<Incoming>,
    record: Arc<Record>,
    outcome: Arc<Outcome>,
}

impl Streaming {
    pub(super) fn new(body: Incoming, record: &Arc<Record>) -> (Streaming, Arc<Outcome>) {
        let outcome = Arc::new(Outcome::default());
        let streaming = Streaming {
            body: Some(body),
            record: Arc::clone(record),
            outcome: Arc::clone(&outcome),
        };
        (streaming, outcome)
    }
}

impl Body for Streaming {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let Some(body) = &mut self.body else {
            return Poll::Ready(None);
        };
        let frame = ready!(Pin::new(body).poll_frame(cx));
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
                self.record.bytes_in.fetch_add(bytes, Ordering::Relaxed);
                Some(Ok(frame))
            }
            Some(Err(error)) => {
                self.body = None;
                Some(Err(error.into()))
            }
            None => {
                self.body = None;
                self.outcome.complete();
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.body.as_ref().map(Body::size_hint);
        hint.unwrap_or_else(|| SizeHint::with_exact(0))
    }
}

impl Drop for Streaming {
    fn drop(&mut self) {
        match self.body.take() {
            // A form ends before its body does.
            Some(body) if body.is_end_stream() => self.outcome.complete(),
            Some(body) => self.outcome.leave(body),
            None => {}
        }
    }
}
