//! The gate of one replica: admits requests without the loop, and counts those inside. One atomic word holds the mode, the seats
//! taken and the number of requests ever admitted, which makes "close if unused since" a single exchange. The pool decides when a
//! gate opens and closes.
//!
//! ```text
//!  63  62 │ 61        40 │ 39                    0
//!   mode  │  in flight   │  entered
//! ```
//! One file because all operations on the word are one protocol.

mod lease;

use std::fmt;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use tokio_util::sync::CancellationToken;

use super::batch_seats::{BatchRoom, BatchSeats};
use super::changed_gates::ChangedGates;
use super::key_seats::{GateKeys, GateUse};
use super::lease_tokens::LeaseTokens;
use super::replica_adapters::ReplicaAdapters;
use super::seat_user::SeatUser;
use super::token_meter::TokenMeter;
use crate::clock::Clock;
use engine::{ActivityMeter, Endpoint};
pub use lease::{CutSignal, KeepHotOverride, Lease};
use pool::{GateMode, GateReading, KeepAlive, ReplicaId, ReplicaKeys, Span, StopReason, Time};

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

/// Adds one request inside and one ever admitted. The latter wraps within its bits.
fn entered_once(word: u64) -> u64 {
    let entered = (word + 1) & ENTERED_MASK;
    (word & !ENTERED_MASK | entered) + ONE_INSIDE
}

fn with_mode(word: u64, mode: u64) -> u64 {
    word & !(3 << MODE_SHIFT) | mode << MODE_SHIFT
}

/// A change at a gate that the loop must know.
#[derive(Debug)]
pub(crate) enum GateReport {
    /// The last request has left a closed gate.
    Drained {
        replica: ReplicaId,
    },
    SeatFreed,
    /// Enough requests have ended to measure the costs of the model's tokens.
    Measured {
        replica: ReplicaId,
    },
    /// A request with its own keep-hot time has ended.
    KeptAlive {
        replica: ReplicaId,
        keep: KeepAlive,
    },
}

/// Carries the reports of gates to the loop.
#[derive(Clone)]
pub(crate) struct GateReports(Arc<dyn Fn(GateReport) + Send + Sync>);

impl GateReports {
    pub fn new(send: impl Fn(GateReport) + Send + Sync + 'static) -> GateReports {
        GateReports(Arc::new(send))
    }
}

impl fmt::Debug for GateReports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GateReports")
    }
}

/// Channels from a gate to the loop.
#[derive(Clone, Debug)]
pub(crate) struct ToLoop {
    pub reports: GateReports,
    /// Set while a model waits for memory: the last request to leave then wakes the loop.
    pub idle_matters: Arc<AtomicBool>,
    pub changed: ChangedGates,
    /// Notified when a gate may have room for a batch request.
    pub batch_room: Arc<BatchRoom>,
}

#[derive(Debug)]
pub(crate) struct Gate {
    pub replica: ReplicaId,
    pub endpoint: Endpoint,
    /// The model name that the engine expects in requests, where it differs from the pool's.
    pub served_name: Option<String>,
    seats: u64,
    word: AtomicU64,
    /// Seats in the word held by requests of an earlier controller, which end there.
    guests: AtomicU32,
    last_end: AtomicU64,
    /// Idle time before the latest request that found the gate open and idle, in milliseconds plus one; 0 if there was none.
    idle_before: AtomicU64,
    /// The seats and tokens of each key.
    keys: GateKeys,
    tokens: Arc<TokenMeter>,
    /// End of the latest request that did not set its own keep-hot time.
    last_end_without: AtomicU64,
    /// The gate is in the loop's list of changed gates, or is being added.
    has_changed: AtomicBool,
    /// The connection to its node is lost.
    is_away: AtomicBool,
    /// Number of times that another process has taken over the listener of its node.
    takeovers: AtomicU64,
    /// The reason streams are cut; set before `cut` fires.
    why: OnceLock<CutReason>,
    cut: CancellationToken,
    clock: Clock,
    to_loop: ToLoop,
    /// Signs of the engine's activity, from the requests inside.
    activity: Arc<ActivityMeter>,
    pub adapters: Arc<ReplicaAdapters>,
    batches: BatchSeats,
}

