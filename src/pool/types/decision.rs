//! The decisions of `plan`, and the plan of a load. Plain data: `plan` decides, `commit` carries out.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use crate::types::action::{GateMode, Outcome};
use crate::types::explanation::Explanation;
use crate::types::ids::{
    Bytes, DemandId, DeviceId, ModelId, NodeId, OrderId, Priority, ReplicaId, ShapeId, Span,
    Ticket, Time,
};
use crate::types::obstacle::{Obstacle, Unfit};
use crate::types::rank::{Cost, DemandRank};
use crate::types::reason::{LoadReason, Refusal, StopReason};
use crate::types::share::Share;

/// The decision for a load: placement, victims, cost, reasons; or a refusal with reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub model: ModelId,
    pub name: String,
    pub priority: Priority,
    pub devices: u32,
    /// The number of nodes over which the devices are spread.
    pub nodes: u32,
    /// The bytes on each device.
    pub bytes: Bytes,
    pub placement: Vec<Share>,
    pub victims: Vec<Victim>,
    pub cost: Cost,
    /// The memory is not free yet because replicas are already leaving.
    pub must_wait: bool,
    pub candidates: Vec<Candidate>,
    pub(crate) chosen: usize,
    /// The sleeper that the plan wakes, if any.
    pub wakes: Option<ReplicaId>,
    pub refusal: Option<Refusal>,
    pub prospect: Prospect,
    /// The expected time of the load or of waking.
    pub takes: Span,
    /// The expected time of the fetch that precedes placement. The figures are estimates until the weights are here.
    pub fetches_for: Option<Span>,
    /// The next time at which a refusal may change without an event.
    pub retry: Option<Time>,
    /// The node that is requested instead of evicting, or that is waited for (S2). Only previews have it.
    pub node: Option<NodePlan>,
}

/// The request for a node that a load makes or waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlan {
    /// The name of the size.
    pub shape: String,
    /// The number of nodes that are requested together. Nodes that exist already are not counted.
    pub nodes: u32,
    /// The devices of each.
    pub devices: u32,
    pub cost_per_hour_cents: Option<u32>,
    /// The request has been made already.
    pub is_open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    pub replica: ReplicaId,
    pub model: ModelId,
    pub name: String,
    pub priority: Priority,
    pub busy: bool,
    /// The time it has been ready without a request; zero while it is busy.
    pub idle: Span,
    pub bytes: Bytes,
    pub reload: Span,
    /// It is a sleeper whose remaining device memory is needed.
    pub asleep: bool,
    /// It is not a replica yet but a load that waits for memory and is planned again.
    pub planned: bool,
    /// The time until its model's lease ends (P7).
    pub lease: Option<Span>,
    /// It serves until the slower victims of the plan have nearly ended (P8).
    pub serves_on: bool,
    /// It was loaded for batches, and nothing else has used it (B5).
    pub only_batches: bool,
}

/// The maximum number of candidates in a record of the history: the chosen one, and the first of the others.
pub(crate) const CANDIDATES_MAX: usize = 32;

/// A place that was considered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// All devices that the replica would occupy.
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
    /// The memory cannot be freed because of these obstacles.
    Blocked {
        obstacles: Vec<Obstacle>,
    },
    Unfit(Unfit),
}

/// The reason why a device is not used, as text. Without an obstacle there, the device alone is not enough.
pub fn blocked(obstacles: &[Obstacle], devices: u32, nodes: u32) -> String {
    let all: Vec<String> = obstacles
        .iter()
        .map(|obstacle| format!("{} {}", obstacle.bytes, obstacle.what))
        .collect();
    match (all.is_empty(), devices) {
        (true, _) if nodes > 1 => {
            format!("room for one part, and {devices} devices on {nodes} nodes are needed")
        }
        (true, 0..=1) => "not free yet: the replicas on it are leaving".to_owned(),
        (true, _) => format!("room for one part, and {devices} devices of one node are needed"),
        (false, _) => format!("no room can be made: {}", all.join("; ")),
    }
}

/// The chance that waiting helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Prospect {
    Now,
    /// After a turn ends, a load finishes or a minimum residence passes.
    Soon,
    /// Only after replicas of higher priority leave on their own.
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
    /// A victim that was to leave with others serves on for good (P8).
    Stay {
        replica: ReplicaId,
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
        /// The alternatives, if replicas leave for it.
        explanation: Option<Box<Explanation>>,
    },
    Launch {
        load: ReplicaId,
    },
    /// Puts a drained replica to sleep and ends these sleepers for it.
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
    /// Fails a load that is known to fail, before anything leaves for it (L3).
    FailLoad {
        model: ModelId,
        message: String,
    },
    EndFetch {
        model: ModelId,
        reason: StopReason,
    },
    /// The pool has looked for a node whose models have a cheaper place, and empties it if it found one (S3).
    Consolidate {
        node: Option<NodeId>,
    },
    /// The emptied node serves again, for this reason.
    KeepNode {
        node: NodeId,
        why: String,
    },
    /// Demands that cannot be planned now, each with the next time at which that may change without an event.
    Block {
        demands: Vec<(DemandRank, Option<Time>)>,
    },
    /// Memory may have become free for a blocked demand that must wait behind others for a disk. Once it no longer has to, it is
    /// planned like a new one.
    Defer {
        rank: DemandRank,
    },
    /// The demand can be planned, but its disk or link is in use until this time, so the victims continue to serve.
    Postpone {
        rank: DemandRank,
        until: Time,
    },
    /// Requests a node, or a set of nodes for a replica that spans several (M8).
    RequestNodes {
        shape: ShapeId,
        model: ModelId,
        priority: Priority,
        nodes: u32,
        /// The number of nodes over which the replica is spread.
        span: u32,
        /// Only batches call for it (B8).
        for_batches: bool,
    },
    /// The request is no longer needed, another one serves its demand, or its set has failed. Its set ends with it.
    CancelNode {
        demand: DemandId,
    },
    /// The request does not start. Its set ends with it.
    GiveUpNode {
        demand: DemandId,
        why: String,
    },
    /// The node ends soon, so its models start to move (N7).
    MoveFrom {
        node: NodeId,
    },
    /// Nothing is placed any more on the node, which was requested for batches, and its replicas leave (B8).
    LeaveNode {
        node: NodeId,
        why: String,
    },
    ReleaseNode {
        node: NodeId,
    },
    /// Gives up on memory of ended processes that no reading has shown as free in time (M4).
    GiveUpSettling {
        device: DeviceId,
    },
    /// Gives up a remembered wish that cannot be carried out.
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
