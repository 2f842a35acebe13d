//! The input of a launch, and the reports of the running engine.

use crate::memory::{OutOfMemory, serial};
use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::cuda_program::CudaProgram;
use super::scrape::EngineLoad;
use crate::connection::Endpoint;
use crate::failures::Failure;
use crate::health::Watch;
use crate::ray_serve::ServeProgram;
pub use catalog::DeviceKind;
use catalog::{GangMember, RemoteRecipe, ServerRecipe};
use guardian::Masking;
use pool::{Bytes, DeviceId, ReplicaId};

/// The complete input of one launch; the driver makes no choices.
#[derive(Clone, Debug)]
pub struct Launch {
    pub replica: ReplicaId,
    /// The catalogue's name, such as `org/model`.
    pub model_name: String,
    pub program: Program,
    /// The devices of the placement, in the order in which the engine numbers them.
    pub devices: Vec<DeviceAddress>,
    /// The bytes reserved on each device.
    pub bytes_per_device: Bytes,
    /// Folder of the sockets. Created with mode 0700; refused if other users can enter it.
    pub runtime_dir: PathBuf,
    /// Folder of the log file.
    pub log_dir: PathBuf,
    /// Rules for watching the engine once it is ready.
    pub watch: Watch,
    /// Set for a process of a replica that spans several nodes.
    pub member: Option<GangMember>,
}

impl Launch {
    /// Returns true for a process that takes no requests: the leader of its replica is on another node.
    pub fn follows(&self) -> bool {
        self.member.as_ref().is_some_and(GangMember::follows)
    }
}

/// One device of a placement, as an engine addresses it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceAddress {
    #[serde(with = "serial::device")]
    pub id: DeviceId,
    /// The index in the order that the driver and the engine share: of the PCI bus for CUDA and Level Zero, of KFD for HIP.
    pub index: u32,
    /// `GPU-…` or `MIG-…`, if the inventory has it.
    pub uuid: Option<String>,
    pub kind: DeviceKind,
    /// The variable that gives a device of kind [`DeviceKind::Other`] to the engine, by its index.
    pub variable: Option<String>,
    /// The total memory of the device, including what other processes use.
    #[serde(with = "serial::bytes")]
    pub total: Bytes,
}

/// The program that runs a replica. Serialized, with the secrets of its environment, for another process of the same version.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Program {
    /// The embedded engine: our own executable or its build with CUDA, in a separate process.
    Candle(CandleProgram),
    /// Any program that speaks OpenAI HTTP.
    Command(CommandProgram),
    /// An engine of the catalogue's table.
    Server(ServerProgram),
    /// A remote endpoint; no process is started. Never leaves this process.
    #[serde(skip)]
    Remote(RemoteRecipe),
    /// An application of Ray Serve; Ray starts its processes. Never leaves this process.
    #[serde(skip)]
    RayServe(ServeProgram),
}

impl Program {
    /// The kind of address that the engine listens on.
    pub fn listen(&self) -> Listen {
        match self {
            Program::Candle(_) => Listen::Socket,
            Program::Command(program) => program.listen,
            Program::Remote(_) | Program::RayServe(_) => Listen::Port,
            Program::Server(program) => program.recipe.listen.into(),
        }
    }

    /// Masks all secrets that the engine receives.
    pub fn masking(&self) -> Masking {
        match self {
            Program::Candle(program) => Masking::new(&program.env, &[]),
            Program::Command(program) => Masking::new(&program.env, &program.argv),
            Program::Server(program) => {
                let env = program.recipe.env.iter();
                let env = env.map(|(name, value)| (name.clone(), value.0.clone()));
                Masking::new(&env.collect(), &[])
            }
            // Its output consists of the pool's own messages, without secrets.
            Program::Remote(_) => Masking::default(),
            // Ray may repeat the variables in its messages.
            Program::RayServe(program) => {
                let env = program.recipe.env.iter();
                let env = env.map(|(name, value)| (name.clone(), value.0.clone()));
                Masking::new(&env.collect(), &[])
            }
        }
    }

