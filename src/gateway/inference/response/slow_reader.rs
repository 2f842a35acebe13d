//! Clients that read slowly while other requests wait for the model. The engine then writes into a bounded buffer, and its seat is
//! freed as soon as it is done. A client that reads nothing, or whose buffer is full, loses its stream.

use std::time::Duration;

use axum::body::Bytes;

use crate::inference::admission;
use crate::inference::in_flight::InFlightRequest;
use crate::state::App;
use controller::Lease;
use edge::fed::Frames;
use edge::record;
use edge::shares::Permit;
use pool::{Span, Time};

/// Time without a read after which a client counts as stalled. Its engine is drained into the buffer if other requests wait.
const STALLED_AFTER: Duration = Duration::from_secs(1);
/// Time after which a stalled client loses its stream if other requests wait.
pub const STALLED_MAX: Duration = Duration::from_secs(10);
/// Interval between checks of a stalled client.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// The result of sending a piece of a response.
#[derive(Debug)]
pub(crate) enum Passed {
    On,
    /// The client has disconnected.
    Left,
    /// The client did not read while other requests waited.
    Stalled,
}

/// The state of the client of one stream.
#[derive(Debug, Default)]
pub(crate) struct SlowReader {
    /// Start of the stall, and the number of pieces taken before it.
    stalled: Option<(Time, u64)>,
    /// The engine is drained regardless of the client.
    is_drained: bool,
}

/// A piece with its share of the buffer memory, held until it is sent.
struct BufferedPiece {
    piece: Bytes,
    _permit: Permit,
}

impl AsRef<[u8]> for BufferedPiece {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

impl SlowReader {
    /// Sends a piece for which the queue had no room. While no other request waits, a slow client holds back its engine.
    pub async fn send(
        &mut self,
        app: &App,
        frames: &Frames,
        piece: Bytes,
        served: &InFlightRequest,
    ) -> Passed {
        served.lease.hold();
        let passed = self.wait(app, frames, piece, served).await;
        served.lease.resume();
        passed
    }

    async fn wait(
        &mut self,
        app: &App,
        frames: &Frames,
        piece: Bytes,
        served: &InFlightRequest,
    ) -> Passed {
        let cut = served.lease.cut();
        let mut begun = served.clock.now();
        let mut patience = if self.is_drained {
            Duration::ZERO
        } else {
            STALLED_AFTER
        };
        loop {
            // A client that never reads must not keep a cut stream open.
            tokio::select! {
                biased;
                sent = frames.send(piece.clone()) => {
                    self.stalled = None;
                    return if sent { Passed::On } else { Passed::Left };
                }
                () = cut.cancelled() => return Passed::On,
                () = served.ending.cancelled() => return Passed::On,
                () = admission::over(served.clock, served.deadline) => return Passed::On,
                () = tokio::time::sleep(patience) => {}
            }
            patience = CHECK_EVERY;
            let (now, taken) = (served.clock.now(), frames.taken());
            if !served.lease.is_wanted() {
                self.stalled = None;
                begun = now;
                continue;
            }
            self.is_drained = true;
            let since = match self.stalled {
                Some((since, before)) if before == taken => since,
                _ => now,
            };
            self.stalled = Some((since, taken));
            // The client reads nothing, or the buffer is full.
            if now.since(since.min(begun)) >= span(STALLED_MAX) {
                return Passed::Stalled;
            }
            let (caller, _) = record::caller();
            let bytes = piece.len() as u64;
            if let Some(permit) = app.edge.try_buffer(caller, bytes, now) {
                frames.send_beyond(Bytes::from_owner(BufferedPiece {
                    piece,
                    _permit: permit,
                }));
                return Passed::On;
            }
        }
    }
}

/// Waits until the client has taken a piece. `None` if it stalled while other requests waited for its seat.
pub(crate) async fn taken<T>(lease: &Lease, sent: impl Future<Output = T>) -> Option<T> {
    let stalled = async {
        let mut waited = Duration::ZERO;
        while waited < STALLED_MAX {
            tokio::time::sleep(CHECK_EVERY).await;
            if lease.is_wanted() {
                waited += CHECK_EVERY;
            } else {
                waited = Duration::ZERO;
            }
        }
    };
    tokio::select! {
        biased;
        sent = sent => Some(sent),
        () = stalled => None,
    }
}

fn span(time: Duration) -> Span {
    Span(time.as_millis() as u64)
}
