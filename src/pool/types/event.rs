//! All events that the pool reacts to. A closed list.
//! One file because it is that list, with the data of its entries.

use alloc::string::String;
use alloc::vec::Vec;

use crate::types::batch::BatchDemand;
use crate::types::gang::GangReach;
use crate::types::groups::Groups;
use crate::types::ids::{
    Bytes, DemandId, DeviceId, GroupId, KeyId, KindId, ModelId, NodeId, OrderId, Priority,
    ReplicaId, ShapeId, Span, Ticket, Time,
};
use crate::types::keep_alive::KeepAlive;
use crate::types::key_seats::ReplicaKeys;
use crate::types::link::Link;
use crate::types::model::{Cordon, Limits, LoadWish, ModelSpec, Override, OverrideChange, Tier};
use crate::types::node_demand::{NodeOutlook, NodeRoom, NodeShape, NodesSpent};
use crate::types::order_effect::OrderEffect;
use crate::types::replica_state::ReplicaState;
use crate::types::share::Share;
use crate::types::tokens::{ServiceClass, TokenCosts, Tokens};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The machine's clock jumped and is now `ahead` milliseconds ahead of the step clock. Leases follow it.
    WallClockJumped {
        ahead: i64,
    },
    /// A request found no open seat and waits in its model's queue.
    RequestArrived {
        ticket: Ticket,
        model: ModelId,
        key: KeyId,
    },
    /// The class of a waiting request, and the tokens that it is expected to take. Follows `RequestArrived` in the same step;
    /// without it, the request is of the class `Default` and takes as many as the model's usual request.
    RequestDescribed {
        ticket: Ticket,
        class: ServiceClass,
        expected: Tokens,
    },
    /// The time at which a waiting client gives up on its own if it has no seat. `RequestLeft` follows when it does.
    RequestGivesUp {
        ticket: Ticket,
        at: Time,
    },
    /// A waiting client disconnected (Q3). Requests with a seat end at the gate instead.
    RequestLeft {
        ticket: Ticket,
    },
    /// The simultaneous counts of all gates that have changed since the last reading. No decision is based on a part of them.
    GatesRead {
        readings: Vec<GateReading>,
    },
    /// The seats of each key at the gates that have changed since the last reading.
    KeysRead {
        gates: Vec<ReplicaKeys>,
    },
    /// The groups and their members; replaces the earlier ones. Requests that wait or run stay, and count for the new group of
    /// their key (F6).
    GroupsSet {
        groups: Groups,
    },
    /// The group of a key that is known only now, such as that of a person who signs on.
    MemberSet {
        key: KeyId,
        group: Option<GroupId>,
    },
    /// The measured cost of the model's tokens. Until it is known, requests for the model are charged for the time of their seats.
    TokensMeasured {
        model: ModelId,
        costs: TokenCosts,
    },
    /// The gate is closed. Reports the number of requests still inside.
    GateClosed {
        replica: ReplicaId,
        in_flight: u32,
    },
    /// The gate was to close only if unused, but it had been used.
    GateBusy {
        reading: GateReading,
    },
    /// The last request left a closed gate.
    Drained {
        replica: ReplicaId,
    },
    /// The present batch work of all models, which replaces the earlier list (B4). Absolute figures. A model without an entry has no
    /// batch work.
    BatchesSet {
        demands: Vec<BatchDemand>,
    },
    /// A batch is expected to miss its deadline. Only for the history.
    BatchWarned {
        model: ModelId,
        message: String,
    },
    /// A request with `keep_alive` has ended. The gates have been read since.
    KeptAlive {
        replica: ReplicaId,
        keep: KeepAlive,
    },

    /// The expected remaining time of a fetch.
    FetchProgressed {
        model: ModelId,
        left: Span,
    },
    /// A fetch has ended. Its result was reported by `ModelSet` before.
    FetchEnded {
        model: ModelId,
        end: FetchEnd,
    },
    /// The source of the weights of a load that has begun.
    LoadsFrom {
        replica: ReplicaId,
        tier: Tier,
    },
    ReplicaReady {
        replica: ReplicaId,
    },
    /// The engine has ended on its own and serves no more requests. Its memory is free once `ReplicaExited` reports it, because a
    /// container may have to be removed first.
    ReplicaLost {
        replica: ReplicaId,
    },
    ReplicaExited {
        replica: ReplicaId,
        exit: Exit,
    },
    /// The process of a replica on this node has ended, and its memory there is free. The replica ends with its first member
    /// (M8); of a replica on a single node the same as `ReplicaExited`.
    MemberExited {
        replica: ReplicaId,
        node: NodeId,
        exit: Exit,
    },
    /// The replica sleeps: its device memory is free except for what its engine cannot move.
    ReplicaAsleep {
        replica: ReplicaId,
    },
    /// The replica could not be put to sleep.
    SleepFailed {
        replica: ReplicaId,
        message: String,
    },
    /// The replica could not be woken. A partly woken engine is useless.
    WakeFailed {
        replica: ReplicaId,
        message: String,
    },
    /// A reading of a node's host memory. Nothing sleeps on a node without a reading.
    HostRead {
        node: NodeId,
        reading: HostReading,
    },
    /// A ready engine of an earlier controller was found (D2).
    ReplicaAdopted {
        replica: ReplicaId,
        model: ModelId,
        placement: Vec<Share>,
        /// The time for which it has been ready.
        ready_for: Span,
        /// Requests to which the earlier controller gave a seat on it.
        in_flight: u32,
        /// The time its last request ended.
        last_end: Option<Time>,
    },
    /// Nothing has been started for this load yet. It can still be dropped without a trace, for example because a replica was
    /// adopted in the meantime (D2).
    LoadNotBegun {
        replica: ReplicaId,
    },

    /// A reading of the inventory. The first reading of a device adds it.
    DeviceRead {
        device: DeviceId,
        reading: DeviceReading,
    },
    /// The devices among `of` that the model's file allows. The model may use its other devices as before.
    DevicesAllowed {
        model: ModelId,
        of: Vec<DeviceId>,
        allowed: Vec<DeviceId>,
    },
    /// The connections between devices of a node. Replaces the known links of the named devices.
    LinksRead {
        links: Vec<(DeviceId, DeviceId, Link)>,
    },
    /// The device itself reports a failure: nothing is placed on it until an administrator allows it (M7). `lost` is true if its
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
    /// A node is connected, for the first time or again (N1). Its devices follow as readings. Orders that an earlier connection did
    /// not deliver are lost, so the pool repeats them.
    NodeJoined {
        node: NodeId,
        /// The name shown to administrators. Drains are stored under it.
        name: String,
        /// Replicas of this pool whose engines run there, including engines that it is ending.
        running: Vec<ReplicaId>,
        /// The request of the pool that brought the node.
        demand: Option<DemandId>,
        /// The nodes with which it can share a replica (M8).
        reach: GangReach,
    },
    /// The node had joined when the controller ended, and may come back (N2).
    NodeExpected {
        node: NodeId,
        name: String,
    },
    /// The node has not responded for a while, so the state of its replicas is unknown (N2).
    NodeSilent {
        node: NodeId,
    },
    /// The node is certainly gone, and everything on it has ended (N3).
    NodeGone {
        node: NodeId,
        why: String,
    },
    /// The node must be gone by this time, the cluster's time limit, which may change (N7).
    NodeEnds {
        node: NodeId,
        at: Time,
    },
    /// The size of a requested node, as the cluster reports it. Nodes with the same `lease` end together.
    NodeSized {
        node: NodeId,
        shape: ShapeId,
        lease: Option<DemandId>,
    },
    /// The node has been ordered to end and will be gone by this time (N7).
    NodeLeaves {
        node: NodeId,
        at: Time,
    },
    /// A drain kept from before a restart, by the node's name (N5).
    NodeDrainRestored {
        name: String,
        drain: Cordon,
    },
    /// The node sizes that a cluster can bring; replaces the earlier list. If it is empty, no node is requested (S2).
    ShapesSet {
        shapes: Vec<NodeShape>,
    },
    /// The use by requested nodes in the current day and month (S2).
    NodesSpent {
        spent: NodesSpent,
    },
    /// The cluster has accepted the request and reports why the node is not there yet.
    NodePending {
        demand: DemandId,
        reason: String,
        outlook: NodeOutlook,
    },
    /// The result of `Pool::remembered_shape` before a restart: the figures of a node of this size (S2).
    ShapeRemembered {
        shape: ShapeId,
        numbers: Vec<u64>,
    },
    /// The sizes of which the cluster can bring only some nodes at present; replaces the earlier list (S2).
    ShapesClosed {
        shapes: Vec<(ShapeId, NodeRoom)>,
    },
    /// The cluster refuses to bring this node.
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
    /// The configuration has new limits. A drain that has begun keeps its deadline.
    LimitsSet {
        limits: Limits,
    },
    /// The measured memory of the model's replicas on this number and kind of devices, used for later replicas.
    ModelMeasured {
        model: ModelId,
        devices: u32,
        kind: KindId,
        bytes_per_device: Bytes,
    },
    /// The result of `Pool::remembered` before a restart: how much the model was used and how long its loads took.
    Remembered {
        model: ModelId,
        numbers: Vec<u64>,
    },
    /// The model was removed from the catalogue; its replicas drain.
    ModelRemoved {
        model: ModelId,
    },
    /// Wishes kept from before a restart. Wishes for a missing model wait until it is added.
    WishesRestored {
        model: ModelId,
        over: Override,
        load: Option<LoadWish>,
    },

    OrderReceived {
        order: OrderId,
        command: Command,
    },
    /// An order of a group's administrator. It is refused for a model of a higher priority than `priority_max`, and an unload cuts
    /// no request.
    GroupOrderReceived {
        order: OrderId,
        command: Command,
        priority_max: Priority,
    },
    /// An order whose sender has seen its effect in a plan. It is refused if it would have another effect, before it is stored and
    /// again when it begins. `priority_max` is that of a group's administrator.
    PlannedOrderReceived {
        order: OrderId,
        command: Command,
        priority_max: Option<Priority>,
        effect: OrderEffect,
    },
    /// The store has written what `Action::Save` gave it (D1).
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

