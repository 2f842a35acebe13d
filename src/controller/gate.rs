//! The gate of one replica: which requests may enter without the loop, and how many are inside. One atomic word holds the
//! mode, the seats taken and all that ever entered, so that "close if it was not used since" is one exchange. The pool
//! decides when a gate opens and closes.
//!
//! ```text
//!  63  62 │ 61        40 │ 39                    0
//!   mode  │  in flight   │  entered
//! ```
//! One file because the word, and what a seat does to it from its first moment to its last, are one protocol.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::changed_gates::ChangedGates;
use super::clock::Clock;
use super::message::Message;
use super::replica_adapters::{AdapterSeat, AdapterTurn, ReplicaAdapters};
use engine::{ActivityMeter, Beat, Endpoint};
use pool::{GateMode, GateReading, KeepAlive, ReplicaId, Span, StopReason, Time};

const CLOSED: u64 = 0;
const OPEN: u64 = 1;
const QUEUED: u64 = 2;
const MODE_SHIFT: u32 = 62;
const FLIGHT_SHIFT: u32 = 40;
const ONE_INSIDE: u64 = 1 << FLIGHT_SHIFT;
const ENTERED_MASK: u64 = ONE_INSIDE - 1;
const FLIGHT_MASK: u64 = (1 << (MODE_SHIFT - FLIGHT_SHIFT)) - 1;

fn mode(word: u64) -> u64 {
    word >> MODE_SHIFT
}

fn in_flight(word: u64) -> u64 {
    (word >> FLIGHT_SHIFT) & FLIGHT_MASK
}

/// One more inside, one more that ever entered; the count of the latter wraps within its bits.
fn entered_once(word: u64) -> u64 {
    let entered = (word + 1) & ENTERED_MASK;
    (word & !ENTERED_MASK | entered) + ONE_INSIDE
}

fn with_mode(word: u64, mode: u64) -> u64 {
    word & !(3 << MODE_SHIFT) | mode << MODE_SHIFT
}

/// How a gate reaches the loop.
#[derive(Clone, Debug)]
pub(super) struct ToLoop {
    pub inbox: mpsc::UnboundedSender<Message>,
    /// Set while a model waits for room: then the last request that leaves wakes the loop.
    pub idle_matters: Arc<AtomicBool>,
    pub changed: ChangedGates,
}

#[derive(Debug)]
pub(super) struct Gate {
    pub replica: ReplicaId,
    pub endpoint: Endpoint,
    /// The name the engine itself wants in a request, where it is not the model's.
    pub served_name: Option<String>,
    seats: u64,
    word: AtomicU64,
    /// Those of the seats in the word that an earlier controller gave, whose requests end there.
    guests: AtomicU32,
    last_end: AtomicU64,
    /// How long it had been idle when a request last found it so and open, in milliseconds plus one; 0: never.
    idle_before: AtomicU64,
    /// When the last request ended that did not set how long it keeps the replica.
    last_end_without: AtomicU64,
    /// It is in the list of those that the loop is to read, or is being put there.
    has_changed: AtomicBool,
    /// Nothing is heard of its node.
    is_away: AtomicBool,
    /// Why streams inside are cut; set before `cut` fires.
    why: OnceLock<Cut>,
    cut: CancellationToken,
    clock: Clock,
    to_loop: ToLoop,
    /// What requests inside tell of the engine.
    activity: Arc<ActivityMeter>,
    pub adapters: Arc<ReplicaAdapters>,
}

/// Why a stream is ended before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The pool stopped the replica.
    Stopped(StopReason),
    /// The engine ended by itself, with its last words.
    Crashed(String),
}

impl Gate {
    pub fn new(
        replica: ReplicaId,
        endpoint: Endpoint,
        served_name: Option<String>,
        (seats, adapters): (u32, u32),
        clock: Clock,
        to_loop: ToLoop,
        activity: Arc<ActivityMeter>,
    ) -> Gate {
        // The loop reads it once, used or not.
        to_loop.changed.add(replica);
        Gate {
            replica,
            endpoint,
            served_name,
            seats: u64::from(seats.max(1)),
            word: AtomicU64::new(CLOSED << MODE_SHIFT),
            guests: AtomicU32::new(0),
            last_end: AtomicU64::new(0),
            idle_before: AtomicU64::new(0),
            last_end_without: AtomicU64::new(0),
            has_changed: AtomicBool::new(true),
            is_away: AtomicBool::new(false),
            why: OnceLock::new(),
            cut: CancellationToken::new(),
            clock,
            to_loop,
            activity,
            adapters: Arc::new(ReplicaAdapters::new(adapters)),
        }
    }