    /// The engine's metrics with its load.
    pub fn metrics(&self) -> Option<catalog::Metrics> {
        match self {
            Program::Candle(_) => Some(catalog::CANDLE_METRICS),
            Program::Server(program) => program.recipe.engine.metrics,
            Program::Command(_) | Program::Remote(_) | Program::RayServe(_) => None,
        }
    }
}

/// An engine of the catalogue's table. The recipe builds its command line.
#[derive(Clone, Serialize, Deserialize)]
pub struct ServerProgram {
    pub recipe: Box<ServerRecipe>,
    /// The weights' share of each device, if their files could be read.
    #[serde(with = "serial::bytes_or_none")]
    pub weights_per_device: Option<Bytes>,
}

/// Prefix and values may be secrets.
impl fmt::Debug for ServerProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerProgram")
            .field("engine", &self.recipe.engine)
            .field("model", &self.recipe.model)
            .field("listen", &self.recipe.listen)
            .field("weights_per_device", &self.weights_per_device)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Serialize, Deserialize)]
pub struct CandleProgram {
    /// Our own executable.
    pub executable: PathBuf,
    /// The program for engines on NVIDIA GPUs. Not serialized, since each machine has its own.
    #[serde(skip)]
    pub cuda: CudaProgram,
    /// The model's folder, or its GGUF file.
    pub model_dir: PathBuf,
    /// Maximum number of tokens of prompt and output together.
    pub context_tokens: usize,
    /// Maximum number of concurrent sequences.
    pub concurrency: usize,
    /// CPU threads; `None` leaves it to the engine.
    pub threads: Option<usize>,
    /// Requests tokenized concurrently; `None` leaves it to the engine.
    pub tokenizer_workers: Option<usize>,
    pub budgets: catalog::TokenBudgets,
    /// Missing from older controllers.
    #[serde(default)]
    pub speculation: catalog::Speculation,
    pub quantization: Option<catalog::Quantization>,
    /// Missing from programs of an earlier version.
    #[serde(default)]
    pub numbers: catalog::NumberTypes,
    pub verify: bool,
    pub task: Option<catalog::Task>,
    /// LoRA adapters loaded at the start, with their folders.
    pub adapters: Vec<(String, PathBuf)>,
    /// Room for adapters loaded while it runs.
    pub adapter_room: catalog::AdapterRoom,
    /// Computes layers that do not fit on its GPUs on the CPU.
    pub overflows: bool,
    pub device: CandleDevice,
    /// Variables in addition to those every engine gets.
    pub env: BTreeMap<String, String>,
}

impl CandleProgram {
    /// A program that computes a single sequence of 64 tokens at a time, with all other options at their defaults.
    pub fn new(executable: PathBuf, model_dir: PathBuf, device: CandleDevice) -> Self {
        Self {
            executable,
            cuda: CudaProgram::default(),
            model_dir,
            context_tokens: 64,
            concurrency: 1,
            threads: None,
            tokenizer_workers: None,
            budgets: catalog::TokenBudgets::default(),
            speculation: catalog::Speculation::default(),
            quantization: None,
            numbers: catalog::NumberTypes::default(),
            verify: false,
            task: None,
            adapters: Vec::new(),
            adapter_room: catalog::AdapterRoom::default(),
            overflows: false,
            device,
            env: BTreeMap::new(),
        }
    }
}

/// Values of the environment may be secrets.
impl fmt::Debug for CandleProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CandleProgram")
            .field("model_dir", &self.model_dir)
            .field("context_tokens", &self.context_tokens)
            .field("concurrency", &self.concurrency)
            .field("threads", &self.threads)
            .field("tokenizer_workers", &self.tokenizer_workers)
            .field("budgets", &self.budgets)
            .field("speculation", &self.speculation)
            .field("quantization", &self.quantization)
            .field("numbers", &self.numbers)
            .field("verify", &self.verify)
            .field("task", &self.task)
            .field("overflows", &self.overflows)
            .field("device", &self.device)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CandleDevice {
    Cpu,
    Cuda,
    Metal,
}

