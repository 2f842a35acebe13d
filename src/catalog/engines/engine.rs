//! The description of an engine as plain data: its names, flags, routes, sleep modes and failures.

use std::fmt;
use std::path::Path;

use model_files::{FileError, damage};
use pool::Bytes;
use serde_json::Value;

use super::flags::{FlagReason, Flags, OptionFate};
use super::launch::ServerRecipe;
use super::launch_context::{EngineAddress, LaunchContext};
use super::lines::{self, Failure, Stage};
use super::lora::Lora;
use super::parsers::ParserNames;
use super::reasoning::ReasoningSwitch;
use super::routes::{ExtraRoute, TokenApi};
use crate::documents::Sleep;
use crate::engines::kind::EngineKind;

/// An engine from the table: its names, flags, routes and messages.
pub struct Engine {
    /// Values of `engine_config.type`, the usual name first.
    pub names: &'static [&'static str],
    /// The name in API responses and metrics.
    pub word: &'static str,
    /// The program and its fixed arguments, unless `engine_config.program` replaces it.
    pub program: &'static [&'static str],
    /// Advice for the case that the program is missing.
    pub install: &'static str,
    /// The engine's Python package, if the pool compares its version.
    pub package: Option<PythonPackage>,
    /// Selects the memory estimate.
    pub kind: EngineKind,
    pub flags: Flags,
    /// The engine can also listen on a Unix socket.
    pub sockets: bool,
    pub needs_gpu: bool,
    /// Maximum number of devices of one replica.
    pub devices_max: u32,
    /// A replica may span several nodes, with one process on each.
    pub spans_nodes: bool,
    /// Simultaneous requests per replica, unless the model's file sets another number.
    pub seats: u32,
    /// The option that limits the sequences computed together.
    pub sequences_key: Option<&'static str>,
    /// The option that sets which share of a device the engine fills. In `engine_kwargs` it is the share that a replica requests of
    /// each device; on the command line it is computed from the reservation.
    pub share_key: Option<&'static str>,
    /// The engine fills all memory it is given, which makes a measurement useless as an estimate.
    pub fills: bool,
    /// The condition under which the command line depends on the size of the weights.
    pub needs_weight_size: NeedsWeightSize,
    /// The engine reads one GGUF file, not a folder.
    pub reads_gguf: bool,
    /// Arguments after the program, computed from the placement and the recipe.
    pub arguments: fn(&ArgumentContext<'_>) -> Result<Vec<String>, String>,
    pub environment: fn(&ArgumentContext<'_>) -> Vec<(&'static str, String)>,
    /// Returns 2xx once the engine accepts requests.
    pub ready_path: &'static str,
    /// A cheap route, for heartbeats.
    pub health_path: &'static str,
    /// A route that computes a token, for engines whose health route does not prove that they generate.
    pub generation_path: Option<&'static str>,
    /// Environment variables that the pool sets, or that are refused for another reason.
    pub barred_env: &'static [FlagReason],
    /// Metrics in the Prometheus text format, if the engine has them.
    pub metrics: Option<Metrics>,
    /// The engine stops computing a non-streaming request when its client disconnects.
    pub ends_with_client: bool,
    /// The supported sleep modes, one per depth.
    pub parking: &'static [Parking],
    /// Reads the load stage from a line of output.
    pub stage: fn(&str) -> Option<Stage>,
    /// Flags and routes for LoRA adapters, if the engine supports them.
    pub lora: Option<Lora>,
    /// Fields of OpenAI's requests that the engine accepts but ignores, according to its documentation. Fields that concern
    /// OpenAI's own service are listed separately.
    pub ignores: &'static [&'static str],
    /// Fields of the generating routes in addition to OpenAI's, according to the engine's documentation.
    pub extensions: &'static [&'static str],
    /// The same for embeddings, rankings and scores.
    pub pooling_extensions: &'static [&'static str],
    /// The engine can report usage with every chunk of a stream (`continuous_usage_stats`).
    pub continuous_usage: bool,
    /// Names of its parsers for tool calls and reasoning, if it has options for them.
    pub parsers: Option<ParserNames>,
    /// The field that controls whether and how much a model reasons.
    pub reasoning: ReasoningSwitch,
    /// The format of its `/rerank` route.
    pub rerank: RerankApi,
    /// Routes in addition to chats and text completions.
    pub routes: &'static [ExtraRoute],
    /// The format of its `/tokenize` and `/detokenize` routes.
    pub tokens: TokenApi,
    /// Embeddings support the `dimensions` field of a request.
    pub dimensions: bool,
    /// Texts in the errors that the engine still sends while it shuts down.
    pub last_errors: &'static [&'static str],
    /// Failures specific to this engine. Failures common to all engines are listed separately.
    pub failures: &'static [Failure],
}