/// The counts of a replica's gate. Absolute figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateReading {
    pub replica: ReplicaId,
    /// Requests that have a seat.
    pub in_flight: u32,
    /// The total number of requests that have ever had a seat.
    pub entered: u64,
    /// The time the last request ended.
    pub last_end: Option<Time>,
    /// The idle time of the replica when a request last found it idle with an open gate.
    pub idle_before: Option<Span>,
}

/// The host memory that sleepers may use, and the memory that the system has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostReading {
    /// The maximum for all sleepers together.
    pub capacity: Bytes,
    /// Memory that must stay available. Below it, sleepers are dropped.
    pub reserve: Bytes,
    /// Available now, without swapping. Excludes the parts of running engines on the host, used or not.
    pub available: Bytes,
    /// The machine's memory, or the part that its control groups leave; zero if it is unknown.
    pub total: Bytes,
}

impl HostReading {
    /// The memory that the pool can have at most. `None` if the machine's memory is unknown.
    pub fn most(&self) -> Option<Bytes> {
        most_of_host(self.total, self.reserve)
    }
}

pub(crate) fn most_of_host(total: Bytes, reserve: Bytes) -> Option<Bytes> {
    (total > Bytes::ZERO).then(|| total.saturating_sub(reserve))
}

/// The inventory's reading of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceReading {
    /// The name shown to administrators.
    pub name: String,
    pub node: NodeId,
    pub kind: KindId,
    /// The time of the measurement, for a device whose memory is measured: a process's memory counts as free once a later reading
    /// shows it (M4). `None`: the memory is free when the process ends.
    pub taken: Option<Time>,
    /// The total memory.
    pub total: Bytes,
    /// Kept free for safety (M2).
    pub headroom: Bytes,
    /// Held by processes outside the pool (M2). Never free, never evictable.
    pub foreign: Bytes,
    /// The measured memory of replicas, where it could be measured.
    pub own: Vec<(ReplicaId, Bytes)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It was ordered to stop.
    Requested,
    /// It ended on its own; `message` is its last output.
    Failed { message: String, remedy: Remedy },
    /// A device had less memory than required. `needed` is the requirement per device, if the engine reports it.
    OutOfMemory {
        message: String,
        needed: Option<Bytes>,
    },
}

