//! The options of one engine and the choice of its device.

mod speculation;

pub use speculation::Speculation;

use crate::error::EngineError;
use crate::stored::Encoding;
use candle_core::{DType, Device};
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

mod numbers;

pub use numbers::{CacheType, NumberTypes, ProductType};

/// Everything that [`serve`](crate::serve) needs to know.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The Hugging Face folder of the model, its GGUF file, or a folder with one.
    pub model_dir: PathBuf,
    /// The id the engine answers to and echoes.
    pub model_name: String,
    /// Where it listens.
    pub listen: Listen,
    /// Most tokens of prompt and completion together, for one request; at most the model's `max_position_embeddings`.
    pub context_tokens: usize,
    /// Requests that compute at once, at least 1; more wait inside, first come first served.
    pub concurrency: usize,
    /// Where it computes, at least one; with several the layers are divided over them, in this order.
    pub devices: Vec<DeviceChoice>,
    /// What it may take on each GPU; `None` is all that is free there. On several GPUs the layers are divided so that each keeps
    /// within it, and what does not fit goes to the CPU where that is among the devices.
    pub device_bytes: Option<u64>,
    /// Threads for matrix products on the CPU, for all requests together; `None` leaves it to candle (one per core).
    pub threads: Option<usize>,
    /// How many requests are made tokens of at once; `None` is half as many as there are cores.
    pub tokenizer_workers: Option<usize>,
    /// Bounds on tokens, beside the context.
    pub budgets: TokenBudgets,
    /// Tokens that are proposed and verified together.
    pub speculation: Speculation,
    /// Matrices of wide numbers are written anew in this form while they are loaded; `None` leaves them as they are.
    pub quantization: Option<Quantization>,
    /// Types of numbers on the CPU.
    pub numbers: NumberTypes,
    /// Looks at every number of the weights before the model counts as ready.
    pub verify: bool,
    /// What the model is served for; `None` is what its files say.
    pub task: Option<Task>,
    /// Adapters that are served beside the model.
    pub adapters: AdapterOptions,
    /// Tries grammars of requests in a process of its own before they are compiled here, unless they are certain to be cheap;
    /// `None` compiles all of them here, where nothing bounds the memory that a hostile one takes.
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
    /// Loaded with the model: names and folders.
    pub at_start: Vec<(String, PathBuf)>,
    /// How many more may be loaded and unloaded while the engine runs.
    pub at_run_time: usize,
    /// The highest rank.
    pub rank_max: u32,
}

/// What a model is served for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Chats and completed texts.
    Generate,
    /// One vector for each text.
    Embed,
    /// Scores of queries and documents.
    Rerank,
}

/// A form of weights that is made at load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantization {
    /// Blocks of 32 numbers of one byte with a scale: 8.5 bits each.
    Q8_0,
    /// Blocks of 256 numbers of half a byte with scales of parts of them: 4.5 bits each. Matrices whose rows are no whole
    /// blocks of them become `Q8_0`.
    Q4K,
}

/// Bounds on tokens, as the scheduler policies of other servers have them; `None` is without one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenBudgets {
    /// Of one prompt; a longer one is refused. Less than the context.
    pub input: Option<usize>,
    /// Of all prompts that are computed at the same time; others wait. A longer one is computed alone.
    pub prefill: Option<usize>,
    /// Of all requests that run, prompts and the most that they may answer; others wait. At least the context.
    pub total: Option<usize>,
    /// When waiting requests join those that run; `None` is as soon as there is room.
    pub joining: Option<Joining>,
}

/// A prompt that is computed delays those that run. Waiting requests join them once enough wait, so that several are computed
/// at the same time, or after so many steps without a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joining {
    /// How many have to wait, in thousandths of the number of those that run.
    pub served_ratio_milli: u32,
    /// Steps after which one joins, however few wait.
    pub steps: u32,
}

/// The address of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket. A socket file without a listener is replaced.
    Unix(PathBuf),
    /// A TCP address; port 0 takes a free one.
    Tcp(SocketAddr),
}

/// The device that holds weights and KV cache.
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

/// Requests that may wait inside one engine, in addition to those that compute.
pub(crate) const WAITING_REQUESTS_MAX: usize = 1024;

/// More adapters than this are a mistyped option.
const ADAPTERS_MAX: usize = 1024;

/// No machine computes more requests at once than this; larger is a mistyped option.
const CONCURRENCY_MAX: usize = 1024;

/// A smaller context holds no useful prompt and answer.
const CONTEXT_TOKENS_MIN: usize = 16;