/// An engine as a Python package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonPackage {
    /// The name as its project writes it.
    pub title: &'static str,
    /// Prefixes of its `*.dist-info` folders: the name under which the engine looks up its own version, then the names of its
    /// builds.
    pub names: &'static [&'static str],
    /// The version whose flags the pool knows, as major and minor number.
    pub flags_of: (u32, u32),
}

/// The request format for rankings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RerankApi {
    /// `/v1/rerank` with `query` and `documents`, as vLLM, llama.cpp and Jina have it.
    Common,
    /// `/rerank` with `query` and `texts`, as Text Embeddings Inference has it.
    Tei,
}

/// Condition under which a command line depends on the size of the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedsWeightSize {
    Never,
    InHostMemory,
    Always,
}

/// The route and names of an engine's metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metrics {
    pub path: &'static str,
    /// Requests being computed.
    pub running: &'static str,
    /// Requests waiting inside the engine.
    pub waiting: &'static str,
    /// The used fraction of the cache, 0 to 1; several names where versions differ.
    pub cache_used: &'static [&'static str],
    /// A counter of generated tokens that increases with each token; `None` if it increases only at the end of a response.
    pub generated: Option<&'static str>,
}

/// A request to the engine's own API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub method: &'static str,
    /// The path with its query.
    pub path: &'static str,
    pub body: Option<&'static str>,
}

pub const fn post(path: &'static str) -> Call {
    Call {
        method: "POST",
        path,
        body: None,
    }
}

/// A sleep mode: the calls that put an engine to sleep and wake it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parking {
    pub depth: Sleep,
    /// Sent after draining; a 2xx response completes it.
    pub sleep: Call,
    /// Sent in order, each after a 2xx response to the previous call.
    pub wake: &'static [Call],
    /// A route that returns `{"is_sleeping": true}`, if the engine has one.
    pub is_sleeping: Option<&'static str>,
    /// Memory that stays in use on each device. An initial estimate, replaced by measurements.
    pub resident_per_device: Bytes,
    /// The weights are kept in host memory during sleep.
    pub weights_on_host: bool,
}

/// Input for building the arguments.
#[derive(Clone, Copy, Debug)]
pub struct ArgumentContext<'a> {
    pub recipe: &'a ServerRecipe,
    pub place: &'a LaunchContext<'a>,
}

impl ArgumentContext<'_> {
    pub fn devices(&self) -> usize {
        self.place.devices.len()
    }

    pub fn has_gpus(&self) -> bool {
        self.place.devices.iter().any(|device| device.is_gpu)
    }

    /// The share of each device that stays within the reservation once the engine's additional memory (the parameter) is
    /// subtracted. Rounded down to stay within the reservation.
    pub fn share(&self, beside: Bytes) -> Result<String, String> {
        let reserved = self.place.reserved;
        let mut least = u64::MAX;
        for device in self.place.devices {
            let (total, index) = (device.total, device.index);
            if total == Bytes::ZERO {
                return Err(format!(
                    "the size of device {index} is unknown, so the engine's share of it cannot be computed"
                ));
            }
            if reserved > total {
                return Err(format!(
                    "{reserved} are reserved on device {index}, which has {total}"
                ));
            }
            let inside = reserved.saturating_sub(beside);
            // At most 10,000, because `inside` is at most `total`.
            let part = u128::from(inside.0) * u128::from(SHARE_STEPS) / u128::from(total.0);
            least = least.min(u64::try_from(part).unwrap_or(u64::MAX));
            if least == 0 {
                return Err(format!(
                    "{reserved} are reserved on device {index}, and the engine takes {beside} in addition to its configured share, which leaves nothing for weights and cache; increase pool_config.memory_gib"
                ));
            }
        }
        if least > SHARE_STEPS {
            return Err("the replica has no device".to_owned());
        }
        Ok(format!(
            "{}.{:04}",
            least / SHARE_STEPS,
            least % SHARE_STEPS
        ))
    }
}

