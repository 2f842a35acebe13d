//! What is known of an engine, as plain data: its names, flags, routes, sleep modes and failures.

use std::fmt;
use std::path::Path;

use model_files::{FileError, damage};
use pool::Bytes;
use serde_json::Value;

use super::flags::{FlagReason, Flags, OptionFate};
use super::launch::ServerRecipe;
use super::lines::{self, Failure, Stage};
use super::lora::Lora;
use super::parsers::ParserNames;
use super::place::{Place, Where};
use super::reasoning::ReasoningSwitch;
use super::routes::{Extra, TokenApi};
use crate::engine_kind::EngineKind;
use crate::model_file::Sleep;

/// One engine: what it is called, what it takes, how it is asked, what it says.
pub struct Engine {
    /// `engine_config.type`, the usual name first.
    pub names: &'static [&'static str],
    /// The word in answers and metrics.
    pub word: &'static str,
    /// Its program and the words that always follow, unless `engine_config.program` is another.
    pub program: &'static [&'static str],
    /// What to do when there is no such program.
    pub install: &'static str,
    /// The package of Python that it is, if the pool compares its version.
    pub package: Option<PythonPackage>,
    /// How its memory is estimated.
    pub kind: EngineKind,
    pub flags: Flags,
    /// Whether it listens on a Unix socket too.
    pub sockets: bool,
    pub needs_gpu: bool,
    /// The most devices that one replica spreads over.
    pub devices_max: u32,
    /// Requests that one replica takes at once, unless its file says otherwise.
    pub seats: u32,
    /// The key that bounds the sequences computed together.
    pub sequences_key: Option<&'static str>,
    /// The key that says which part of a device it fills. In `engine_kwargs` it is what a replica
    /// asks of each device; on the command line it is made from what was reserved.
    pub share_key: Option<&'static str>,
    /// Whether it fills whatever it is given, so that a measurement says nothing of what it needs.
    pub fills: bool,
    /// When its command line depends on the size of the weights.
    pub needs_weight_size: NeedsWeightSize,
    /// Whether it reads one GGUF file, not a folder.
    pub reads_gguf: bool,
    /// What follows the program: the flags that come from the placement and the recipe.
    pub arguments: fn(&ArgumentContext<'_>) -> Result<Vec<String>, String>,
    pub environment: fn(&ArgumentContext<'_>) -> Vec<(&'static str, String)>,
    /// Answers 2xx once requests are taken.
    pub ready_path: &'static str,
    /// Costs nothing; for heartbeats.
    pub health_path: &'static str,
    /// Computes a token: for engines whose health says nothing of it.
    pub generation_path: Option<&'static str>,
    /// Variables of its environment that the pool sets, or that are refused for another reason.
    pub barred_env: &'static [FlagReason],
    /// Its numbers in Prometheus' text form, if it has them.
    pub metrics: Option<Metrics>,
    /// Whether it ends the work of a request without `stream` when its client leaves.
    pub ends_with_client: bool,
    /// How it sleeps, a row for each depth that it knows.
    pub parking: &'static [Parking],
    /// What a line of its output tells of the load.
    pub stage: fn(&str) -> Option<Stage>,
    /// How it is given LoRA adapters, if the pool gives it any.
    pub lora: Option<Lora>,
    /// Fields of OpenAI's requests that it takes and does nothing with, by its own documentation; those
    /// that concern OpenAI's own service are known beside.
    pub ignores: &'static [&'static str],
    /// Fields of its generating routes beside OpenAI's, by its own documentation.
    pub extensions: &'static [&'static str],
    /// The same of its embeddings, ranks and scores.
    pub pooling_extensions: &'static [&'static str],
    /// Whether it can tell the usage with every chunk of a stream (`continuous_usage_stats`).
    pub continuous_usage: bool,
    /// Its parsers for tool calls and reasoning, if it has options for them.
    pub parsers: Option<ParserNames>,
    /// Its field for whether and how much a model reasons.
    pub reasoning: ReasoningSwitch,
    /// The words of its `/rerank`.
    pub rerank: RerankApi,
    /// What it has beside chats and completed texts.
    pub routes: &'static [Extra],
    /// The words of its `/tokenize` and `/detokenize`.
    pub tokens: TokenApi,
    /// Whether its embeddings have as many dimensions as a request wants.
    pub dimensions: bool,
    /// Words of the errors that it still answers with when it is about to end.
    pub last_errors: &'static [&'static str],
    /// Failures that only it has; those that all share are known beside.
    pub failures: &'static [Failure],
}

