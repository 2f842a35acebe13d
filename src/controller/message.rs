//! The messages to the loop: requests and orders of its handle, and reports of its tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::catalog_change::{Change, ChangeError, Figured, Terms};
use super::gate::Lease;
use super::node_messages::NodeMessage;
use catalog::{Changes, Warning};
use cluster::ClusterNews;
use config::Config;
use engine::{ReadEnd, Report, Resolved};
use inventory::{DeviceEvent, DeviceUse, MachineMemory};
use pool::{
    Bytes, Command, DeviceId, FetchEnd, KeepAlive, KeyId, LoadOrder, ModelId, NodeId, OrderId,
    Outcome, Plan, Pool, Refusal, ReplicaId, Ticket, Tier, Time,
};

pub(super) enum Message {
    Seat {
        ticket: Ticket,
        model: ModelId,
        key: KeyId,
        /// When its client goes away by itself.
        gives_up: Option<Time>,
        reply: oneshot::Sender<Result<Lease, Refusal>>,
    },
    Left {
        ticket: Ticket,
    },
    Drained {
        replica: ReplicaId,
    },
    SeatFreed,
    /// A request has ended that set how long its replica stays.
    KeptAlive {
        replica: ReplicaId,
        keep: KeepAlive,
    },
    /// A request of `watch_task` for a sign of life.
    Sign {
        requested: Time,
    },
    Order {
        order: OrderId,
        command: Command,
        /// The key or the person that gave it.
        by: Option<KeyId>,
        accepted: oneshot::Sender<()>,
        settled: oneshot::Sender<Outcome>,
    },
    Plan {
        load: LoadOrder,
        reply: oneshot::Sender<Option<(Plan, Vec<String>)>>,
    },
    /// How many requests wait for a seat.
    Waiting {
        reply: oneshot::Sender<usize>,
    },
    /// A copy of the pool, for what would be if.
    Copy {
        reply: oneshot::Sender<Box<Pool>>,
    },
    Register {
        document: serde_json::Value,
        terms: Terms,
        reply: oneshot::Sender<Result<Vec<Warning>, ChangeError>>,
    },
    Remove {
        name: String,
        reply: oneshot::Sender<Result<(), ChangeError>>,
    },
    Reload {
        /// What is in force if the files can be read.
        config: Arc<Config>,
        reply: oneshot::Sender<Result<(Changes, Vec<Warning>), ChangeError>>,
    },
    Report {
        replica: ReplicaId,
        report: Report,
    },
    /// Of Ray Serve, and of earlier processes.
    Applications(Resolved),
    Saved {
        order: OrderId,
        failure: Option<String>,
    },
    Readings(Readings),
    DeviceTrouble(DeviceEvent),
    LoadsFrom {
        replica: ReplicaId,
        tier: Tier,
        weights: Option<u64>,
    },
    /// What a model needs is to be worked out anew, from its files.
    Figure {
        name: String,
        then: Change,
    },
    /// The same of all models that the catalogue has by then, for devices that have come.
    FigureForDevices,
    /// It is time to tell how long a fetch still takes.
    FetchProgressed {
        model: ModelId,
    },
    FetchEnded {
        model: ModelId,
        nth: u64,
        outcome: FetchEnd,
    },
    ReadAheadEnded {
        model: ModelId,
        end: ReadEnd,
    },
    /// The outcome of putting an engine to sleep or waking it.
    Parked(Parked),
    /// Figures of a model were computed off the loop.
    Figured(Box<Figured>),
    Node(NodeMessage),
    Cluster(ClusterNews),
    /// End the loop; the engines are another controller's.
    HandOver,
}

/// What one round of measuring gave.
#[derive(Debug)]
pub(super) struct Readings {
    /// Whose devices they are; `None`: those of this machine.
    pub node: Option<NodeId>,
    /// When the measuring began: it says nothing of what happened later.
    pub began: Time,
    pub devices: Vec<DeviceUse>,
    /// Why single devices are missing.
    pub faults: BTreeMap<DeviceId, String>,
    /// Why the others are, if they are.
    pub fault: Option<String>,
    /// Those that are gone for good.
    pub lost: Vec<DeviceEvent>,
    /// Whose process is which.
    pub owners: BTreeMap<u32, ReplicaId>,
    /// What replicas hold, where the node itself knows whose process is which.
    pub own: BTreeMap<DeviceId, BTreeMap<ReplicaId, Bytes>>,
    /// The memory of the machine itself, for engines that sleep.
    pub machine: Option<MachineMemory>,
}

/// What an engine is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParkRequest {
    Sleep,
    Wake,
}

/// The outcome of a request to sleep or to wake.
#[derive(Debug)]
pub(super) struct Parked {
    pub replica: ReplicaId,
    pub request: ParkRequest,
    pub outcome: Result<(), String>,
}
