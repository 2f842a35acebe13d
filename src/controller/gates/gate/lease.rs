//! A request's seat at the gate of a replica, from its entry to its end.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio_util::sync::CancellationToken;

use super::{CutReason, Gate, GateReport, OPEN, mode};
use crate::gates::key_seats::Guest;
use crate::gates::lease_tokens::{FIRST_TOKEN, LeaseTokens};
use crate::gates::replica_adapters::{AdapterSeat, AdapterTurn, ReplicaAdapters};
use crate::gates::seat_user::SeatUser;
use engine::{Beat, Endpoint};
use pool::{ReplicaId, Span, Time, Tokens};

/// A seat on a ready replica. Dropping it, for whatever reason, is the only way a request ends.
#[derive(Debug)]
pub struct Lease {
    gate: Arc<Gate>,
    /// Boxed because a lease is moved several times, in each request's future.
    taken: Box<TakenSeat>,
    beat: Beat,
    keep: Option<KeepHotOverride>,
    adapter: Option<AdapterSeat>,
}

/// A seat that a request has taken.
#[derive(Debug)]
struct TakenSeat {
    user: SeatUser,
    entered: Time,
    /// The wait for the seat, if the request had to wait.
    waited: Option<Span>,
    tokens: LeaseTokens,
    /// The seat of a batch request, which is not counted in the gate's word.
    batch_seat: Option<u64>,
    /// The number of batch requests that had ever entered, if none was inside when this one entered.
    batches_before: Option<u64>,
}

impl TakenSeat {
    fn guest(&self) -> Guest<'_> {
        Guest {
            user: &self.user,
            entered: self.entered,
        }
    }

    fn weight(&self, is_running: bool) -> u64 {
        self.tokens.weight(self.user.expected, is_running)
    }
}

/// A request's own keep-hot time (`keep_alive`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepHotOverride {
    pub span: Span,
    /// `span` may exceed the model's keep-hot time.
    pub may_extend: bool,
}

impl Lease {
    /// A seat that has been taken in the gate's word.
    pub(super) fn new(
        gate: &Arc<Gate>,
        user: &SeatUser,
        tokens: LeaseTokens,
        entered: Time,
        waited: Option<Span>,
    ) -> Lease {
        let batches = &gate.batches;
        Lease {
            taken: Box::new(TakenSeat {
                user: *user,
                entered,
                waited,
                tokens,
                batch_seat: None,
                batches_before: (batches.count() == 0).then(|| batches.entries()),
            }),
            beat: gate.activity.enter(),
            gate: Arc::clone(gate),
            keep: None,
            adapter: None,
        }
    }

    /// The seat of a batch request, which is not in the word.
    pub(super) fn with_batch_seat(mut self, seat: u64) -> Lease {
        self.taken.batch_seat = Some(seat);
        self
    }

    pub fn replica(&self) -> ReplicaId {
        self.gate.replica
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.gate.endpoint
    }

    /// Returns true for the seat of a batch request.
    pub fn is_batch(&self) -> bool {
        self.taken.user.is_batch
    }

    /// Number of times that another process has taken over the listener of the replica's node. Connections opened before the
    /// latest one must not carry further requests.
    pub fn takeovers(&self) -> u64 {
        self.gate.takeovers.load(Ordering::Relaxed)
    }

    /// The model name that the engine expects in the request, where it differs from the pool's.
    pub fn served_name(&self) -> Option<&str> {
        self.gate.served_name.as_deref()
    }

    /// The adapters of the replica.
    pub fn adapters(&self) -> &ReplicaAdapters {
        &self.gate.adapters
    }

    /// The next step of a request for an adapter with these files.
    pub fn ask_adapter(&self, name: &str, mark: pool::FilesFingerprint) -> AdapterTurn {
        let has_guests = self.gate.guests() > 0;
        self.gate.adapters.request(name, mark, has_guests)
    }

    /// Holds a seat of the adapter until the request ends.
    pub fn use_adapter(&mut self, seat: AdapterSeat) {
        self.adapter = Some(seat);
    }

    /// Sets the request's own keep-hot time; `None` uses the model's.
    pub fn keep(&mut self, keep: Option<KeepHotOverride>) {
        self.keep = keep;
    }

    /// The wait for the seat; `None` if the request got it immediately.
    pub fn waited(&self) -> Option<Span> {
        self.taken.waited
    }

    /// Fires when the stream must end.
    pub fn cut(&self) -> CutSignal {
        CutSignal(Arc::clone(&self.gate))
    }

