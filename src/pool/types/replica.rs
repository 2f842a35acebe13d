//! The life of an engine instance, and a load that waits for memory. Facts only; `plan` decides which replica leaves and which
//! stays.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::types::action::GateMode;
use crate::types::gang::Gang;
use crate::types::ids::{Bytes, ModelId, OrderId, ReplicaId, Span, Time};
use crate::types::keep_alive::KeepAliveState;
use crate::types::model::Tier;
use crate::types::occupancy::Seats;
use crate::types::reason::{LoadReason, StopReason};
use crate::types::replica_state::ReplicaState;
use crate::types::share::Share;

/// ```text
///  (planned) ──room──▶ Launching ──ready──▶ Ready ⇄ Draining ──empty or deadline──▶ Stopping ──▶ gone
///                          ▲                           └──empty, may sleep──▶ Parking ──▶ Asleep ─┐  ▲
///                          └────────────────────────────── woken ────────────────────────────────┴──┤
///      │                   └──────────────stop──────────────────────────────────────▶┘           ▲
///      └── abandoned                       crash: from any phase ─────────────────────────────────┘
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    Launching {
        since: Time,
        deadline: Time,
    },
    Ready {
        since: Time,
    },
    /// The gate is closed, or about to be; see `closed`.
    Draining {
        ready_since: Time,
        since: Time,
        /// The time at which the requests still inside are cut; `None` for never (P3).
        deadline: Option<Time>,
        reason: StopReason,
        /// The load that needs the memory. If it is dropped, the gate opens again.
        for_load: Option<ReplicaId>,
        closed: bool,
    },
    /// The engine moves its weights into host memory.
    Parking {
        since: Time,
        /// The time at which it is stopped instead.
        deadline: Time,
        reason: StopReason,
    },
    /// Only memory that cannot be moved is left on its devices.
    Asleep {
        since: Time,
        reason: StopReason,
    },
    Stopping {
        since: Time,
        reason: StopReason,
        /// It had not become ready.
        was_launching: bool,
    },
}

