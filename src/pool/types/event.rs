//! Everything that can happen. A closed list: what is not here, the pool cannot react to.

use alloc::string::String;
use alloc::vec::Vec;

use crate::types::ids::{
    Bytes, DeviceId, KeyId, KindId, ModelId, NodeId, OrderId, Priority, ReplicaId, Span, Ticket,
    Time,
};
use crate::types::link::Link;
use crate::types::model::{Cordon, LoadWish, ModelSpec, Override, OverrideChange, Tier};
use crate::types::replica_state::ReplicaState;
use crate::types::share::Share;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request found no open seat and waits in its model's queue.
    RequestArrived {
        ticket: Ticket,
        model: ModelId,
        key: KeyId,
    },
    /// A waiting client went away (Q3). Requests that have a seat end at the gate instead.
    RequestLeft {
        ticket: Ticket,
    },
    /// What the gates counted, all that changed since the last time, taken at one moment: nothing is
    /// decided from half of it.
    GatesRead {
        readings: Vec<GateReading>,
    },
    /// The gate is closed; so many requests are still inside.
    GateClosed {
        replica: ReplicaId,
        in_flight: u32,
    },
    /// The gate was to be closed only if nobody had used it, and somebody had.
    GateBusy {
        reading: GateReading,
    },
    /// The last request left a closed gate.
    Drained {
        replica: ReplicaId,
    },

    /// A fetch needs about so long still.
    FetchGoesOn {
        model: ModelId,
        left: Span,
    },
    /// A fetch has ended; what it brought was told by `ModelSet` before.
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
    /// Its engine has ended by itself, and serves nobody from now on. What it holds is free when
    /// `ReplicaExited` says so: a container may have to be removed first.
    ReplicaLost {
        replica: ReplicaId,
    },
    ReplicaExited {
        replica: ReplicaId,
        exit: Exit,
    },
    /// It sleeps: its devices' memory is free but for what its engine cannot move.
    ReplicaAsleep {
        replica: ReplicaId,
    },
    /// It could not be put to sleep.
    SleepFailed {
        replica: ReplicaId,
        message: String,
    },
    /// A reading of a node's own memory. Without one nothing sleeps there.
    HostRead {
        node: NodeId,
        reading: HostReading,
    },
    /// A ready engine of an earlier controller was found again (D2).
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

    /// A reading of the inventory. The first one of a device adds it.
    DeviceRead {
        device: DeviceId,
        reading: DeviceReading,
    },
    /// How devices are connected; replaces what was said before.
    LinksRead {
        links: Vec<(DeviceId, DeviceId, Link)>,
    },
    /// The device itself reports trouble: nothing new goes there until an administrator says so
    /// (M7). `lost`: what runs on it is dead; otherwise it may finish.
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
    /// The catalogue has a model, new or changed.
    ModelSet {
        model: ModelId,
        spec: ModelSpec,
    },
    /// What its replicas over that many devices of a kind really take (M1); for the next ones.
    ModelMeasured {
        model: ModelId,
        devices: u32,
        kind: KindId,
        bytes_per_device: Bytes,
    },
    /// What `Pool::remembered` gave before a restart: how much the model was wanted, and how long
    /// its loads took.
    Remembered {
        model: ModelId,
        numbers: Vec<u64>,
    },
    /// The catalogue no longer has it; its replicas drain.
    ModelRemoved {
        model: ModelId,
    },
    /// Wishes kept from before a restart; of a model that is not there they wait for it.
    WishesRestored {
        model: ModelId,
        over: Override,
        load: Option<LoadWish>,
    },

    OrderAsked {
        order: OrderId,
        command: Command,
    },
    /// The store holds what `Action::Save` asked for (D1).
    Saved {
        order: OrderId,
    },
    /// The store refused; the order fails with its words and changes nothing.
    SaveFailed {
        order: OrderId,
        message: String,
    },
    /// A wake-up that the pool asked for came due.
    Woke,
}

/// What one replica's gate has counted. Absolute figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateReading {
    pub replica: ReplicaId,
    /// Requests that have a seat.
    pub in_flight: u32,
    /// Requests that ever got a seat.
    pub entered: u64,
    /// When the last one ended.
    pub last_end: Option<Time>,
}

/// What sleepers may take of a host's memory, and what the system has left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostReading {
    /// For all sleepers together.
    pub capacity: Bytes,
    /// What must stay available; below it sleepers are dropped.
    pub reserve: Bytes,
    /// Available now, without swapping.
    pub available: Bytes,
}

/// What the inventory says of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceReading {
    /// What people call it.
    pub name: String,
    pub node: NodeId,
    pub kind: KindId,
    /// When the figures were taken, for a device whose memory is measured: what a process held
    /// counts as free when a later reading shows it (M4). `None`: it is free when the process ends.
    pub taken: Option<Time>,
    /// All its memory.
    pub total: Bytes,
    /// Kept free for safety (M2).
    pub headroom: Bytes,
    /// Held by processes that are not ours (M2). Never free, never evictable.
    pub foreign: Bytes,
    /// What replicas were measured to hold, those that could be.
    pub own: Vec<(ReplicaId, Bytes)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It was told to stop.
    Asked,
    /// By itself, with its last words.
    Failed { message: String, remedy: Remedy },
    /// It found less memory on a device than it needs; `needed` on each, where it says so.
    OutOfMemory {
        message: String,
        needed: Option<Bytes>,
    },
}

/// How a fetch of weights ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchEnd {
    /// All of it is on this machine.
    Here,
    /// It was told to end.
    Ended,
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
    /// Only a change by somebody: the model is quarantined at once.
    Change,
    /// It had nothing to do with the model: another try at once, though not a second one.
    AnotherTry,
}

/// What an administrator, or the clock on their behalf, can ask.
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
        drain: Span,
        /// Of one that was begun then and broken off: what came since stays.
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanupScope {
    All,
    Idle,
}

impl CleanupScope {
    /// Whether a cleanup that begins now unloads a replica in this state (E1). What is only planned is no
    /// replica yet: its load is given up or goes on with the request that waits for it.
    pub fn concerns(self, state: ReplicaState, in_flight: u32) -> bool {
        match (state, self) {
            (ReplicaState::Planned, _) => false,
            (ReplicaState::Launching, CleanupScope::Idle) => false,
            (ReplicaState::Ready, CleanupScope::Idle) => in_flight == 0,
            _ => true,
        }
    }
}