    /// Announces a non-streaming response. Returns false if the engine's own counters would not show that it is computing. Call
    /// once, before the request is sent.
    pub fn expect_whole(&self) -> bool {
        self.gate.activity.expect_whole(&self.beat)
    }

    /// Records a part of the response from the engine. It counts as a token until the engine reports its counts.
    pub fn token(&self) {
        self.gate.activity.token(&self.beat);
        if let Some(pieces) = self.taken.tokens.piece() {
            if pieces == FIRST_TOKEN {
                self.taken.tokens.began(self.inside());
            }
            self.hand_over();
        }
    }

    /// Records the tokens of the request so far, as the engine has reported them.
    pub fn took(&self, tokens: Tokens) {
        if tokens != Tokens::ZERO {
            self.gate.keys.tokens_are_reported();
        }
        self.estimated(tokens);
    }

    /// Records an estimate of the tokens of the request so far.
    pub fn estimated(&self, tokens: Tokens) {
        if self.taken.tokens.reported(tokens, self.inside()) {
            self.hand_over();
        }
    }

    /// The time since the request took its seat.
    fn inside(&self) -> Span {
        self.gate.clock.now().since(self.taken.entered)
    }

    /// Adds the tokens since the last call to the gate's count.
    fn hand_over(&self) {
        let before = self.taken.weight(true);
        let taken = self.taken.tokens.take(self.taken.user.expected);
        if taken.0 != Tokens::ZERO {
            let weights = (before, self.taken.weight(true));
            self.gate.keys.takes(self.taken.guest(), taken, weights);
            self.gate.changed();
        }
    }

    /// Pauses the activity check while the client does not read. Until [`Lease::resume`], no output is expected of the engine.
    pub fn hold(&self) {
        self.gate.activity.hold(&self.beat);
    }

    pub fn resume(&self) {
        self.gate.activity.resume(&self.beat);
    }

    /// Returns true if requests wait for a seat here, or models for the memory of this replica.
    pub fn is_wanted(&self) -> bool {
        let gate = &self.gate;
        mode(gate.word.load(Ordering::Relaxed)) != OPEN
            || gate.to_loop.idle_matters.load(Ordering::Acquire)
    }

    /// Records whether the engine processed the request. False if it could not be reached, broke off, or responded with 5xx.
    pub fn worked(&self, so: bool) {
        if so {
            self.gate.activity.worked()
        } else if self.gate.cut.is_cancelled() {
            // A request that the pool cut says nothing about the engine.
        } else {
            // The request no longer counts as waiting for the engine.
            self.hold();
            self.gate.activity.failed();
        }
    }

    /// Returns true if the connection to the engine's node is lost.
    pub fn is_away(&self) -> bool {
        self.gate.is_away.load(Ordering::Acquire)
    }

    /// The reason for the cut, once [`Lease::cut`] has fired.
    pub fn why(&self) -> Option<&CutReason> {
        self.gate.why.get()
    }
}

/// A signal that fires when the gate is cut, and may outlast the lease. Cloning the token itself would take a lock that all
/// requests inside share.
#[derive(Clone, Debug)]
pub struct CutSignal(Arc<Gate>);

impl CutSignal {
    /// The reason for the cut, once the signal has fired.
    pub fn why(&self) -> Option<&CutReason> {
        self.0.why.get()
    }
}

impl Deref for CutSignal {
    type Target = CancellationToken;

    fn deref(&self) -> &CancellationToken {
        &self.0.cut
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.adapter = None;
        self.gate.activity.leave(&self.beat);
        self.hand_over();
        let (gate, unfulfilled) = (
            &self.gate,
            self.taken.tokens.unfulfilled(self.taken.user.expected),
        );
        let now = gate.clock.now();
        let weights = (self.taken.weight(true), self.taken.weight(false));
        gate.keys
            .leaves(self.taken.guest(), unfulfilled, weights, now);
        if let Some(seat) = self.taken.batch_seat {
            gate.batches.leave(seat);
            gate.changed();
            gate.to_loop.batch_room.signal();
            return;
        }
        if let Some((tokens, first, rest)) = self.taken.tokens.measured() {
            let was_alone = self.taken.batches_before == Some(gate.batches.entries());
            gate.batches.observe(tokens, rest, was_alone);
            // The room may be smaller now.
            gate.shrink_batches();
            if gate.tokens.add(tokens, first, rest) {
                let replica = gate.replica;
                (gate.to_loop.reports.0)(GateReport::Measured { replica });
            }
        }
        gate.leave(self.keep);
    }
}
