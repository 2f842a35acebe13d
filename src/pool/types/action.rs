//! Everything the pool can order from the shell. A closed list.

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
    /// The ticket has a seat: enter the replica's gate for it and wake the client.
    Grant {
        ticket: Ticket,
        replica: ReplicaId,
    },
    Refuse {
        ticket: Ticket,
        refusal: Refusal,
    },
    /// Bring the model's weights to this machine; answered by `FetchEnded`.
    Fetch {
        model: ModelId,
    },
    /// End the fetch; answered by `FetchEnded` too. What has been downloaded is kept for the next one.
    EndFetch {
        model: ModelId,
    },
    /// Start an engine with this memory on these devices.
    Launch {
        replica: ReplicaId,
        model: ModelId,
        placement: Vec<Share>,
        deadline: Span,
    },
    /// Have a drained engine free its devices' memory and keep its weights in the host's; answered by `ReplicaAsleep`
    /// or `SleepFailed`.
    Park {
        replica: ReplicaId,
    },
    /// Have a sleeper take its memory again; answered by `ReplicaReady` or `ReplicaExited`.
    Wake {
        replica: ReplicaId,
        deadline: Span,
    },
    /// The gate lets requests in (`Open`), sends them to the queue first (`Queued`).
    SetGate {
        replica: ReplicaId,
        gate: GateMode,
    },
    /// Close the gate, answered in the same turn by `GateClosed`. With `if_idle_at`, close it only if no request is
    /// inside and no more than this number ever entered; otherwise answered by `GateBusy`. The decision to close an
    /// idle gate is based on a reading; only the gate knows whether it still holds.
    CloseGate {
        replica: ReplicaId,
        if_idle_at: Option<u64>,
    },
    /// End the engine. Streams that are still inside are cut with this reason.
    Stop {
        replica: ReplicaId,
        grace: Span,
        reason: StopReason,
    },
    /// The node has an engine that the pool has given up: have the node end it. Answered by `ReplicaExited`, or by a
    /// `NodeJoined` without it; until then nothing is placed on the node (N4).
    Disown {
        node: NodeId,
        replica: ReplicaId,
    },
    /// Bring one more node; answered by `NodePending`, `NodeRefused`, or a `NodeJoined` with the number (S2).
    RequestNode {
        demand: DemandId,
        shape: ShapeId,
    },
    /// The request is not needed any more. A node that joins for it nevertheless is given back once it is idle.
    CancelNode {
        demand: DemandId,
    },
    /// Give the node back: nothing is on it. Answered by `NodeGone`.
    ReleaseNode {
        node: NodeId,
    },
    /// Keep the wish, then answer with `Saved` (D1).
    Save {
        order: OrderId,
        wish: Wish,
    },
    /// Keep a wish without an answer, in order, as soon as possible.
    Keep {
        wish: Wish,
    },
    Settle {
        order: OrderId,
        outcome: Outcome,
    },
    /// Write to the history (D3).
    Record(Record),
    /// The pool is empty and takes nothing new; the shell may end.
    Finished,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateMode {
    Open,
    Queued,
}

/// What the store keeps of one order. Replaces the earlier wish of the same kind for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// An empty override deletes the stored one.
    Override { model: ModelId, over: Override },
    /// `None`: no longer wished.
    Load {
        model: ModelId,
        wish: Option<LoadWish>,
    },
    LoadAndOverride {
        model: ModelId,
        wish: LoadWish,
        over: Override,
    },
    /// No model is wished to be loaded any more; with `before`, only wishes that existed then are dropped.
    ForgetLoads { before: Option<Time> },
    /// `None`: the device serves again.
    Cordon {
        device: DeviceId,
        cordon: Option<Cordon>,
    },
    /// `None`: the node of this name serves again (N5).
    DrainNode { name: String, drain: Option<Cordon> },
}

/// What one step returns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// In the order in which they must be started.
    pub actions: Vec<Action>,
    /// When the facts next change without an event. Replaces any earlier wake.
    pub wake: Option<Time>,
    /// A demand waits for room: a replica that becomes idle is worth a step at once.
    pub idle_matters: bool,
}

/// How an order ended.
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
    /// The node drains; these replicas have left it.
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
    /// Replicas that are ready now, with what they hold.
    pub ready: Vec<(ReplicaId, Vec<Share>)>,
    pub evicted: Vec<Evicted>,
    /// Why there are fewer than ordered, if so.
    pub shortfall: Option<Refusal>,
    /// With a shortfall: how many replicas the devices could hold if nothing else were loaded.
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

/// One line of the history (D3).
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
    /// What the decision chose from: victims taken, candidates rejected and why.
    pub candidates: Vec<String>,
    /// Reserved bytes of each concerned device before and after.
    pub memory: Vec<MemoryChange>,
    /// Load time, drain time or age, by kind.
    pub took: Option<Span>,
    /// The name of the reason: what records are counted and filtered by.
    pub cause: Option<&'static str>,
    /// The key of the request, or of the first one; 0: without a key. Who gives an order is known outside.
    pub asked_by: Option<KeyId>,
    /// What the decision compared; records of one decision share it.
    pub explanation: Option<Arc<Explanation>>,
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
    NodeReleased,
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
            RecordKind::NodeReleased => "node_released",
        }
    }
}

impl From<LoadReason> for String {
    fn from(reason: LoadReason) -> String {
        reason.to_string()
    }
}
