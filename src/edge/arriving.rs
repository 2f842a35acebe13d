//! The incoming body of a request, read completely when a handler reads it. The code that sends the response learns the outcome
//! even if no handler read the body.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::bodies::Bodies;
use super::record::Record;
use api_types::error::{ErrorKind, Failure};

/// Limits for discarding a body that the handler has not read.
const THROWN_AWAY_MAX: usize = 64 << 20;
const THROWN_AWAY_WITHIN: Duration = Duration::from_secs(2);

/// The outcome of reading a body, for the code that sends the response.
#[derive(Debug, Default)]
pub struct Outcome {
    refused: OnceLock<Failure>,
    is_complete: AtomicBool,
    /// Set if the handler did not read the body.
    unread: Mutex<Option<Incoming>>,
}

impl Outcome {
    pub(super) fn complete(&self) {
        self.is_complete.store(true, Ordering::Relaxed);
    }

    pub(super) fn leave(&self, body: Incoming) {
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        *unread = Some(body);
    }

    /// The error for which the body was refused. It replaces the handler's response.
    pub fn refused(&self) -> Option<Failure> {
        self.refused.get().cloned()
    }

    /// Returns true if the connection has no more bytes of this body and can carry another request. Discards an unread body for a
    /// short time, because a client whose last bytes meet a closed connection may never see the response. `waits`: the client waits
    /// for `100 Continue`, which is not sent only to discard the body.
    pub async fn is_over(&self, waits: bool) -> bool {
        let unread = self
            .unread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        match unread {
            Some(body) => !waits && throw_away(body).await,
            None => self.is_complete.load(Ordering::Relaxed),
        }
    }
}

/// Discards the body. Returns true if it ended within the limits.
pub async fn throw_away(mut body: Incoming) -> bool {
    let all = async {
        let mut received = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return false };
            received += frame.data_ref().map_or(0, Bytes::len);
            if received > THROWN_AWAY_MAX {
                return false;
            }
        }
        true
    };
    tokio::time::timeout(THROWN_AWAY_WITHIN, all)
        .await
        .unwrap_or(false)
}

/// A body that is read directly, without a wrapping body type.
pub struct PlainBody {
    body: Incoming,
    progress: Progress,
}

enum Progress {
    /// Nothing was read, or the body was refused while the client still sends; it must be discarded for the client to read the
    /// response.
    Left,
    Begun,
    Complete,
}

impl PlainBody {
    pub fn new(body: Incoming) -> PlainBody {
        let progress = if body.is_end_stream() {
            Progress::Complete
        } else {
            Progress::Left
        };
        PlainBody { body, progress }
    }

    pub(super) async fn read(
        &mut self,
        bodies: &Bodies,
        record: &Record,
    ) -> Result<Bytes, Failure> {
        if let Progress::Complete = self.progress {
            return Ok(Bytes::new());
        }
        self.progress = Progress::Begun;
        let read = bodies.read(&mut self.body, record).await;
        self.progress = match &read {
            Ok(_) => Progress::Complete,
            Err(failure) if failure.kind != ErrorKind::TooSlow => Progress::Left,
            Err(_) => Progress::Begun,
        };
        read
    }

    /// See [`Outcome::is_over`].
    pub async fn takes_another(self, waits: bool) -> bool {
        match self.progress {
            Progress::Left => !waits && throw_away(self.body).await,
            Progress::Begun => false,
            Progress::Complete => true,
        }
    }
}

/// The bytes read, and the rest of the body.
type Reading = Pin<Box<dyn Future<Output = (Result<Bytes, Failure>, Incoming)> + Send>>;

/// The body as handlers see it: a single frame once it has arrived.
pub struct Arriving {
    state: State,
    length: SizeHint,
    bodies: Arc<Bodies>,
    record: Arc<Record>,
    outcome: Arc<Outcome>,
}

enum State {
    Unread(Incoming),
    Reading(Reading),
    Over,
}

impl Arriving {
    pub fn new(
        body: Incoming,
        bodies: &Arc<Bodies>,
        record: &Arc<Record>,
    ) -> (Arriving, Arc<Outcome>) {
        let outcome = Arc::new(Outcome::default());
        let arriving = Arriving {
            length: body.size_hint(),
            state: State::Unread(body),
            bodies: Arc::clone(bodies),
            record: Arc::clone(record),
            outcome: Arc::clone(&outcome),
        };
        (arriving, outcome)
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let mut reading = match std::mem::replace(&mut self.state, State::Over) {
            State::Over => return Poll::Ready(None),
            State::Reading(reading) => reading,
            State::Unread(mut body) => {
                let (bodies, record) = (Arc::clone(&self.bodies), Arc::clone(&self.record));
                Box::pin(async move { (bodies.read(&mut body, &record).await, body) })
            }
        };
        let (read, rest) = match reading.as_mut().poll(cx) {
            Poll::Pending => {
                self.state = State::Reading(reading);
                return Poll::Pending;
            }
            Poll::Ready(read) => read,
        };
        Poll::Ready(match read {
            Ok(bytes) => {
                self.outcome.complete();
                (!bytes.is_empty()).then(|| Ok(Frame::data(bytes)))
            }
            Err(failure) => {
                // A client that still sends must be able to read the error.
                if failure.kind != ErrorKind::TooSlow {
                    self.outcome.leave(rest);
                }
                let message = failure.body.error.message.clone();
                let _ = self.outcome.refused.set(failure);
                Some(Err(message.into()))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.state, State::Over)
    }

    fn size_hint(&self) -> SizeHint {
        match self.state {
            State::Unread(_) | State::Reading(_) => self.length,
            State::Over => SizeHint::with_exact(0),
        }
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if let State::Unread(body) = std::mem::replace(&mut self.state, State::Over) {
            self.outcome.leave(body);
        }
    }
}
