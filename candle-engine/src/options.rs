//! The options of an engine, and the choice of its device.

mod speculation;

pub use speculation::Speculation;

use crate::error::EngineError;
use crate::stored_tensor::Encoding;
use candle_core::{DType, Device};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

mod numbers;
mod validation;

pub use numbers::{CacheType, NumberTypes, ProductType};

/// The options of [`serve`](crate::serve).
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The model's Hugging Face folder, its GGUF file, or a folder with one GGUF file.
    pub model_dir: PathBuf,
    /// The model id that requests use and responses contain.
    pub model_name: String,
    /// The address to listen on.
    pub listen: Listen,
    /// Maximum number of tokens of a request, prompt and completion together; at most the model's `max_position_embeddings`.
    pub context_tokens: usize,
    /// Number of requests that compute simultaneously, at least 1. Further requests wait in order of arrival.
    pub concurrency: usize,
    /// The devices to compute on, at least one. The layers are divided among several devices in this order.
    pub devices: Vec<DeviceChoice>,
    /// Memory limit on each GPU; `None` allows all that is free. Layers are divided among several GPUs within this limit, and the
    /// rest goes to the CPU if it is among the devices.
    pub device_bytes: Option<u64>,
    /// Threads for matrix products on the CPU, for all requests together; `None` leaves it to candle (one per core).
    pub threads: Option<usize>,
    /// Number of requests that are tokenized simultaneously; `None` uses half the number of cores.
    pub tokenizer_workers: Option<usize>,
    /// Token limits, in addition to the context.
    pub budgets: TokenBudgets,
    /// Speculative decoding.
    pub speculation: Speculation,
    /// Quantises matrices in F32, F16 and BF16 while loading; `None` leaves them unchanged.
    pub quantization: Option<Quantization>,
    /// Number types on the CPU.
    pub numbers: NumberTypes,
    /// Checks every weight for finite numbers before the model is ready.
    pub verify: bool,
    /// The task of the model; `None` derives it from the files.
    pub task: Option<Task>,
    /// LoRA adapters to serve in addition to the model.
    pub adapters: AdapterOptions,
    /// Program that tries grammars in a separate process before they are compiled in this one, unless they are certain to be cheap.
    /// With `None`, nothing bounds the memory of a hostile grammar.
    pub grammar_trial: Option<TrialProgram>,
}

/// A program that calls [`try_grammar`](crate::try_grammar).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialProgram {
    pub program: PathBuf,
    pub arguments: Vec<String>,
}

/// LoRA adapters of one engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdapterOptions {
    /// Names and folders of the adapters to load with the model.
    pub at_start: Vec<(String, PathBuf)>,
    /// Number of additional adapters that may be loaded while the engine runs.
    pub at_run_time: usize,
    /// Maximum rank.
    pub rank_max: u32,
}

/// The task a model is served for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Chat and text completions.
    Generate,
    /// A vector per text.
    Embed,
    /// Scores of queries and documents.
    Rerank,
}

/// A quantisation applied while loading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantization {
    /// Blocks of 32 one-byte numbers with a scale: 8.5 bits per number.
    Q8_0,
    /// Blocks of 256 half-byte numbers with nested scales: 4.5 bits per number. Matrices whose rows are not complete blocks become
    /// `Q8_0`.
    Q4K,
}

/// Token limits like the scheduler policies of other servers; `None` is unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenBudgets {
    /// Maximum tokens of a prompt; longer ones are refused. Less than the context.
    pub input: Option<usize>,
    /// Maximum tokens of all prompts computed at the same time; others wait. A longer prompt is computed alone.
    pub prefill: Option<usize>,
    /// Maximum tokens of all running requests, prompts plus maximum completions; others wait. At least the context.
    pub total: Option<usize>,
    /// Condition for waiting requests to join the running ones; `None` lets them join as soon as there is room.
    pub joining: Option<JoiningRule>,
}

/// A prompt delays the running requests while it is computed. Waiting requests therefore join once there are enough to compute
/// several together, or after a number of steps without a new request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JoiningRule {
    /// Number of requests that must wait, in thousandths of the number of running requests.
    pub served_ratio_milli: u32,
    /// Number of steps after which a request joins, however few are waiting.
    pub steps: u32,
}

/// The address of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket. A stale socket file is replaced.
    Unix(PathBuf),
    /// A TCP address; port 0 picks a free port.
    Tcp(SocketAddr),
}