/// An engine as a package of Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonPackage {
    /// As its project writes it.
    pub title: &'static str,
    /// The beginnings of its `*.dist-info` folders: the name under which the engine looks for its own version, then those of
    /// its builds.
    pub names: &'static [&'static str],
    /// The version whose flags the pool knows: its first two numbers.
    pub flags_of: (u32, u32),
}

/// How an engine wants to be asked for ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RerankApi {
    /// `/v1/rerank` with `query` and `documents`, as vLLM, llama.cpp and Jina have it.
    Common,
    /// `/rerank` with `query` and `texts`, as Text Embeddings Inference has it.
    Tei,
}

/// When a command line depends on something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedsWeightSize {
    Never,
    InHostMemory,
    Always,
}

/// Where an engine tells its numbers, and under which names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metrics {
    pub path: &'static str,
    /// Requests that it computes.
    pub running: &'static str,
    /// Requests that wait inside it.
    pub waiting: &'static str,
    /// The part of its cache that is in use, 0 to 1; other names where versions differ.
    pub cache_used: &'static [&'static str],
    /// Tokens generated so far, a counter that moves with each of them; none where it moves at the end of an answer.
    pub generated: Option<&'static str>,
}

/// A request to the engine's own API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    pub method: &'static str,
    /// With its query.
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

/// How an engine is put to sleep and woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parking {
    pub depth: Sleep,
    /// Drained first; done when it has been answered 2xx.
    pub sleep: Call,
    /// In this order, each after the one before was answered 2xx.
    pub wake: &'static [Call],
    /// Answers `{"is_sleeping": true}`, where there is such a route.
    pub is_sleeping: Option<&'static str>,
    /// What stays on each device. A starting figure, which measurements replace.
    pub resident_per_device: Bytes,
    /// Whether its weights wait in the host's memory.
    pub weights_on_host: bool,
}

/// What the arguments are made from.
#[derive(Clone, Copy, Debug)]
pub struct ArgumentContext<'a> {
    pub recipe: &'a ServerRecipe,
    pub place: &'a Place<'a>,
}

impl ArgumentContext<'_> {
    pub fn devices(&self) -> usize {
        self.place.devices.len()
    }

    pub fn has_gpus(&self) -> bool {
        self.place.devices.iter().any(|device| device.is_gpu)
    }

    /// The part of each device that keeps within what is reserved there, less `beside`, which the
    /// engine takes above its part. Rounded down, so that it is never more.
    pub fn share(&self, beside: Bytes) -> Result<String, String> {
        let reserved = self.place.reserved;
        let mut least = u64::MAX;
        for device in self.place.devices {
            let (total, index) = (device.total, device.index);
            if total == Bytes::ZERO {
                return Err(format!(
                    "the size of device {index} is not known, so the engine's part of it cannot be computed"
                ));
            }
            if reserved > total {
                return Err(format!(
                    "{reserved} are reserved on device {index}, which has {total}"
                ));
            }
            let inside = reserved.saturating_sub(beside);
            // At most 10,000: `inside` is no more than `total`.
            let part = u128::from(inside.0) * u128::from(SHARE_STEPS) / u128::from(total.0);
            least = least.min(u64::try_from(part).unwrap_or(u64::MAX));
            if least == 0 {
                return Err(format!(
                    "{reserved} are reserved on device {index}, and the engine takes {beside} beside its configured part, so nothing is left for weights and cache; set pool_config.memory_gib to more"
                ));
            }
        }
        if least > SHARE_STEPS {
            return Err("no device is placed".to_owned());
        }
        Ok(format!(
            "{}.{:04}",
            least / SHARE_STEPS,
            least % SHARE_STEPS
        ))
    }
}

