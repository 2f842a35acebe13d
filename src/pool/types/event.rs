//! Everything that can happen. A closed list: the pool reacts to nothing else.
//! One file because it is that list, with what its entries hold.

use alloc::string::String;
use alloc::vec::Vec;

use crate::types::ids::{
    Bytes, DemandId, DeviceId, KeyId, KindId, ModelId, NodeId, OrderId, Priority, ReplicaId, Span,
    Ticket, Time,
};
use crate::types::keep_alive::KeepAlive;
use crate::types::link::Link;
use crate::types::model::{Cordon, Limits, LoadWish, ModelSpec, Override, OverrideChange, Tier};
use crate::types::node_demand::NodeShape;
use crate::types::replica_state::ReplicaState;
use crate::types::share::Share;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The machine's clock jumped and is now `ahead` milliseconds ahead of the time of the steps. Leases follow it.
    WallClockJumped {
        ahead: i64,
    },
    /// A request found no open seat and waits in its model's queue.
    RequestArrived {
        ticket: Ticket,
        model: ModelId,
        key: KeyId,
    },
    /// A waiting client goes away by itself at this moment, if it has no seat by then. `RequestLeft` follows when it does.
    RequestGivesUp {
        ticket: Ticket,
        at: Time,
    },
    /// A waiting client went away (Q3). Requests that have a seat end at the gate instead.
    RequestLeft {
        ticket: Ticket,
    },
    /// The counts of all gates that changed since the last time, taken at one moment: no decision is based on part of
    /// them.
    GatesRead {
        readings: Vec<GateReading>,
    },
    /// The gate is closed, with the number of requests still inside.
    GateClosed {
        replica: ReplicaId,
        in_flight: u32,
    },
    /// The gate was to close only if unused, and it had been used.
    GateBusy {
        reading: GateReading,
    },
    /// The last request left a closed gate.
    Drained {
        replica: ReplicaId,
    },
    /// A request with `keep_alive` has ended. The gates were read after that.
    KeptAlive {
        replica: ReplicaId,
        keep: KeepAlive,
    },

    /// A fetch needs about this much longer.
    FetchProgressed {
        model: ModelId,
        left: Span,
    },
    /// A fetch has ended; its result was reported by `ModelSet` before.
    FetchEnded {
        model: ModelId,
        end: FetchEnd,
    },
    /// Where the weights of a load that has begun come from.
    LoadsFrom {
        replica: ReplicaId,
        tier: Tier,
    },
    ReplicaReady {
        replica: ReplicaId,
    },
    /// Its engine has ended by itself, and serves no more requests. Its memory is free when `ReplicaExited` reports
    /// it: a container may have to be removed first.
    ReplicaLost {
        replica: ReplicaId,
    },
    ReplicaExited {
        replica: ReplicaId,
        exit: Exit,
    },
    /// It sleeps: its devices' memory is free except for what its engine cannot move.
    ReplicaAsleep {
        replica: ReplicaId,
    },
    /// It could not be put to sleep.
    SleepFailed {
        replica: ReplicaId,
        message: String,
    },
    /// It could not be woken. Half awake it is of no use.
    WakeFailed {
        replica: ReplicaId,
        message: String,
    },
    /// A reading of a node's host memory. Without one nothing sleeps there.
    HostRead {
        node: NodeId,
        reading: HostReading,
    },
    /// A ready engine of an earlier controller was found (D2).
    ReplicaAdopted {
        replica: ReplicaId,
        model: ModelId,
        placement: Vec<Share>,
        /// How long it has been ready.
        ready_for: Span,
        /// Requests that have a seat on it, given by the earlier controller.
        in_flight: u32,
        /// When its last request ended.
        last_end: Option<Time>,
    },
    /// Nothing has been started for this load yet: it may end as if it had never been, such as for a replica that was
    /// adopted meanwhile (D2).
    LoadNotBegun {
        replica: ReplicaId,
    },

    /// A reading of the inventory. The first one of a device adds it.
    DeviceRead {
        device: DeviceId,
        reading: DeviceReading,
    },
    /// How the devices of a node are connected; replaces what was known of those that are named.
    LinksRead {
        links: Vec<(DeviceId, DeviceId, Link)>,
    },
    /// The device itself reports a failure: nothing is placed on it until an administrator allows it (M7). `lost`: its
    /// processes are dead; otherwise they may finish.
    DeviceFailed {
        device: DeviceId,
        trouble: String,
        lost: bool,
    },
    /// Cordons kept from before a restart.
    CordonRestored {
        device: DeviceId,
        cordon: Cordon,
    },
    /// A node is connected, for the first time or again (N1). Its devices come as readings. Orders that an earlier
    /// connection has not delivered are lost: the pool gives them again.
    NodeJoined {
        node: NodeId,
        /// The name shown to administrators, under which drains are kept.
        name: String,
        /// Replicas of this pool whose engines it has, those that it is ending included.
        running: Vec<ReplicaId>,
        /// The request of the pool that brought it.
        demand: Option<DemandId>,
    },
    /// The node had joined when the controller ended, and may come back (N2).
    NodeExpected {
        node: NodeId,
        name: String,
    },
    /// Nothing has been heard of the node for a while, so what is on it is unknown (N2).
    NodeSilent {
        node: NodeId,
    },
    /// The node is certainly gone, and what ran on it has ended (N3).
    NodeGone {
        node: NodeId,
        why: String,
    },
    /// The node must be gone by then: the cluster's time limit, which may change (N7).
    NodeEnds {
        node: NodeId,
        at: Time,
    },
    /// The node has been ordered to end, and will be gone by then (N7).
    NodeLeaves {
        node: NodeId,
        at: Time,
    },
    /// A drain kept from before a restart, by the node's name (N5).
    NodeDrainRestored {
        name: String,
        drain: Cordon,
    },
    /// The sizes of nodes that a cluster can bring; replaces the earlier list. None: no node is requested (S2).
    ShapesSet {
        shapes: Vec<NodeShape>,
    },
    /// The cluster has taken the request, and says why the node is not there yet.
    NodePending {
        demand: DemandId,
        reason: String,
    },
    /// The cluster brings no such node.
    NodeRefused {
        demand: DemandId,
        why: String,
    },
    /// The models whose weights are on the node's disk or in its page cache; replaces the earlier list (N6).
    WeightsOn {
        node: NodeId,
        models: Vec<ModelId>,
    },
    /// The catalogue has a new or changed model.
    ModelSet {
        model: ModelId,
        spec: ModelSpec,
    },
    /// The configuration has other limits now. A drain that has begun keeps its deadline.
    LimitsSet {
        limits: Limits,
    },
    /// The measured memory of its replicas over that many devices of a kind; used for the next ones.
    ModelMeasured {
        model: ModelId,
        devices: u32,
        kind: KindId,
        bytes_per_device: Bytes,
    },
    /// The result of `Pool::remembered` before a restart: how much the model was used, and how long its loads took.
    Remembered {
        model: ModelId,
        numbers: Vec<u64>,
    },
    /// The model was removed from the catalogue; its replicas drain.
    ModelRemoved {
        model: ModelId,
    },
    /// Wishes kept from before a restart; those of a missing model wait until it is added.
    WishesRestored {
        model: ModelId,
        over: Override,
        load: Option<LoadWish>,
    },

    OrderReceived {
        order: OrderId,
        command: Command,
    },
    /// The store holds what `Action::Save` gave it (D1).
    Saved {
        order: OrderId,
    },
    /// The store failed; the order fails with its message and changes nothing.
    SaveFailed {
        order: OrderId,
        message: String,
    },
    /// A wake-up that the pool requested is due.
    TimerFired,
}

