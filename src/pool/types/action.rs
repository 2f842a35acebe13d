//! All actions that the pool can request from the shell. A closed list.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::types::decision::Plan;
use crate::types::explanation::Explanation;
use crate::types::ids::{
    Bytes, DemandId, DeviceId, KeyId, ModelId, NodeId, OrderId, Priority, ReplicaId, ShapeId, Span,
    Ticket, Time,
};
use crate::types::model::{Cordon, LoadWish, Override};
use crate::types::reason::{LoadReason, Refusal, StopReason};
use crate::types::share::Share;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The ticket has a seat: enters the replica's gate for it and wakes the client.
    Grant {
        ticket: Ticket,
        replica: ReplicaId,
    },
    Refuse {
        ticket: Ticket,
        refusal: Refusal,
    },
    /// Brings the model's weights to this machine. Answered by `FetchEnded`.
    Fetch {
        model: ModelId,
    },
    /// Ends the fetch. Also answered by `FetchEnded`. Downloaded data is kept for the next fetch.
    EndFetch {
        model: ModelId,
    },
    /// Starts an engine with this memory on these devices.
    Launch {
        replica: ReplicaId,
        model: ModelId,
        placement: Vec<Share>,
        deadline: Span,
    },
    /// Makes a drained engine free its devices' memory and keep its weights in host memory. Answered by `ReplicaAsleep` or
    /// `SleepFailed`.
    Park {
        replica: ReplicaId,
        reason: StopReason,
    },
    /// Makes a sleeper take its memory again. Answered by `ReplicaReady` or `ReplicaExited`.
    Wake {
        replica: ReplicaId,
        deadline: Span,
    },
    /// Sets the gate to let requests in (`Open`) or to send them to the queue first (`Queued`).
    SetGate {
        replica: ReplicaId,
        gate: GateMode,
    },
    /// Closes the gate; answered in the same turn by `GateClosed`. With `if_idle_at`, closes it only if no request is inside and no
    /// more than this number ever entered; otherwise answered by `GateBusy`. The decision to close an idle gate is based on a
    /// reading that only the gate can confirm.
    CloseGate {
        replica: ReplicaId,
        if_idle_at: Option<u64>,
    },
    /// Ends the engine. Streams still in flight are cut with this reason.
    Stop {
        replica: ReplicaId,
        grace: Span,
        reason: StopReason,
    },
    /// Has the node end an engine that the pool has given up. Answered by `ReplicaExited`, or by a `NodeJoined` without it; until
    /// either arrives nothing is placed on the node (N4).
    Disown {
        node: NodeId,
        replica: ReplicaId,
    },
    /// Requests one node for each of these ids: several for a replica that spans several nodes (M8), which needs all of them. Each is
    /// answered by `NodePending`, `NodeRefused`, or a `NodeJoined` with this id (S2).
    RequestNodes {
        demands: Vec<DemandId>,
        shape: ShapeId,
    },
    /// Cancels a request for a node. A node that joins for it nevertheless is given back once it is idle.
    CancelNode {
        demand: DemandId,
    },
    /// Gives an empty node back. Answered by `NodeGone`.
    ReleaseNode {
        node: NodeId,
    },
    /// Stores the wish. Answered by `Saved` (D1).
    Save {
        order: OrderId,
        wish: Wish,
    },
    /// Stores a wish without a response, in order, as soon as possible.
    Keep {
        wish: Wish,
    },
    Settle {
        order: OrderId,
        outcome: Outcome,
    },
    /// Writes to the history (D3).
    Record(Record),
    /// The pool is empty and takes nothing new, so the shell may end.
    Finished,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateMode {
    Open,
    Queued,
}

/// The stored content of an order. Replaces the earlier wish of the same kind for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// An empty override deletes the stored one.
    Override { model: ModelId, over: Override },
    /// `None` if the model is no longer wished for.
    Load {
        model: ModelId,
        wish: Option<LoadWish>,
    },
    LoadAndOverride {
        model: ModelId,
        wish: LoadWish,
        over: Override,
    },
    /// Drops all wishes to load models; with `before`, only wishes that existed at that time.
    ForgetLoads { before: Option<Time> },
    /// `None` if the device serves again.
    Cordon {
        device: DeviceId,
        cordon: Option<Cordon>,
    },
    /// `None` if the node of this name serves again (N5).
    DrainNode { name: String, drain: Option<Cordon> },
}

/// The result of a step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The actions in the order in which they must be started.
    pub actions: Vec<Action>,
    /// The next time at which the facts change without an event. Replaces any earlier wake.
    pub wake: Option<Time>,
    /// A demand waits for room, so a replica that becomes idle justifies an immediate step.
    pub idle_matters: bool,
}

/// The end of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Loaded(LoadResult),
    Unloaded {
        replicas: Vec<ReplicaId>,
    },
    Set,
    Cleaned {
        replicas: Vec<ReplicaId>,
    },
    Reopened,
    Cordoned {
        replicas: Vec<ReplicaId>,
    },
    Uncordoned,
    /// The node has drained, and these replicas have left it.
    NodeDrained {
        replicas: Vec<ReplicaId>,
    },
    NodeUndrained,
    Refused {
        refusal: Refusal,
        plan: Option<Box<Plan>>,
    },
}