/// A command line with templates. `argv` and the values of `env` may use `{{ port }}`, `{{ socket }}`, `{{
/// model_path }}`, `{{ model_name }}`, `{{ devices }}` (indices joined by commas), `{{ device_count }}`, `{{
/// memory_bytes }}`, `{{ context }}`, `{{ node_rank }}`, `{{ nodes }}`, `{{ leader_address }}` and `{{ leader_port }}`; a name without a value in this launch is an error, never an empty
/// string.
#[derive(Clone, Serialize, Deserialize)]
pub struct CommandProgram {
    pub argv: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub listen: Listen,
    /// The route whose 2xx response means ready, such as `/health`.
    pub ready_path: String,
    pub model_path: Option<PathBuf>,
    /// The model's name in the engine, if it differs from the catalogue's.
    pub served_model_name: Option<String>,
    pub working_dir: Option<PathBuf>,
    /// The context in tokens, for `{{ context }}`.
    pub context: Option<usize>,
}

/// Arguments and values may be secrets, so `Debug` shows only the program and the names.
impl fmt::Debug for CommandProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandProgram")
            .field("program", &self.argv.first())
            .field("arguments", &self.argv.len().saturating_sub(1))
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("listen", &self.listen)
            .field("ready_path", &self.ready_path)
            .field("model_path", &self.model_path)
            .field("served_model_name", &self.served_model_name)
            .field("working_dir", &self.working_dir)
            .field("context", &self.context)
            .finish()
    }
}

/// The kind of address a command listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Listen {
    /// A free loopback port, chosen just before the start: `{{ port }}`.
    Port,
    /// A Unix socket in the runtime directory: `{{ socket }}`.
    Socket,
    /// Listens on this loopback address. Without a port, a free one is chosen: `{{ port }}`.
    At {
        address: Ipv4Addr,
        port: Option<u16>,
    },
}

impl From<catalog::Listen> for Listen {
    fn from(listen: catalog::Listen) -> Listen {
        match listen {
            catalog::Listen::Port => Listen::Port,
            catalog::Listen::Socket => Listen::Socket,
            catalog::Listen::At(catalog::LoopbackAddress { address, port }) => {
                Listen::At { address, port }
            }
        }
    }
}

/// Events of one engine. At most one `Ready`; exactly one `Exited`, always last.
#[derive(Clone, Debug)]
pub enum Report {
    /// The process runs and has not responded yet.
    Started { pid: u32, endpoint: Endpoint },
    /// The endpoint is remote and has no process. It has not responded yet.
    Reached { endpoint: Endpoint },
    /// The engine runs in a container; `pid` is the container's main process on the host.
    Contained { pid: u32 },
    /// Progress of the load, sent when the stage or the percentage changes.
    Progress { stage: String, percent: Option<u8> },
    /// The health route responded with 2xx.
    Ready { took: Duration },
    /// The host memory of the process tree, sent once it is ready and after each change of more than 1 MiB. `peak` is the highest
    /// value seen.
    Memory { now: Bytes, peak: Bytes },
    /// The engine's own load figures, sent when they change.
    Load(EngineLoad),
    /// The ready engine was judged dead and killed, and does not exit: no request should wait for it. Most dead engines exit
    /// immediately and send only `Exited`.
    Dead { reason: String },
    /// The ready engine ended on its own. Its remains are being removed, which takes some seconds for a container.
    Ended { message: String },
    /// The process and its process group are gone and reaped.
    Exited(ExitReport),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitReport {
    /// A stop had been ordered before it ended.
    pub requested: bool,
    /// For example `exit status 1`, `signal 9`, or `not started`.
    pub status: String,
    /// The engine's last lines (at most 5 lines and 2 KiB), or the reason it could not be started.
    pub last_output: String,
    /// Set if it ran out of memory.
    pub oom: Option<OutOfMemory>,
    /// The kind of failure. Meaningless if the stop was ordered after the engine was ready.
    pub failure: Failure,
}