impl Phase {
    pub(crate) fn state(&self) -> ReplicaState {
        match self {
            Phase::Launching { .. } => ReplicaState::Launching,
            Phase::Ready { .. } => ReplicaState::Ready,
            Phase::Draining { .. } => ReplicaState::Draining,
            Phase::Parking { .. } => ReplicaState::Parking,
            Phase::Asleep { .. } => ReplicaState::Asleep,
            Phase::Stopping { .. } => ReplicaState::Stopping,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Replica {
    pub(crate) model: ModelId,
    pub(crate) shares: Vec<Share>,
    pub(crate) phase: Phase,
    pub(crate) why: LoadReason,
    /// The model's `started_with` when it was launched.
    pub(crate) started_with: u64,
    pub(crate) launched: Time,
    /// Requests that have a seat, from its gate's last count.
    pub(crate) in_flight: u32,
    /// The total number of requests that have ever had a seat.
    pub(crate) entered: u64,
    /// When a request last got a seat.
    pub(crate) entered_at: Time,
    /// The value of `entered` when it was launched or woken.
    pub(crate) entered_when_launched: u64,
    pub(crate) seats: Seats,
    /// The time the last request ended.
    pub(crate) last_end: Option<Time>,
    /// The time it stays because of the `keep_alive` of its requests.
    pub(crate) keep_alive: KeepAliveState,
    /// The last setting given to its gate; `None` before it is ready.
    pub(crate) gate: Option<GateMode>,
    /// The source of its weights, once known.
    pub(crate) tier: Option<Tier>,
    /// The time until which its load has the disk or link reserved.
    pub(crate) reads_until: Option<Time>,
    /// Set while loading: it leaves as soon as its waiting requests have been served.
    pub(crate) leave_when_served: Option<(StopReason, OrderId)>,
    /// Set while loading: it leaves if its model has enough replicas without it.
    pub(crate) may_be_spared: bool,
    /// The host memory it holds, from falling asleep until it is awake again.
    pub(crate) parked: Option<Parked>,
    /// Set while it serves on as a victim of a load whose other victims have not finished. Its memory counts as leaving (P8).
    pub(crate) leaves_with: Option<LeavesWith>,
    /// Set if it spans several nodes.
    pub(crate) gang: Option<Box<Gang>>,
}

/// The exit of a victim that waits for the others of its load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeavesWith {
    pub(crate) load: ReplicaId,
    pub(crate) reason: StopReason,
    /// Time limit for its requests once it leaves; `None` without a limit.
    pub(crate) drain: Option<Span>,
}

impl Replica {
    pub fn bytes(&self) -> Bytes {
        self.shares.iter().map(|share| share.bytes).sum()
    }

    pub fn is_leaving(&self) -> bool {
        let has_begun = matches!(
            self.phase,
            Phase::Draining { .. } | Phase::Parking { .. } | Phase::Stopping { .. }
        );
        has_begun || self.leaves_with.is_some()
    }

    /// The part of its shares that stays while it falls asleep.
    pub(crate) fn keeps(&self) -> &[Share] {
        match (&self.phase, &self.parked) {
            (Phase::Parking { .. }, Some(parked)) => &parked.keeps,
            _ => &[],
        }
    }

    /// Returns true if it serves, or will serve without another load.
    pub fn is_live(&self) -> bool {
        matches!(self.phase, Phase::Launching { .. } | Phase::Ready { .. })
    }

    /// Returns true if no request has had a seat on it since it was launched or woken.
    pub(crate) fn is_unserved(&self) -> bool {
        self.entered == self.entered_when_launched
    }

    /// Returns true if it was stopped because it did not become ready in time.
    pub fn ran_out_of_time(&self) -> bool {
        let reason = match &self.phase {
            Phase::Stopping { reason, .. } => reason,
            _ => return false,
        };
        matches!(reason, StopReason::LoadTimedOut { .. })
    }

    /// Returns true if its engine ended on its own and is not completely gone.
    pub(crate) fn crashed(&self) -> bool {
        matches!(
            self.phase,
            Phase::Stopping {
                reason: StopReason::Crashed { .. } | StopReason::MemberEnded { .. },
                ..
            }
        )
    }

    pub fn ready_since(&self) -> Option<Time> {
        match self.phase {
            Phase::Ready { since } => Some(since),
            _ => None,
        }
    }

    /// The time it was last in use: its last request ended, or it became ready.
    pub(crate) fn used_until(&self) -> Time {
        let ready = match self.phase {
            Phase::Ready { since } => since,
            Phase::Draining { ready_since, .. } => ready_since,
            _ => Time(0),
        };
        self.last_end.unwrap_or(ready).max(ready)
    }

    /// The time since which it has been idle; keep-hot counts from here (L2).
    pub fn idle_since(&self) -> Option<Time> {
        self.ready_since()?;
        (self.in_flight == 0).then(|| self.used_until())
    }
}

/// A planned load. Its memory is promised; its victims are leaving.
#[derive(Clone, Debug)]
pub struct Planned {
    pub(crate) model: ModelId,
    pub(crate) shares: Vec<Share>,
    pub(crate) victims: BTreeSet<ReplicaId>,
    pub(crate) why: LoadReason,
    pub(crate) since: Time,
    pub(crate) order: Option<OrderId>,
    /// The model's `started_with` when it was planned: its devices suit an engine with these settings.
    pub(crate) started_with: u64,
    /// The load wakes a sleeper, under the sleeper's id. `shares` is what it needs in addition to what it holds.
    pub(crate) wakes: bool,
}

/// The host memory of a sleeper, and what it held on its devices before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parked {
    pub(crate) host: Bytes,
    /// Its shares when it is awake, and the part of them that it cannot free.
    pub(crate) awake: Vec<Share>,
    pub(crate) keeps: Vec<Share>,
    /// The reason why its engine could not be woken.
    pub(crate) wake_failure: Option<String>,
}