/// The result of a load order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadResult {
    pub wanted: u32,
    /// Replicas that are ready now, and the memory they hold.
    pub ready: Vec<(ReplicaId, Vec<Share>)>,
    pub evicted: Vec<Evicted>,
    /// The reason why there are fewer replicas than ordered.
    pub shortfall: Option<Refusal>,
    /// With a shortfall: the number of replicas that the devices could hold if nothing else were loaded.
    pub fits_when_empty: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evicted {
    pub replica: ReplicaId,
    pub model: String,
    pub priority: Priority,
    pub bytes: Bytes,
    pub reason: StopReason,
}

/// An entry of the history (D3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub at: Time,
    pub kind: RecordKind,
    /// The model's name, or `None` for the pool itself.
    pub model: Option<String>,
    pub replica: Option<ReplicaId>,
    pub order: Option<OrderId>,
    /// The reason as text, with the rule.
    pub reason: String,
    pub priority: Option<Priority>,
    pub placement: Vec<Share>,
    /// The alternatives of the decision: victims taken, and candidates rejected with the reason.
    pub candidates: Vec<String>,
    /// Reserved bytes of each affected device before and after.
    pub memory: Vec<MemoryChange>,
    /// Load time, drain time or age, by kind.
    pub took: Option<Span>,
    /// The name of the reason. Records are counted and filtered by it.
    pub cause: Option<&'static str>,
    /// The key of the request, or of the first of several; 0 if it has no key. The author of an order is recorded outside the core.
    pub asked_by: Option<KeyId>,
    /// The path of its group, such as `physics/lab`. Set outside the core.
    pub group: Option<String>,
    /// The comparison behind the decision. Records of one decision share it.
    pub explanation: Option<Arc<Explanation>>,
}

impl Record {
    /// A record of a model, with only its reason.
    pub fn new(at: Time, kind: RecordKind, model: Option<String>, reason: String) -> Record {
        Record {
            at,
            kind,
            model,
            replica: None,
            order: None,
            reason,
            priority: None,
            placement: Vec::new(),
            candidates: Vec::new(),
            memory: Vec::new(),
            took: None,
            cause: None,
            asked_by: None,
            group: None,
            explanation: None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryChange {
    pub device: DeviceId,
    pub before: Bytes,
    pub after: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordKind {
    Load,
    Ready,
    LoadFailed,
    Crash,
    Drain,
    Evict,
    Stay,
    Unload,
    Sleep,
    Gone,
    Fetch,
    Fetched,
    FetchEnded,
    FetchFailed,
    Refuse,
    Set,
    LeaseEnded,
    Cleanup,
    Reopen,
    Cordon,
    Uncordon,
    DeviceFailed,
    Adopt,
    NodeJoined,
    NodeSilent,
    NodeGone,
    NodeDrain,
    NodeUndrain,
    NodeRequested,
    NodeRefused,
    NodeEnds,
    NodeEmptied,
    NodeReleased,
    BatchWarned,
}

impl RecordKind {
    pub fn name(self) -> &'static str {
        match self {
            RecordKind::Load => "load",
            RecordKind::Ready => "ready",
            RecordKind::LoadFailed => "load_failed",
            RecordKind::Crash => "crash",
            RecordKind::Drain => "drain",
            RecordKind::Evict => "evict",
            RecordKind::Stay => "stay",
            RecordKind::Unload => "unload",
            RecordKind::Sleep => "sleep",
            RecordKind::Gone => "gone",
            RecordKind::Fetch => "fetch",
            RecordKind::Fetched => "fetched",
            RecordKind::FetchEnded => "fetch_ended",
            RecordKind::FetchFailed => "fetch_failed",
            RecordKind::Refuse => "refuse",
            RecordKind::Set => "set",
            RecordKind::LeaseEnded => "lease_ended",
            RecordKind::Cleanup => "cleanup",
            RecordKind::Reopen => "reopen",
            RecordKind::Cordon => "cordon",
            RecordKind::Uncordon => "uncordon",
            RecordKind::DeviceFailed => "device_failed",
            RecordKind::Adopt => "adopt",
            RecordKind::NodeJoined => "node_joined",
            RecordKind::NodeSilent => "node_silent",
            RecordKind::NodeGone => "node_gone",
            RecordKind::NodeDrain => "node_drain",
            RecordKind::NodeUndrain => "node_undrain",
            RecordKind::NodeRequested => "node_requested",
            RecordKind::NodeRefused => "node_refused",
            RecordKind::NodeEnds => "node_ends",
            RecordKind::NodeEmptied => "node_emptied",
            RecordKind::NodeReleased => "node_released",
            RecordKind::BatchWarned => "batch_warned",
        }
    }
}

impl From<LoadReason> for String {
    fn from(reason: LoadReason) -> String {
        reason.to_string()
    }
}