impl ArgumentContext<'_> {
    /// Returns the part of the reservation that remains for a cache after the weights and the engine itself, and the size of the
    /// weights. For engines with an option for the cache alone.
    pub fn cache_beside_weights(&self) -> Result<(Bytes, Bytes), String> {
        let Some(weights) = self.place.weights else {
            return Err(self.why_weights_are_unknown());
        };
        let reserved = self.place.reserved;
        let devices = u32::try_from(self.devices().max(1)).unwrap_or(u32::MAX);
        let overhead = self.recipe.engine.kind.overhead_per_device(devices);
        match reserved.saturating_sub(weights + overhead) {
            Bytes::ZERO => Err(format!(
                "{reserved} are reserved on each device; weights of {weights} and {overhead} for the engine leave no room for a cache; increase pool_config.memory_gib"
            )),
            cache => Ok((cache, weights)),
        }
    }

    fn why_weights_are_unknown(&self) -> String {
        let folder = self.recipe.is_local.then(|| Path::new(&self.recipe.model));
        let damage = folder.map(damage).unwrap_or_default();
        // Files that cannot be read may be on a node's machine.
        let mut damage = damage
            .iter()
            .filter(|error| !matches!(error, FileError::Read { .. }));
        match damage.next() {
            Some(error) => format!("the weights are damaged: {error}"),
            None => format!(
                "{} needs an option for the size of its cache, but the size of the weights is not known; set engine_config.model_path to a local folder with the weights",
                self.recipe.engine.name()
            ),
        }
    }
}

/// Four decimal digits.
const SHARE_STEPS: u64 = 10_000;

impl Engine {
    /// The name in model files.
    pub fn name(&self) -> &'static str {
        self.names[0]
    }

    /// Decides on an option from an earlier version of the engine.
    pub fn option(&self, key: &str, value: &Value) -> OptionFate {
        let plain = key.trim_start_matches('-').replace('-', "_");
        if self.share_key == Some(plain.as_str()) {
            OptionFate::Taken
        } else {
            self.flags.fate(key, value)
        }
    }

    /// Returns true if starting the engine requires the size of the weights.
    pub fn needs_weights(&self, in_host_memory: bool) -> bool {
        match self.needs_weight_size {
            NeedsWeightSize::Never => false,
            NeedsWeightSize::InHostMemory => in_host_memory,
            NeedsWeightSize::Always => true,
        }
    }

    /// The engine's sleep mode of this depth, if it has one.
    pub fn parks(&self, depth: Sleep) -> Option<&'static Parking> {
        self.parking.iter().find(|parking| parking.depth == depth)
    }

    /// Recognises a failure in the last lines of output.
    pub fn failure(&self, text: &str) -> Option<&'static Failure> {
        lines::failure_in(text, self.failures)
    }
}

/// Engines are compared by name.
impl PartialEq for Engine {
    fn eq(&self, other: &Engine) -> bool {
        self.names == other.names
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Appends a flag and its value as two arguments.
pub(super) fn pair(text: &mut Vec<String>, flag: &str, value: impl fmt::Display) {
    text.extend([flag.to_owned(), value.to_string()]);
}

/// Ports derived from the engine's own port, for additional listeners. They are below the range that the system assigns, which
/// avoids collisions between replicas by default.
#[derive(Clone, Copy)]
pub(super) enum ExtraPort {
    Prometheus,
    Torch,
}

pub(super) fn port_beside(at: EngineAddress<'_>, which: ExtraPort) -> Option<u16> {
    let base = match which {
        ExtraPort::Prometheus => 20_000,
        ExtraPort::Torch => 25_000,
    };
    match at {
        EngineAddress::Port(port) => Some(base + port % 5_000),
        EngineAddress::Socket(_) => None,
    }
}
