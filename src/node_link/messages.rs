//! The messages of both directions, and the serialized form of a launch.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::devices::{NodeDevice, NodeReadings, TroubleForm};
use super::kept::KeptForm;
use super::weights::WeightsForm;
use config::Provider;
use engine::{
    ActivityReport, CudaProgram, DeviceAddress, EngineLoad, ExitReport, Launch, LivenessLimits,
    Program, Report, Watch,
};
use pool::{Bytes, ReplicaId};

/// Messages from a node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromNode {
    /// Always the first message.
    Hello(Box<Hello>),
    /// Every engine of the node, sent after the reports that the controller lacked.
    Running(Vec<RunningEngine>),
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

/// Messages from a controller.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromController {
    /// The first message is this or `Refused`.
    Accepted(Box<NodeAcceptance>),
    Refused(NodeRefusal),
    Order(Order),
    Beat {
        /// The controller's clock.
        at: u64,
        /// Reports up to this number have arrived.
        received: u64,
        /// Interval at which the devices should be read.
        read_every_ms: u64,
        /// Activity of the engines, from their requests.
        activity: Vec<(u64, ActivityReport)>,
    },
}

/// A node's greeting.
#[derive(Debug, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    pub version: String,
    pub name: String,
    /// Random at the start of the node. A process that adopts the engines of an earlier one keeps its epoch.
    pub epoch: u64,
    /// The machine's boot and the node's data folder, which admits one process at a time.
    pub place: String,
    /// The controller that accepted the node last.
    pub controller: Option<u64>,
    pub relay: RelayForm,
    pub provider: Provider,
    pub devices: Vec<NodeDevice>,
    /// The pool's request that brought the node.
    pub demand: Option<u64>,
    /// The highest generation of a controller that the node has obeyed (D4). Missing from earlier versions.
    #[serde(default)]
    pub generation: Option<u64>,
    /// The node can run a process of a replica that spans several nodes (M8). Earlier versions would start a complete engine.
    #[serde(default)]
    pub runs_members: bool,
    /// Random at each start of the node's process. A process that continues the work of an earlier one has the same epoch and
    /// another number here. 0 from earlier versions.
    #[serde(default)]
    pub process: u64,
}

/// The node's listener, through which the gateway reaches its engines.
#[derive(Clone, Serialize, Deserialize)]
pub struct RelayForm {
    pub address: std::net::SocketAddr,
    pub secret: String,
    /// Fingerprint of the listener's certificate; `None` for plain TCP.
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
pub struct NodeAcceptance {
    /// Random at each start of the controller.
    pub controller: u64,
    /// Reports of this epoch up to this number have arrived; 0 if none.
    pub received: u64,
    /// Lets this node, and no other, return. `None` keeps its current credential.
    pub credential: Option<String>,
    /// Time of silence after which a connection is given up.
    pub silent_after_ms: u64,
    /// Time that a node without a controller keeps its engines.
    pub orphan_after_ms: u64,
    /// Time limit for requests in flight when the node ends.
    pub drain_ms: u64,
    /// Generation of all orders on this connection: a later controller of the same state has a higher one (D4). `None` if only one
    /// process can use the state, or from earlier versions.
    #[serde(default)]
    pub generation: Option<u64>,
}

impl std::fmt::Debug for NodeAcceptance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeAcceptance")
            .field("controller", &self.controller)
            .field("received", &self.received)
            .finish_non_exhaustive()
    }
}

/// The reason a node is refused, with what to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRefusal {
    pub message: String,
    pub kind: NodeRefusalKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRefusalKind {
    /// The node may be accepted later.
    NotNow,
    /// The node will not be accepted without a change.
    Never,
    /// The node's work has been given to others: it must end its engines immediately.
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
    /// A command that puts an engine to sleep or wakes it. The node replies with `Commanded`.
    Command {
        replica: u64,
        sleep: bool,
        words: Vec<String>,
        deadline_ms: u64,
    },
    /// End all engines and leave.
    Leave {
        why: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    pub launch: LaunchForm,
    pub kept: KeptForm,
    /// Weights that the controller has fetched. `None` if they must exist on the node, or if its engine fetches them. Older nodes
    /// ignore the field.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weights: Option<Box<WeightsForm>>,
}

/// A launch without the parts that the node supplies itself: folders, executables, names of metrics.
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
    pub fn new(launch: Launch) -> LaunchForm {
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
            member: None,
        }
    }
}

/// A running engine of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunningEngine {
    pub replica: u64,
    pub model: String,
    pub kept: KeptForm,
    pub pid: Option<u32>,
    /// Time since it became ready; `None` while it loads.
    pub ready_for_ms: Option<u64>,
    /// Time since its last request ended, as far as the node knows.
    pub idle_for_ms: Option<u64>,
    pub asleep: bool,
    /// It has been ordered to stop.
    pub ending: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeReport {
    Engine {
        replica: u64,
        report: EngineReport,
    },
    /// The result of `Order::Command`.
    Commanded {
        replica: u64,
        sleep: bool,
        outcome: Result<(), String>,
    },
    Trouble {
        device: String,
        trouble: TroubleForm,
    },
    /// The node ends when its engines have ended: place nothing more on it.
    Leaving {
        why: String,
    },
    /// The node has ended all its engines and ends now.
    Goodbye {
        why: String,
    },
}

/// The serialized form of `engine::Report`.
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
    /// Returns `None` for reports that engines of a node never send.
    pub fn from_report(report: Report) -> Option<EngineReport> {
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
    /// Unix time of the node in milliseconds, for display.
    pub at_ms: u64,
    pub is_stderr: bool,
    pub text: String,
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
