//! The messages of both directions, and the data of a launch as it crosses the connection.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::devices::{NodeDevice, NodeReadings, TroubleForm};
use super::weights::WeightsForm;
use config::Provider;
use engine::{
    ActivityReport, CudaProgram, DeviceAddress, EngineLoad, ExitReport, Kept, Launch,
    LivenessLimits, Program, Report, Watch,
};
use pool::{Bytes, ReplicaId};

/// What a node sends.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromNode {
    /// Always the first.
    Hello(Box<Hello>),
    /// Every engine of the node, once the reports that the controller lacked have been sent.
    Running(Vec<Running>),
    Report {
        number: u64,
        report: NodeReport,
    },
    Readings(NodeReadings),
    Log {
        replica: u64,
        lines: Vec<LogLineForm>,
    },
    Beat,
}

/// What a controller sends.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromController {
    /// One of the two is always the first.
    Accepted(Box<Accepted>),
    Refused(Refused),
    Order(Order),
    Beat {
        /// The controller's clock.
        at: u64,
        /// Reports up to this number have arrived.
        received: u64,
        /// How soon the devices should be read again.
        read_every_ms: u64,
        /// What requests show of the engines.
        activity: Vec<(u64, ActivityReport)>,
    },
}

/// Who connects.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub version: String,
    pub name: String,
    /// Random at each start of the node.
    pub epoch: u64,
    /// The machine's start and the node's data folder, which one process at a time holds.
    pub place: String,
    /// The controller that accepted it last.
    pub controller: Option<u64>,
    pub relay: RelayForm,
    pub provider: Provider,
    pub devices: Vec<NodeDevice>,
    /// The request of the pool that brought it.
    pub demand: Option<u64>,
    /// The highest generation of a controller that it has obeyed (D4). Earlier versions have none.
    #[serde(default)]
    pub generation: Option<u64>,
}

/// Where the gateway reaches the node's engines.
#[derive(Clone, Serialize, Deserialize)]
pub struct RelayForm {
    pub address: std::net::SocketAddr,
    pub secret: String,
    /// Of its certificate; `None`: plain TCP.
    pub fingerprint: Option<String>,
}

impl std::fmt::Debug for RelayForm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RelayForm")
            .field("address", &self.address)
            .field("secret", &"hidden")
            .field("fingerprint", &self.fingerprint)
            .finish()
    }
}

#[derive(Serialize, Deserialize)]
pub struct Accepted {
    /// Random at each start of the controller.
    pub controller: u64,
    /// Reports of this epoch up to this number have arrived; 0: none.
    pub received: u64,
    /// With it this node, and no other, may come back. `None`: it keeps what it has.
    pub credential: Option<String>,
    /// Silence after which a connection is given up.
    pub silent_after_ms: u64,
    /// How long a node without a controller keeps its engines.
    pub orphan_after_ms: u64,
    /// How long requests in flight may take when it ends.
    pub drain_ms: u64,
    /// Of all orders on this connection: a later controller of the same state has a higher one (D4). `None`: only one process
    /// can have the state, or it is of an earlier version.
    #[serde(default)]
    pub generation: Option<u64>,
}

impl std::fmt::Debug for Accepted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accepted")
            .field("controller", &self.controller)
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}