impl ArgumentContext<'_> {
    /// What of the reservation is left for a cache beside the weights and the engine itself, for
    /// engines with an option for the cache alone, and the weights.
    pub fn cache_beside_weights(&self) -> Result<(Bytes, Bytes), String> {
        let Some(weights) = self.place.weights else {
            return Err(self.why_weights_are_unknown());
        };
        let reserved = self.place.reserved;
        let devices = u32::try_from(self.devices().max(1)).unwrap_or(u32::MAX);
        let overhead = self.recipe.engine.kind.overhead_per_device(devices);
        match reserved.saturating_sub(weights + overhead) {
            Bytes::ZERO => Err(format!(
                "{reserved} are reserved on each device; weights of {weights} and {overhead} for the engine leave no room for a cache there; set pool_config.memory_gib to more"
            )),
            cache => Ok((cache, weights)),
        }
    }

    fn why_weights_are_unknown(&self) -> String {
        let folder = self.recipe.is_local.then(|| Path::new(&self.recipe.model));
        let damage = folder.map(damage).unwrap_or_default();
        // What cannot be read may be on the machine of a node.
        let mut damage = damage
            .iter()
            .filter(|it| !matches!(it, FileError::Read { .. }));
        match damage.next() {
            Some(error) => format!("the weights are damaged: {error}"),
            None => format!(
                "{} gets an option for the memory of its cache, and the size of the weights is not known; name a local folder with the weights in engine_config.model_path",
                self.recipe.engine.name()
            ),
        }
    }
}

/// Four digits.
const SHARE_STEPS: u64 = 10_000;

impl Engine {
    /// The name in model files.
    pub fn name(&self) -> &'static str {
        self.names[0]
    }

    /// What becomes of an option of an earlier version of it.
    pub fn option(&self, key: &str, value: &Value) -> OptionFate {
        let plain = key.trim_start_matches('-').replace('-', "_");
        match self.share_key == Some(plain.as_str()) {
            true => OptionFate::Taken,
            false => self.flags.fate(key, value),
        }
    }

    /// Whether the size of the weights is needed to start it there.
    pub fn needs_weights(&self, in_host_memory: bool) -> bool {
        match self.needs_weight_size {
            NeedsWeightSize::Never => false,
            NeedsWeightSize::InHostMemory => in_host_memory,
            NeedsWeightSize::Always => true,
        }
    }

    /// How it sleeps so deeply, if it can.
    pub fn parks(&self, depth: Sleep) -> Option<&'static Parking> {
        self.parking.iter().find(|parking| parking.depth == depth)
    }

    /// What its last words tell.
    pub fn failure(&self, text: &str) -> Option<&'static Failure> {
        lines::failure_in(text, self.failures)
    }
}

/// Rows are recognised by their names.
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

/// A flag and its value, as two words.
pub(super) fn pair(text: &mut Vec<String>, flag: &str, value: impl fmt::Display) {
    text.extend([flag.to_owned(), value.to_string()]);
}

/// Ports that go with the engine's own, for what it opens beside: below those that the system gives
/// out, so that two replicas do not meet on one by default.
#[derive(Clone, Copy)]
pub(super) enum Beside {
    Prometheus,
    Torch,
}

pub(super) fn port_beside(at: Where<'_>, which: Beside) -> Option<u16> {
    let base = match which {
        Beside::Prometheus => 20_000,
        Beside::Torch => 25_000,
    };
    match at {
        Where::Port(port) => Some(base + port % 5_000),
        Where::Socket(_) => None,
    }
}