/// The counts of one replica's gate. Absolute figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateReading {
    pub replica: ReplicaId,
    /// Requests that have a seat.
    pub in_flight: u32,
    /// Requests that have ever got a seat.
    pub entered: u64,
    /// When the last request ended.
    pub last_end: Option<Time>,
    /// How long the replica had been idle when a request last found it idle and its gate open.
    pub idle_before: Option<Span>,
}

/// What sleepers may take of a host's memory, and what the system has available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostReading {
    /// For all sleepers together.
    pub capacity: Bytes,
    /// What must stay available; below it sleepers are dropped.
    pub reserve: Bytes,
    /// Available now, without swapping.
    pub available: Bytes,
}

/// The inventory's reading of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceReading {
    /// The name shown to administrators.
    pub name: String,
    pub node: NodeId,
    pub kind: KindId,
    /// When the figures were taken, for a device whose memory is measured: a process's memory counts as free when a
    /// later reading shows it (M4). `None`: it is free when the process ends.
    pub taken: Option<Time>,
    /// All its memory.
    pub total: Bytes,
    /// Kept free for safety (M2).
    pub headroom: Bytes,
    /// Held by processes that are not the pool's (M2). Never free, never evictable.
    pub foreign: Bytes,
    /// The measured memory of replicas, for those that could be measured.
    pub own: Vec<(ReplicaId, Bytes)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It was ordered to stop.
    Requested,
    /// It ended by itself; `message` is its last output.
    Failed { message: String, remedy: Remedy },
    /// A device had less memory than it needs; `needed` on each, if the engine reports it.
    OutOfMemory {
        message: String,
        needed: Option<Bytes>,
    },
}

