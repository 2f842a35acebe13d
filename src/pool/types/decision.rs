//! What `plan` can decide, and what a plan for one load looks like. Plain data: `plan` decides, `commit` carries out.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::types::action::{GateMode, Outcome};
use crate::types::explanation::Explanation;
use crate::types::ids::{
    Bytes, DeviceId, ModelId, NodeId, OrderId, Priority, ReplicaId, ShapeId, Span, Ticket, Time,
};
use crate::types::obstacle::{Obstacle, Unfit};
use crate::types::rank::{Cost, DemandRank};
use crate::types::reason::{LoadReason, Refusal, StopReason};
use crate::types::share::Share;

/// The decision for one load: placement, victims, cost, reasons; or a refusal with reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub model: ModelId,
    pub name: String,
    pub priority: Priority,
    pub devices: u32,
    /// On each device.
    pub bytes: Bytes,
    pub placement: Vec<Share>,
    pub victims: Vec<Victim>,
    pub cost: Cost,
    /// The memory is not free yet: replicas are leaving already.
    pub must_wait: bool,
    pub candidates: Vec<Candidate>,
    pub(crate) chosen: usize,
    /// The sleeper that is woken, if that is what the plan does.
    pub wakes: Option<ReplicaId>,
    pub refusal: Option<Refusal>,
    pub prospect: Prospect,
    /// How long the load is expected to take, or the waking.
    pub takes: Span,
    /// Its weights are fetched before it is placed, in about this time; the figures are estimates until then.
    pub fetches_for: Option<Span>,
    /// When time alone may change a refusal.
    pub retry: Option<Time>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    pub replica: ReplicaId,
    pub model: ModelId,
    pub name: String,
    pub priority: Priority,
    pub busy: bool,
    /// How long it has been ready without a request; zero while it is busy.
    pub idle: Span,
    pub bytes: Bytes,
    pub reload: Span,
    /// It serves no requests; what it keeps on its devices is needed.
    pub asleep: bool,
    /// Not a replica yet: a load that waits for memory and is planned again.
    pub planned: bool,
    /// The time until its model's lease ends (P7).
    pub lease: Option<Span>,
}

/// The most candidates in one record of the history: the chosen one, and the first of the others.
pub(crate) const CANDIDATES_MAX: usize = 32;

/// A place that was considered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// All devices that the replica would hold.
    pub devices: Vec<DeviceId>,
    /// The sleeper that would be woken there.
    pub wakes: Option<ReplicaId>,
    pub verdict: Verdict,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Free {
        left_over: Bytes,
    },
    Evicts {
        victims: Vec<ReplicaId>,
        cost: Cost,
    },
    /// The memory cannot be freed, and why.
    Blocked {
        obstacles: Vec<Obstacle>,
    },
    Unfit(Unfit),
}

/// Why a device is not taken, as text. Without an obstacle there, that device alone is not enough.
pub fn blocked(obstacles: &[Obstacle], devices: u32) -> String {
    let all: Vec<String> = obstacles
        .iter()
        .map(|it| format!("{} {}", it.bytes, it.what))
        .collect();
    match (all.is_empty(), devices) {
        (true, 0..=1) => "not free yet: what is on it is leaving".to_owned(),
        (true, _) => format!("room for one part, and {devices} devices of one node are needed"),
        (false, _) => format!("no room that may be made: {}", all.join("; ")),
    }
}

/// What waiting would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Prospect {
    Now,
    /// A turn ends, a load finishes, a minimum residence passes.
    Soon,
    /// Only when something of higher priority leaves by itself.
    WhenOthersLeave,
    Never,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Refuse {
        ticket: Ticket,
        refusal: Refusal,
    },
    EndLease {
        model: ModelId,
    },
    Grant {
        ticket: Ticket,
        replica: ReplicaId,
    },
    SetGate {
        replica: ReplicaId,
        gate: GateMode,
    },
    Drain(Drain),
    Reopen {
        replica: ReplicaId,
    },
    Stop {
        replica: ReplicaId,
        reason: StopReason,
    },
    Promise {
        plan: Box<Plan>,
        why: LoadReason,
        order: Option<OrderId>,
        /// The candidates, if replicas leave for it.
        explanation: Option<Box<Explanation>>,
    },
    Launch {
        load: ReplicaId,
    },
    /// Put a drained replica to sleep, and end these sleepers for it.
    Park {
        replica: ReplicaId,
        drops: Vec<ReplicaId>,
    },
    Abandon {
        load: ReplicaId,
    },
    Fetch {
        model: ModelId,
        why: LoadReason,
    },
    /// A load that is known to fail, before anything leaves for it (L3).
    FailLoad {
        model: ModelId,
        message: String,
    },
    EndFetch {
        model: ModelId,
        reason: StopReason,
    },
    /// Demands that cannot be planned now, each with the time when time alone may change that.
    Block {
        demands: Vec<(DemandRank, Option<Time>)>,
    },
    /// Memory may have become free for a blocked demand that must stay behind others at a disk: it is planned like a
    /// new one when it no longer has to.
    Defer {
        rank: DemandRank,
    },
    /// It can be planned, and its disk or link is in use until then: the victims go on serving.
    Postpone {
        rank: DemandRank,
        until: Time,
    },
    RequestNode {
        shape: ShapeId,
        model: ModelId,
        priority: Priority,
    },
    CancelNode,
    /// The node ends soon: its models move from now on (N7).
    MoveFrom {
        node: NodeId,
    },
    ReleaseNode {
        node: NodeId,
    },
    /// Memory of ended processes that no reading has shown as free in time (M4).
    GiveUpSettling {
        device: DeviceId,
    },
    /// A remembered wish cannot be carried out; it is given up.
    GiveUpWish {
        model: ModelId,
        refusal: Refusal,
    },
    Shorten {
        order: OrderId,
        refusal: Refusal,
    },
    Settle {
        order: OrderId,
        outcome: Outcome,
    },
    Finish,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Drain {
    pub replica: ReplicaId,
    pub deadline: Option<Time>,
    pub reason: StopReason,
    pub only_if_idle: bool,
    pub for_load: Option<ReplicaId>,
}