/// A device for weights and KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DeviceChoice {
    /// The host, in F32.
    #[default]
    Cpu,
    /// An NVIDIA GPU by its ordinal, in BF16; needs the feature `cuda`.
    Cuda(usize),
    /// An Apple GPU by its ordinal, in BF16; needs the feature `metal`.
    Metal(usize),
}

/// Maximum number of requests waiting in an engine, in addition to the running ones.
pub(crate) const WAITING_REQUESTS_MAX: usize = 1024;

impl EngineOptions {
    /// Serves one request at a time on the CPU, with a context of 512 tokens; optional features are off, and the rest is automatic.
    pub fn new(
        model_dir: impl Into<PathBuf>,
        model_name: impl Into<String>,
        listen: Listen,
    ) -> Self {
        Self {
            model_dir: model_dir.into(),
            model_name: model_name.into(),
            listen,
            context_tokens: 512,
            concurrency: 1,
            devices: vec![DeviceChoice::Cpu],
            device_bytes: None,
            threads: None,
            tokenizer_workers: None,
            budgets: TokenBudgets::default(),
            speculation: Speculation::default(),
            quantization: None,
            numbers: NumberTypes::default(),
            verify: false,
            task: None,
            adapters: AdapterOptions::default(),
            grammar_trial: None,
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => formatter.write_str("cpu"),
            Self::Cuda(ordinal) => write!(formatter, "cuda:{ordinal}"),
            Self::Metal(ordinal) => write!(formatter, "metal:{ordinal}"),
        }
    }
}

impl Quantization {
    pub(crate) fn encoding(self) -> Encoding {
        match self {
            Self::Q8_0 => Encoding::Q8_0,
            Self::Q4K => Encoding::Q4K,
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Generate => "generate",
            Self::Embed => "embed",
            Self::Rerank => "rerank",
        })
    }
}

impl FromStr for Task {
    type Err = String;

    /// Parses `generate`, `embed` or `rerank`.
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Generate, Self::Embed, Self::Rerank]
            .into_iter()
            .find(|task| task.to_string() == text)
            .ok_or_else(|| format!("`{text}` is not a task; write generate, embed or rerank"))
    }
}

impl FromStr for Quantization {
    type Err = String;

    /// Parses `q8_0` or `q4_k`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "q8_0" => Ok(Self::Q8_0),
            "q4_k" => Ok(Self::Q4K),
            _ => Err(format!(
                "`{text}` is not a quantisation; write q8_0 or q4_k"
            )),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    /// Parses `cpu`, `cuda`, `cuda:1`, `metal` or `metal:0`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, ordinal) = match text.split_once(':') {
            None => (text, Some(0)),
            Some((kind, ordinal)) => (kind, ordinal.parse().ok()),
        };
        match (kind, ordinal) {
            ("cpu", Some(0)) if !text.contains(':') => Ok(Self::Cpu),
            ("cuda", Some(ordinal)) => Ok(Self::Cuda(ordinal)),
            ("metal", Some(ordinal)) => Ok(Self::Metal(ordinal)),
            _ => Err(format!(
                "`{text}` is not a device; write cpu, cuda:N or metal:N"
            )),
        }
    }
}

impl DeviceChoice {
    /// Opens the device. Also returns the type of weights and KV cache on it.
    pub(crate) fn open(self) -> Result<(Device, DType), EngineError> {
        let failed = |error: candle_core::Error| {
            let first_line = error
                .to_string()
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned();
            EngineError::option(
                "device",
                format!(
                    "{self} cannot be opened ({first_line}); check the driver and the ordinal, or use the CPU"
                ),
            )
        };
        match self {
            Self::Cpu => Ok((Device::Cpu, DType::F32)),
            Self::Cuda(_) if !candle_core::utils::cuda_is_available() => Err(EngineError::option(
                "device",
                "this engine was built without CUDA; use model-pool-cuda, the build with `--features cuda` (docs/guides/gpu.md), or the CPU",
            )),
            Self::Cuda(ordinal) => Ok((Device::new_cuda(ordinal).map_err(failed)?, DType::BF16)),
            Self::Metal(_) if !candle_core::utils::metal_is_available() => {
                Err(EngineError::option(
                    "device",
                    "this engine was built without Metal; build it with `--features metal`, or use the CPU",
                ))
            }
            Self::Metal(ordinal) => Ok((Device::new_metal(ordinal).map_err(failed)?, DType::BF16)),
        }
    }
}

#[cfg(test)]
mod tests;