/// The reason a stream is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CutReason {
    /// The pool stopped the replica.
    Stopped(StopReason),
    /// The engine ended on its own. Holds its last words.
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
        (activity, tokens): (Arc<ActivityMeter>, Arc<TokenMeter>),
    ) -> Gate {
        // Has the loop read the new gate once, even if it is never used.
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
            keys: GateKeys::default(),
            tokens,
            last_end_without: AtomicU64::new(0),
            has_changed: AtomicBool::new(true),
            is_away: AtomicBool::new(false),
            takeovers: AtomicU64::new(0),
            why: OnceLock::new(),
            cut: CancellationToken::new(),
            clock,
            to_loop,
            activity,
            adapters: Arc::new(ReplicaAdapters::new(adapters)),
            batches: BatchSeats::default(),
        }
    }

    /// Takes a seat if the gate is open and has room. This is the hot path.
    pub fn try_enter(self: &Arc<Gate>, user: &SeatUser) -> Option<Lease> {
        let enter = |word: u64| {
            (mode(word) == OPEN && in_flight(word) < self.seats).then(|| entered_once(word))
        };
        let before = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, enter)
            .ok()?;
        let ended = self.last_end.load(Ordering::Acquire);
        let now = self.clock.now();
        if in_flight(before) == 0 && ended > 0 {
            let idle = now.since(Time(ended));
            self.idle_before.store(idle.0 + 1, Ordering::Release);
        }
        let tokens = LeaseTokens::default();
        self.keys
            .enters(user, tokens.weight(user.expected, true), now);
        self.changed();
        self.shrink_batches();
        Some(Lease::new(self, user, tokens, now, None))
    }

    /// Takes room that interactive requests leave, for a batch request. `cut` fires when the room is lost: an interactive request
    /// needs it, or the gate closes.
    pub fn try_enter_batch(
        self: &Arc<Gate>,
        user: &SeatUser,
        cut: CancellationToken,
    ) -> Option<Lease> {
        if !self.has_batch_room() {
            return None;
        }
        let seat = self.batches.enter(self.batch_room(), cut)?;
        let now = self.clock.now();
        let tokens = LeaseTokens::default();
        self.keys
            .enters(user, tokens.weight(user.expected, true), now);
        self.changed();
        let lease = Lease::new(self, user, tokens, now, None).with_batch_seat(seat);
        // An interactive request may have entered, or the gate closed, since the room was read.
        self.shrink_batches();
        Some(lease)
    }

    /// Returns true if one more batch request may enter.
    pub fn has_batch_room(&self) -> bool {
        self.batch_room() > self.batches.count()
    }

    /// The number of batch requests that may be inside.
    fn batch_room(&self) -> u32 {
        let word = self.word.load(Ordering::Acquire);
        if mode(word) == OPEN {
            self.batches.room(self.seats, in_flight(word))
        } else {
            0
        }
    }

    /// Cuts the batch requests beyond the room.
    fn shrink_batches(&self) {
        if self.batches.count() > 0 {
            self.batches.shrink_to(self.batch_room());
        }
    }

    /// Takes a seat that the pool has granted after this wait, whatever the mode.
    pub fn enter_granted(self: &Arc<Gate>, user: &SeatUser, waited: Span) -> Lease {
        let enter = |word: u64| Some(entered_once(word));
        let _ = self
            .word
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, enter);
        // The request waited for its seat, and the pool has counted that.
        self.idle_before.store(0, Ordering::Release);
        let now = self.clock.now();
        let tokens = LeaseTokens::default();
        self.keys
            .enters(user, tokens.weight(user.expected, true), now);
        self.changed();
        self.shrink_batches();
        Lease::new(self, user, tokens, now, Some(waited))
    }

    /// Sets the number of requests inside that an earlier controller serves and reports. They take seats like others, and keep-hot
    /// counts from the end of the last one (L2). Calls must not overlap.
    pub fn set_guests(&self, count: u32) {
        let before = self.guests.swap(count, Ordering::AcqRel);
        for _ in before..count {
            self.word.fetch_add(ONE_INSIDE, Ordering::AcqRel);
        }
        let more = i64::from(count) - i64::from(before);
        self.keys.guests(more, self.clock.now());
        self.changed();
        self.shrink_batches();
        for _ in count..before {
            self.leave(None);
        }
    }

    pub fn guests(&self) -> u32 {
        self.guests.load(Ordering::Acquire)
    }

    /// Has no effect once the gate is cut.
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
        self.shrink_batches();
        if to == OPEN {
            self.to_loop.batch_room.signal();
        }
    }

    /// Closes the gate. With `if_idle_at`, closes only if no request is inside and the number ever admitted still matches. Returns
    /// the number of requests inside, or the reading that prevented closing.
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
            Ok(word) => {
                self.shrink_batches();
                Ok(in_flight(word) as u32)
            }
            Err(_) => Err(self.reading()),
        }
    }

    /// Called after each change of a value that readings show. The exchange pairs with the loop's own: either the loop's reading
    /// shows the change, or the gate is listed again.
    fn changed(&self) {
        if !self.has_changed.swap(true, Ordering::AcqRel) {
            self.to_loop.changed.add(self.replica);
        }
    }

    /// Reads the gate after the loop has taken it from the list.
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

    /// The seats and tokens of each key since the last call, and the use of the gate; `None` if nothing has changed.
    pub fn read_keys(&self, now: Time) -> Option<(ReplicaKeys, GateUse)> {
        let (keys, used) = self.keys.take(now)?;
        let replica = self.replica;
        Some((ReplicaKeys { replica, keys }, used))
    }

    /// The number of requests inside, for choosing among a model's replicas.
    pub fn load(&self) -> u64 {
        in_flight(self.word.load(Ordering::Relaxed))
    }

    /// Returns true if the gate admits requests, now or after others have left.
    pub fn is_open(&self) -> bool {
        mode(self.word.load(Ordering::Relaxed)) != CLOSED
    }

    /// Returns true if a waiting request could be admitted.
    pub fn has_room(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        mode(word) != CLOSED && in_flight(word) < self.seats
    }

    /// Ends the reuse of connections that pass through an earlier process of the node.
    pub fn retire_connections(&self) {
        self.takeovers.fetch_add(1, Ordering::Relaxed);
    }

    /// Marks the connection to the gate's node as lost: a request whose connection breaks then has probably lost its engine.
    pub fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::Release);
    }

    /// Ends every request inside with this reason; the first reason stays. Closes the gate as well: a request that is cut may be
    /// placed again immediately, while the routing table still has this gate.
    pub fn cut(&self, why: CutReason) {
        let _ = self.why.set(why);
        let _ = self.close(None);
        self.cut.cancel();
    }

    fn leave(&self, keep: Option<KeepHotOverride>) {
        let now = self.clock.now();
        if keep.is_none() {
            self.last_end_without.store(now.0, Ordering::Release);
        }
        self.last_end.store(now.0, Ordering::Release);
        let before = self.word.fetch_sub(ONE_INSIDE, Ordering::AcqRel);
        self.changed();
        self.to_loop.batch_room.signal();
        let emptied = match mode(before) {
            CLOSED if in_flight(before) == 1 => Some(GateReport::Drained {
                replica: self.replica,
            }),
            QUEUED => Some(GateReport::SeatFreed),
            OPEN if in_flight(before) == 1 && self.to_loop.idle_matters.load(Ordering::Acquire) => {
                Some(GateReport::SeatFreed)
            }
            _ => None,
        };
        let kept = keep.map(|keep| self.kept(keep, now));
        let reports = emptied.into_iter().chain(kept);
        reports.for_each(|report| (self.to_loop.reports.0)(report));
    }

    fn kept(&self, keep: KeepHotOverride, ended: Time) -> GateReport {
        let without = self.last_end_without.load(Ordering::Acquire);
        GateReport::KeptAlive {
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

#[cfg(test)]
mod tests;