    /// The hot path: a seat, if the gate is open and has room.
    pub fn try_enter(self: &Arc<Gate>) -> Option<Lease> {
        let enter = |word: u64| {
            (mode(word) == OPEN && in_flight(word) < self.seats).then(|| entered_once(word))
        };
        let before = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, enter)
            .ok()?;
        let ended = self.last_end.load(Ordering::Acquire);
        if in_flight(before) == 0 && ended > 0 {
            let idle = self.clock.now().since(Time(ended));
            self.idle_before.store(idle.0 + 1, Ordering::Release);
        }
        self.changed();
        Some(self.lease())
    }

    /// The pool granted a seat: it has counted already.
    pub fn enter_granted(self: &Arc<Gate>) -> Lease {
        let enter = |word: u64| Some(entered_once(word));
        let _ = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, enter);
        // It waited for its seat, which the pool has counted.
        self.idle_before.store(0, Ordering::Release);
        self.changed();
        self.lease()
    }

    fn lease(self: &Arc<Gate>) -> Lease {
        Lease {
            beat: self.activity.enter(),
            gate: Arc::clone(self),
            keep: None,
            adapter: None,
        }
    }

    /// So many requests are inside by an earlier controller, which tells it again when it changes. They
    /// take seats as any other, and keep-hot counts from the end of the last one (L2). Called from one
    /// place at a time.
    pub fn set_guests(&self, count: u32) {
        let before = self.guests.swap(count, Ordering::AcqRel);
        for _ in before..count {
            self.word.fetch_add(ONE_INSIDE, Ordering::AcqRel);
        }
        self.changed();
        for _ in count..before {
            self.leave(None);
        }
    }

    pub fn guests(&self) -> u32 {
        self.guests.load(Ordering::Acquire)
    }

    /// Changes nothing once it is cut.
    pub fn set(&self, gate: GateMode) {
        if self.why.get().is_some() {
            return;
        }
        let to = match gate {
            GateMode::Open => OPEN,
            GateMode::Queued => QUEUED,
        };
        let _ = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| {
                Some(with_mode(word, to))
            });
    }

    /// Closes it; with `if_idle_at` only if no request is inside and no more than so many ever entered.
    /// Gives what is inside, or the reading that refused.
    pub fn close(&self, if_idle_at: Option<u64>) -> Result<u32, GateReading> {
        let close = |word: u64| {
            let still = |entered: u64| {
                in_flight(word) == 0 && word & ENTERED_MASK == entered & ENTERED_MASK
            };
            if_idle_at
                .is_none_or(still)
                .then(|| with_mode(word, CLOSED))
        };
        match self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, close)
        {
            Ok(word) => Ok(in_flight(word) as u32),
            Err(_) => Err(self.reading()),
        }
    }

    /// Called after each change of what a reading shows. The exchange sees the loop's own, so that either the loop's
    /// reading shows the change, or the gate is put in the list again.
    fn changed(&self) {
        if !self.has_changed.swap(true, Ordering::AcqRel) {
            self.to_loop.changed.add(self.replica);
        }
    }

    /// For the loop, which has taken it from the list.
    pub fn read(&self) -> GateReading {
        self.has_changed.swap(false, Ordering::AcqRel);
        self.reading()
    }

    pub fn reading(&self) -> GateReading {
        let word = self.word.load(Ordering::Acquire);
        let end = self.last_end.load(Ordering::Acquire);
        GateReading {
            replica: self.replica,
            in_flight: in_flight(word) as u32,
            entered: word & ENTERED_MASK,
            last_end: (end > 0).then_some(Time(end)),
            idle_before: self
                .idle_before
                .load(Ordering::Acquire)
                .checked_sub(1)
                .map(Span),
        }
    }

    /// For choosing among several replicas of a model.
    pub fn load(&self) -> u64 {
        in_flight(self.word.load(Ordering::Relaxed))
    }

    /// Whether a waiting request could be let in.
    pub fn has_room(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        mode(word) != CLOSED && in_flight(word) < self.seats
    }

    /// Whether nothing is heard of its node: a request whose connection ends then has probably lost its engine.
    pub fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Release);
    }

    /// Ends every request inside, with this reason. The first reason stays. It admits no further request: one that is cut may be
    /// placed again at once, while the routing table still has this gate.
    pub fn cut(&self, why: Cut) {
        let _ = self.why.set(why);
        let _ = self.close(None);
        self.cut.cancel();
    }

    fn leave(&self, keep: Option<Keep>) {
        let now = self.clock.now();
        if keep.is_none() {
            self.last_end_without.store(now.0, Ordering::Release);
        }
        self.last_end.store(now.0, Ordering::Release);
        let before = self.word.fetch_sub(ONE_INSIDE, Ordering::AcqRel);
        self.changed();
        let emptied = match mode(before) {
            CLOSED if in_flight(before) == 1 => Some(Message::Drained {
                replica: self.replica,
            }),
            QUEUED => Some(Message::SeatFreed),
            OPEN if in_flight(before) == 1 && self.to_loop.idle_matters.load(Ordering::Acquire) => {
                Some(Message::SeatFreed)
            }
            _ => None,
        };
        let kept = keep.map(|keep| self.kept(keep, now));
        // The loop is gone only when the process ends.
        for message in emptied.into_iter().chain(kept) {
            let _ = self.to_loop.inbox.send(message);
        }
    }

    fn kept(&self, keep: Keep, ended: Time) -> Message {
        let without = self.last_end_without.load(Ordering::Acquire);
        Message::KeptAlive {
            replica: self.replica,
            keep: KeepAlive {
                ended,
                ended_without: (without > 0).then_some(Time(without)),
                span: keep.span,
                may_extend: keep.may_extend,
            },
        }
    }
}

