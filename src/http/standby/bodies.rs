//! Bodies that pass through a standby: each piece is forwarded as it arrives, and the next is only read once the other side has
//! taken it. Dropping either body ends the exchange on the other side too.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use axum::body::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::leader::Route;
use edge::record::Record;
use edge::shares::Permit;

/// The last event of a stream that is cut, because its client can no longer receive a status.
const CUT: &[u8] = b"\n\ndata: {\"error\":{\"message\":\"the responding controller is gone, and another one takes over; send the request again\",\"type\":\"server_error\",\"param\":null,\"code\":\"leader_lost\"}}\n\n";

/// A client's body on its way to the leader.
pub(super) struct Sending {
    pub body: Incoming,
    pub record: Arc<Record>,
}

impl Body for Sending {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
            this.record.bytes_in.fetch_add(bytes, Ordering::Relaxed);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The reason why a response ends early.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResponseError {
    #[error("the connection to the leader failed: {0}")]
    Broken(#[from] hyper::Error),
    #[error("the responding controller is no longer the leader")]
    Gone,
}

/// The leader's response on its way to the client.
pub(super) struct Responding {
    body: Incoming,
    route: Route,
    gone: Pin<Box<WaitForCancellationFutureOwned>>,
    /// The response is an event stream, so an error can be sent as an event.
    is_events: bool,
    is_over: bool,
    _permit: Permit,
}

impl Responding {
    pub fn new(body: Incoming, route: Route, is_events: bool, permit: Permit) -> Responding {
        Responding {
            body,
            gone: Box::pin(route.leader.gone.clone().cancelled_owned()),
            route,
            is_events,
            is_over: false,
            _permit: permit,
        }
    }

    fn cut(&mut self, cut: ResponseError) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        tracing::debug!("cut a forwarded response: {cut}");
        self.is_over = true;
        Poll::Ready(Some(if self.is_events {
            Ok(Frame::data(Bytes::from_static(CUT)))
        } else {
            Err(cut)
        }))
    }
}

impl Body for Responding {
    type Data = Bytes;
    type Error = ResponseError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseError>>> {
        let this = self.get_mut();
        if this.is_over {
            return Poll::Ready(None);
        }
        match Pin::new(&mut this.body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => Poll::Ready(Some(Ok(frame))),
            Poll::Ready(Some(Err(error))) => {
                this.route.discard();
                this.cut(ResponseError::Broken(error))
            }
            Poll::Ready(None) => {
                this.is_over = true;
                Poll::Ready(None)
            }
            // Data that is available is forwarded even if the leader is gone.
            Poll::Pending => match this.gone.as_mut().poll(context) {
                Poll::Ready(()) => this.cut(ResponseError::Gone),
                Poll::Pending => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.is_over || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // An error event may be added at the end.
        if self.is_events {
            SizeHint::default()
        } else {
            self.body.size_hint()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_stream_ends_with_an_error_object() {
        let text = std::str::from_utf8(CUT).expect("text");
        let data = text.trim().strip_prefix("data: ").expect("an event");
        let read: serde_json::Value = serde_json::from_str(data).expect("JSON");
        assert_eq!(read["error"]["code"], "leader_lost");
    }
}