/// Why a node is not accepted, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    pub message: String,
    pub kind: RefusedKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusedKind {
    /// It may be accepted later.
    NotNow,
    /// It never will as it is.
    Never,
    /// Its work was given to others: it must end its engines at once.
    Fenced,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    Start(Box<Start>),
    Stop {
        replica: u64,
        grace_ms: u64,
    },
    /// A command that puts an engine to sleep or wakes it; answered by `Commanded`.
    Command {
        replica: u64,
        sleep: bool,
        words: Vec<String>,
        deadline_ms: u64,
    },
    /// End everything and leave.
    Leave {
        why: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    pub launch: LaunchForm,
    pub kept: KeptForm,
    /// Weights that the controller has fetched. `None`: they must lie on the node, or its engine fetches them. Older nodes do
    /// not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Box<WeightsForm>>,
}

/// A launch without what the node itself knows better: folders, executables, names of metrics.
#[derive(Debug, Serialize, Deserialize)]
pub struct LaunchForm {
    pub replica: u64,
    pub model: String,
    pub program: Program,
    pub devices: Vec<DeviceAddress>,
    pub bytes_per_device: u64,
    pub limits: LivenessLimits,
    /// The model's name in the engine.
    pub engine_model_name: String,
}

impl LaunchForm {
    pub fn of(launch: Launch) -> LaunchForm {
        LaunchForm {
            replica: launch.replica.0,
            model: launch.model_name,
            program: launch.program,
            devices: launch.devices,
            bytes_per_device: launch.bytes_per_device.0,
            limits: launch.watch.limits,
            engine_model_name: launch.watch.model_name,
        }
    }

    /// The launch on this machine.
    pub fn here(
        self,
        executable: PathBuf,
        cuda: CudaProgram,
        runtime_dir: PathBuf,
        log_dir: PathBuf,
    ) -> Launch {
        let mut program = self.program;
        if let Program::Candle(candle) = &mut program {
            candle.executable = executable;
            candle.cuda = cuda;
        }
        Launch {
            replica: ReplicaId(self.replica),
            model_name: self.model,
            watch: Watch {
                activity: Default::default(),
                limits: self.limits,
                model_name: self.engine_model_name,
                metrics: program.metrics(),
            },
            program,
            devices: self.devices,
            bytes_per_device: Bytes(self.bytes_per_device),
            runtime_dir,
            log_dir,
        }
    }
}

/// What a later controller must know of a launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptForm {
    pub placement: Vec<PlacedBytes>,
    pub arguments: String,
    pub served_model_name: Option<String>,
    pub stop_grace_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedBytes {
    /// By the controller's key of the device.
    pub device: String,
    pub bytes: u64,
}

impl KeptForm {
    pub fn of(kept: Kept) -> KeptForm {
        let placement = kept.placement.into_iter();
        KeptForm {
            placement: placement
                .map(|(device, bytes)| PlacedBytes {
                    device,
                    bytes: bytes.0,
                })
                .collect(),
            arguments: kept.arguments,
            served_model_name: kept.served_model_name,
            stop_grace_ms: milliseconds(kept.stop_grace),
        }
    }

    pub fn kept(self) -> Kept {
        let placement = self.placement.into_iter();
        Kept {
            placement: placement.map(|it| (it.device, Bytes(it.bytes))).collect(),
            arguments: self.arguments,
            served_model_name: self.served_model_name,
            stop_grace: Duration::from_millis(self.stop_grace_ms),
        }
    }
}

/// An engine of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    pub replica: u64,
    pub model: String,
    pub kept: KeptForm,
    pub pid: Option<u32>,
    /// How long it has been ready; `None`: it loads.
    pub ready_for_ms: Option<u64>,
    /// How long ago its last request ended, as far as the node knows.
    pub idle_for_ms: Option<u64>,
    pub asleep: bool,
    /// It was ordered to stop.
    pub ending: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeReport {
    Engine {
        replica: u64,
        report: EngineReport,
    },
    /// The outcome of `Order::Command`.
    Commanded {
        replica: u64,
        sleep: bool,
        outcome: Result<(), String>,
    },
    Trouble {
        device: String,
        trouble: TroubleForm,
    },
    /// It will end when its engines have: nothing more should be placed on it.
    Leaving {
        why: String,
    },
    /// It has ended all its engines and ends now.
    Goodbye {
        why: String,
    },
}

/// A report of an engine, as `engine::Report`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineReport {
    Started { pid: u32 },
    Contained { pid: u32 },
    Progress { stage: String, percent: Option<u8> },
    Ready { took_ms: u64 },
    Memory { now: u64, peak: u64 },
    Load(EngineLoad),
    Dead { reason: String },
    Ended { message: String },
    Exited(ExitReport),
}

impl EngineReport {
    /// `None` for what no engine of a node reports.
    pub fn of(report: Report) -> Option<EngineReport> {
        Some(match report {
            Report::Started { pid, .. } => EngineReport::Started { pid },
            Report::Reached { .. } => return None,
            Report::Contained { pid } => EngineReport::Contained { pid },
            Report::Progress { stage, percent } => EngineReport::Progress { stage, percent },
            Report::Ready { took } => EngineReport::Ready {
                took_ms: milliseconds(took),
            },
            Report::Memory { now, peak } => EngineReport::Memory {
                now: now.0,
                peak: peak.0,
            },
            Report::Load(load) => EngineReport::Load(load),
            Report::Dead { reason } => EngineReport::Dead { reason },
            Report::Ended { message } => EngineReport::Ended { message },
            Report::Exited(exit) => EngineReport::Exited(exit),
        })
    }

    /// The report of an engine that the gateway reaches at `endpoint`.
    pub fn report(self, endpoint: engine::Endpoint) -> Report {
        match self {
            EngineReport::Started { pid } => Report::Started { pid, endpoint },
            EngineReport::Contained { pid } => Report::Contained { pid },
            EngineReport::Progress { stage, percent } => Report::Progress { stage, percent },
            EngineReport::Ready { took_ms } => Report::Ready {
                took: Duration::from_millis(took_ms),
            },
            EngineReport::Memory { now, peak } => Report::Memory {
                now: Bytes(now),
                peak: Bytes(peak),
            },
            EngineReport::Load(load) => Report::Load(load),
            EngineReport::Dead { reason } => Report::Dead { reason },
            EngineReport::Ended { message } => Report::Ended { message },
            EngineReport::Exited(exit) => Report::Exited(exit),
        }
    }
}

/// A line of an engine's output, with secrets masked.
#[derive(Debug, Serialize, Deserialize)]
pub struct LogLineForm {
    pub sequence: u64,
    /// Milliseconds of the node's Unix time, for people.
    pub at_ms: u64,
    pub is_stderr: bool,
    pub text: String,
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