/// The end of a fetch of weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchEnd {
    /// All weights are on this machine.
    Complete,
    /// It was ordered to end.
    Cancelled,
    Failed {
        message: String,
        remedy: Remedy,
    },
}

/// The remedy for a failure (L3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Time may help: the model cools down.
    Time,
    /// Only a change of configuration or environment: the model is quarantined immediately.
    Change,
    /// The model did not cause it: a single immediate retry.
    Retry,
}

/// The orders that an administrator, or the schedule on their behalf, can give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    Load(LoadOrder),
    /// Drains and unloads; `now` does not wait for the requests in flight.
    Unload {
        model: ModelId,
        replica: Option<ReplicaId>,
        now: bool,
    },
    /// Changes the administrator's override.
    Set {
        model: ModelId,
        change: OverrideChange,
    },
    /// Empties the pool (E1) and lifts the protection of always-hot models until `Reopen` (E2).
    Cleanup {
        scope: CleanupScope,
        /// The drain time of the complete cleanup, from its beginning.
        drain: Span,
        /// The start time of the interrupted cleanup that this one finishes. Replicas launched after it stay.
        begun: Option<Time>,
    },
    /// The morning: always-hot models come back (E2).
    Reopen,
    /// Unloads everything and forgets failures.
    Reset,
    /// Drains a device and places nothing on it, until `Uncordon` (M7).
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
    /// Drains all devices of a node, including devices added later, until `UndrainNode` (N5).
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
    /// Takes no new requests; drains and stops everything (D2).
    Shutdown {
        drain: Span,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadOrder {
    pub model: ModelId,
    /// At least 1. `None`: the current number when the order begins, and none is stopped.
    pub replicas: Option<u32>,
    pub devices: Option<u32>,
    pub priority: Option<Priority>,
    pub keep_hot: Option<Span>,
    pub lease: Option<Span>,
    /// May also evict replicas of equal priority and always-hot models (P4).
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
    /// Returns true if a cleanup that begins now unloads a replica in this state (E1). A planned load is not a replica yet: it is
    /// dropped, or continues with the request that waits for it.
    pub fn concerns(self, state: ReplicaState, in_flight: u32) -> bool {
        match (state, self) {
            (ReplicaState::Planned, _) => false,
            (ReplicaState::Launching, CleanupScope::Idle) => false,
            (ReplicaState::Ready, CleanupScope::Idle) => in_flight == 0,
            _ => true,
        }
    }
}