impl EngineOptions {
    /// Refuses numbers that cannot work, before anything is loaded.
    pub(crate) fn validate(&self) -> Result<(), EngineError> {
        let adapters = &self.adapters;
        if adapters.at_start.len() + adapters.at_run_time > ADAPTERS_MAX {
            return Err(EngineError::option(
                "max_loras",
                format!("more than {ADAPTERS_MAX} adapters; give fewer"),
            ));
        }
        if !(1..=CONCURRENCY_MAX).contains(&self.concurrency) {
            return Err(EngineError::option(
                "concurrency",
                format!(
                    "{} is not between 1 and {CONCURRENCY_MAX}",
                    self.concurrency
                ),
            ));
        }
        if self.context_tokens < CONTEXT_TOKENS_MIN {
            return Err(EngineError::option(
                "context_tokens",
                format!(
                    "{} is too small; give at least {CONTEXT_TOKENS_MIN}",
                    self.context_tokens
                ),
            ));
        }
        let budgets = &self.budgets;
        if budgets
            .input
            .is_some_and(|input| input == 0 || input >= self.context_tokens)
        {
            return Err(EngineError::option(
                "max_input_tokens",
                format!(
                    "{} is not between 1 and {}, which leaves room for an answer in a context of {}",
                    budgets.input.unwrap_or_default(),
                    self.context_tokens - 1,
                    self.context_tokens
                ),
            ));
        }
        if budgets.prefill == Some(0) {
            return Err(EngineError::option(
                "max_batch_prefill_tokens",
                "0 tokens are no prompt; give at least 1, or leave it out",
            ));
        }
        if budgets
            .total
            .is_some_and(|total| total < self.context_tokens)
        {
            return Err(EngineError::option(
                "max_batch_total_tokens",
                format!(
                    "{} is less than the context of one request, {}",
                    budgets.total.unwrap_or_default(),
                    self.context_tokens
                ),
            ));
        }
        self.speculation.validate()?;
        self.check_devices()?;
        self.check_numbers()?;
        if self.threads == Some(0) {
            return Err(EngineError::option(
                "threads",
                "0 threads cannot compute; leave it out for one per core",
            ));
        }
        if self.tokenizer_workers == Some(0) {
            return Err(EngineError::option(
                "tokenizer_workers",
                "0 workers cannot read requests; leave it out for half the cores",
            ));
        }
        if self.model_name.is_empty() {
            return Err(EngineError::option(
                "model_name",
                "it is empty; give the name that requests will use",
            ));
        }
        Ok(())
    }

    /// One device, or GPUs of one kind each named once, after which the CPU may stand.
    fn check_devices(&self) -> Result<(), EngineError> {
        let wrong = |problem: String| Err(EngineError::option("device", problem));
        let Some((_, before)) = self.devices.split_last() else {
            return wrong("no device is named; give one, such as cpu".to_owned());
        };
        if before.contains(&DeviceChoice::Cpu) {
            return wrong(
                "the CPU stands before another device; name it once, as the last one".to_owned(),
            );
        }
        let kinds = [
            self.devices
                .iter()
                .any(|device| matches!(device, DeviceChoice::Cuda(_))),
            self.devices
                .iter()
                .any(|device| matches!(device, DeviceChoice::Metal(_))),
        ];
        if kinds == [true, true] {
            return wrong(
                "CUDA and Metal devices are not mixed; name devices of one kind".to_owned(),
            );
        }
        let mut each = self.devices.iter().enumerate();
        match each.find(|(index, device)| self.devices[..*index].contains(device)) {
            Some((_, twice)) => wrong(format!("{twice} is named twice; name each device once")),
            None => Ok(()),
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

    /// `generate`, `embed`, `rerank`.
    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Generate, Self::Embed, Self::Rerank]
            .into_iter()
            .find(|task| task.to_string() == text)
            .ok_or_else(|| {
                format!("`{text}` is nothing that a model is served for; write generate, embed or rerank")
            })
    }
}

impl FromStr for Quantization {
    type Err = String;

    /// `q8_0`, `q4_k`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "q8_0" => Ok(Self::Q8_0),
            "q4_k" => Ok(Self::Q4K),
            _ => Err(format!(
                "`{text}` is no form that weights are written in at load; write q8_0 or q4_k"
            )),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = String;

    /// `cpu`, `cuda`, `cuda:1`, `metal`, `metal:0`.
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
                "`{text}` is no device; write cpu, cuda:N or metal:N"
            )),
        }
    }
}

impl DeviceChoice {
    /// Opens the device; the type is the one that weights and KV cache have on it.
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
                "this engine was built without CUDA; use model-pool-cuda, the build with `--features cuda` (docs/gpu.md), or the CPU",
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
