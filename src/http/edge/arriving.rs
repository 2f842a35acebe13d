//! A request's body on its way in, read when a handler reads it, and as a whole. The answer learns what became of it,
//! also when no handler read it.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::StatusCode;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::bodies::Bodies;
use super::record::Record;
use crate::error::Failure;

/// So much of a body that the handler has not read is received, and for so long.
const THROWN_AWAY_MAX: usize = 64 << 20;
const THROWN_AWAY_WITHIN: Duration = Duration::from_secs(2);

/// What became of a body, for the code that answers its request.
#[derive(Debug, Default)]
pub struct Outcome {
    refused: OnceLock<Failure>,
    is_complete: AtomicBool,
    /// The handler did not ask for it.
    unread: Mutex<Option<Incoming>>,
}

impl Outcome {
    fn leave(&self, body: Incoming) {
        let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
        *unread = Some(body);
    }

    /// Why it was not read: the answer that its request gets, whatever the handler makes of it.
    pub fn refused(&self) -> Option<Failure> {
        self.refused.get().cloned()
    }

    /// Whether nothing of the body is left on the connection, so that another request may follow. What a
    /// handler left is read for a moment and thrown away: a client whose last bytes meet a closed
    /// connection may never see its answer.
    /// One that waits to be asked for its body is not asked only for that.
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

/// Whether the body came to its end within a moment.
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

/// A body that is read where it lies, by code that needs no body around it.
pub struct PlainBody {
    body: Incoming,
    progress: Progress,
}

enum Progress {
    /// Nothing was read, or its client is still sending and must be let to read why that is in vain.
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
            Err(failure) if failure.status != StatusCode::REQUEST_TIMEOUT => Progress::Left,
            Err(_) => Progress::Begun,
        };
        read
    }

    /// As [`Outcome::is_over`].
    pub async fn takes_another(self, waits: bool) -> bool {
        match self.progress {
            Progress::Left => !waits && throw_away(self.body).await,
            Progress::Begun => false,
            Progress::Complete => true,
        }
    }
}

/// What was read, and what is left of the body.
type Reading = Pin<Box<dyn Future<Output = (Result<Bytes, Failure>, Incoming)> + Send>>;

/// The body that handlers see: one frame, when it has arrived.
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
                self.outcome.is_complete.store(true, Ordering::Relaxed);
                (!bytes.is_empty()).then(|| Ok(Frame::data(bytes)))
            }
            Err(failure) => {
                // Who is still sending must be let to read why it is in vain.
                if failure.status != StatusCode::REQUEST_TIMEOUT {
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
