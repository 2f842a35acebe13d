//! Messages to the loop: requests and orders from its handle, and reports of its tasks.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::catalog_change::{CatalogFigures, Change, ChangeError, Terms};
use super::node_messages::NodeMessage;
use crate::gates::{GateReport, Lease, SeatUser};
use catalog::{Changes, Warning};
use cluster::ClusterNews;
use config::Config;
use engine::{AdoptionResult, ReadEnd, Report};
use inventory::{DeviceEvent, DeviceUse, MachineMemory};
use pool::{
    BatchDemand, Bytes, Command, DeviceId, FetchEnd, Forecast, GroupId, Groups, KeyId, ModelId,
    NodeId, OrderEffect, OrderId, Outcome, Pool, Priority, Refusal, ReplicaId, Span, Ticket, Tier,
    Time,
};

/// The terms of an order.
#[derive(Clone, Debug, Default)]
pub struct OrderTerms {
    /// The key or the person that gave the order, whom the history names.
    pub by: Option<KeyId>,
    /// The limit of an order of a group's administrator.
    pub priority_max: Option<Priority>,
    /// The effect that the sender has seen in a plan. The order is refused if it would have another one.
    pub planned: Option<OrderEffect>,
    /// The order came over MCP. The history says so.
    pub by_mcp: bool,
}

pub(crate) enum Message {
    Seat {
        ticket: Ticket,
        model: ModelId,
        user: SeatUser,
        /// Time at which the client is expected to leave.
        gives_up: Option<Time>,
        reply: oneshot::Sender<Result<Lease, Refusal>>,
    },
    Left {
        ticket: Ticket,
    },
    /// The batch requests that wait, by model, which replace the earlier ones.
    Batches(Vec<BatchDemand>),
    /// A batch is expected to miss its deadline.
    BatchWarned {
        model: ModelId,
        message: String,
    },
    /// The groups of callers with their members, which replace the earlier ones.
    Groups(Groups),
    /// The group of a person who has just signed on.
    Member {
        key: KeyId,
        group: Option<GroupId>,
    },
    Gate(GateReport),
    /// A request of `watch_task` for a sign of life.
    Sign {
        requested: Time,
    },
    Order {
        order: OrderId,
        command: Command,
        terms: OrderTerms,
        accepted: oneshot::Sender<()>,
        settled: oneshot::Sender<Outcome>,
    },
    /// Returns the number of requests that wait for a seat.
    Waiting {
        reply: oneshot::Sender<usize>,
    },
    /// New forecasts of waits, and the time that they took.
    Forecasts {
        seats: BTreeMap<Ticket, Forecast>,
        took: Span,
    },
    /// Returns a copy of the pool, for plans and what-if questions.
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
        /// The configuration to put in force if the files can be read.
        config: Arc<Config>,
        reply: oneshot::Sender<Result<(Changes, Vec<Warning>), ChangeError>>,
    },
    Report {
        replica: ReplicaId,
        report: Report,
    },
    /// Applications found in Ray Serve, of earlier processes.
    Applications(AdoptionResult),
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
    /// Compute a model's needs again from its files.
    Figure {
        name: String,
        then: Change,
    },
    /// Compute the needs of all models in the catalogue again, for new devices.
    FigureForDevices,
    /// Report the remaining time of a fetch.
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
    /// The result of putting an engine to sleep or waking it.
    Parked(ParkingResult),
    /// A model's figures have been computed off the loop.
    Figured(Box<CatalogFigures>),
    Node(NodeMessage),
    Cluster(ClusterNews),
    /// End the loop and leave the engines to another controller.
    HandOver,
}

/// Results of one round of device readings.
#[derive(Debug)]
pub(crate) struct Readings {
    /// The node of the devices; `None` for this machine.
    pub node: Option<NodeId>,
    /// Start of the readings, which do not show anything later.
    pub began: Time,
    pub devices: Vec<DeviceUse>,
    /// Errors of devices that could not be read.
    pub faults: BTreeMap<DeviceId, String>,
    /// The error of all other devices, if they could not be read.
    pub fault: Option<String>,
    /// Devices that have failed for good.
    pub lost: Vec<DeviceEvent>,
    /// The replica that each process belongs to.
    pub owners: BTreeMap<u32, ReplicaId>,
    /// Memory held by replicas, from nodes that assign processes to replicas themselves.
    pub own: BTreeMap<DeviceId, BTreeMap<ReplicaId, Bytes>>,
    /// Memory of the machine itself, for engines that sleep.
    pub machine: Option<MachineMemory>,
}

/// The command for an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParkRequest {
    Sleep,
    Wake,
}

/// The result of a request to sleep or wake.
#[derive(Debug)]
pub(crate) struct ParkingResult {
    pub replica: ReplicaId,
    pub request: ParkRequest,
    pub outcome: Result<(), String>,
}