/// A seat on a ready replica. Dropping it, for whatever cause, is the only way a request ends.
#[derive(Debug)]
pub struct Lease {
    gate: Arc<Gate>,
    beat: Beat,
    keep: Option<Keep>,
    adapter: Option<AdapterSeat>,
}

/// How long a request keeps its replica after its end (`keep_alive`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    pub span: Span,
    /// It may be longer than the model's keep-hot time.
    pub may_extend: bool,
}

impl Lease {
    pub fn replica(&self) -> ReplicaId {
        self.gate.replica
    }

    pub fn endpoint(&self) -> &Endpoint {
        &self.gate.endpoint
    }

    /// The name the engine wants in the request's `model`, where it differs from the pool's.
    pub fn served_name(&self) -> Option<&str> {
        self.gate.served_name.as_deref()
    }

    /// The adapters of the replica.
    pub fn adapters(&self) -> &ReplicaAdapters {
        &self.gate.adapters
    }

    /// What a request for an adapter with these files does next.
    pub fn ask_adapter(&self, name: &str, mark: pool::FilesFingerprint) -> AdapterTurn {
        let has_guests = self.gate.guests() > 0;
        self.gate.adapters.request(name, mark, has_guests)
    }

    /// The request is inside an adapter until it ends.
    pub fn use_adapter(&mut self, seat: AdapterSeat) {
        self.adapter = Some(seat);
    }

    /// What the request says of how long its replica stays; without this the model's keep-hot time counts.
    pub fn keep(&mut self, keep: Option<Keep>) {
        self.keep = keep;
    }

    /// Fires when the stream must end.
    pub fn cut(&self) -> CutSignal {
        CutSignal(Arc::clone(&self.gate))
    }

    /// Announces an answer in one piece; false if the engine's own counter would not show that it computes meanwhile.
    /// Called once, before the request is sent.
    pub fn expect_whole(&self) -> bool {
        self.gate.activity.expect_whole(&self.beat)
    }

    /// A piece of the answer came from the engine.
    pub fn token(&self) {
        self.gate.activity.token(&self.beat);
    }

    /// The client does not take what came; until [`Lease::resume`] the engine owes nothing.
    pub fn hold(&self) {
        self.gate.activity.hold(&self.beat);
    }

    pub fn resume(&self) {
        self.gate.activity.resume(&self.beat);
    }

    /// Requests wait for a seat here, or models for the memory of this replica.
    pub fn is_wanted(&self) -> bool {
        let gate = &self.gate;
        mode(gate.word.load(Ordering::Relaxed)) != OPEN
            || gate.to_loop.idle_matters.load(Ordering::Acquire)
    }

    /// Whether the engine itself dealt with the request, or could not be reached, broke off, or
    /// answered with 5xx.
    pub fn worked(&self, so: bool) {
        match so {
            true => self.gate.activity.worked(),
            // What the pool itself ended is not the engine's fault.
            false if self.gate.cut.is_cancelled() => {}
            false => {
                // The request has left the queue.
                self.hold();
                self.gate.activity.failed();
            }
        }
    }

    /// Whether nothing is heard of the engine's node.
    pub fn is_away(&self) -> bool {
        self.gate.is_away.load(Ordering::Acquire)
    }

    /// Why, once [`Lease::cut`] has fired.
    pub fn why(&self) -> Option<&Cut> {
        self.gate.why.get()
    }
}

/// The token of the gate, which may outlast the lease. A clone of the token itself would take a lock that all requests inside share.
#[derive(Clone, Debug)]
pub struct CutSignal(Arc<Gate>);

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
        self.gate.leave(self.keep);
    }
}

#[cfg(test)]
mod tests;