/// How a fetch of weights ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchEnd {
    /// All of it is on this machine.
    Complete,
    /// It was ordered to end.
    Cancelled,
    Failed {
        message: String,
        remedy: Remedy,
    },
}

/// What may help after a failure (L3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Time may: the model cools down.
    Time,
    /// Only a change of configuration or environment: the model is quarantined at once.
    Change,
    /// The model did not cause it: one more try at once, but only one.
    Retry,
}

/// What an administrator, or the schedule on their behalf, can order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Load(LoadOrder),
    /// Drain and unload; `now` does not wait for the requests in flight.
    Unload {
        model: ModelId,
        replica: Option<ReplicaId>,
        now: bool,
    },
    /// Change the administrator's override.
    Set {
        model: ModelId,
        change: OverrideChange,
    },
    /// Empty the pool (E1) and lift the protection of always-hot models until `Reopen` (E2).
    Cleanup {
        scope: CleanupScope,
        /// Of the complete cleanup, from its beginning.
        drain: Span,
        /// When an interrupted cleanup began that this one finishes: what has been loaded since stays.
        begun: Option<Time>,
    },
    /// The morning: always-hot models come back (E2).
    Reopen,
    /// Unload everything and forget failures.
    Reset,
    /// Drain a device and place nothing on it, until `Uncordon` (M7).
    Cordon {
        device: DeviceId,
        reason: String,
        until: Option<Time>,
        /// Does not wait for the requests in flight.
        now: bool,
    },
    Uncordon {
        device: DeviceId,
    },
    /// Drain every device of a node, those that it gets later included, until `UndrainNode` (N5).
    DrainNode {
        node: NodeId,
        reason: String,
        until: Option<Time>,
        /// Does not wait for the requests in flight.
        now: bool,
    },
    UndrainNode {
        node: NodeId,
    },
    /// Take no new requests, drain and stop everything (D2).
    Shutdown {
        drain: Span,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadOrder {
    pub model: ModelId,
    /// At least one. Without a number: as many as there are when the order begins, and none is stopped.
    pub replicas: Option<u32>,
    pub devices: Option<u32>,
    pub priority: Option<Priority>,
    pub keep_hot: Option<Span>,
    pub lease: Option<Span>,
    /// May evict equal and always-hot models too (P4).
    pub force: bool,
    /// Waits for a turn or a load to end if the model cannot be placed yet. Otherwise the order is refused.
    pub waits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanupScope {
    All,
    Idle,
}

impl CleanupScope {
    /// Whether a cleanup that begins now unloads a replica in this state (E1). A planned load is not a replica yet: it
    /// is dropped, or goes on with the request that waits for it.
    pub fn concerns(self, state: ReplicaState, in_flight: u32) -> bool {
        match (state, self) {
            (ReplicaState::Planned, _) => false,
            (ReplicaState::Launching, CleanupScope::Idle) => false,
            (ReplicaState::Ready, CleanupScope::Idle) => in_flight == 0,
            _ => true,
        }
    }
}
