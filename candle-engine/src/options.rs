//! Owns the options of one engine and the choice of its device. Never reads the command line or the environment.

use crate::error::EngineError;
use crate::stored::Encoding;
use candle_core::{DType, Device};
use std::net::SocketAddr;
use std::path::PathBuf;

/// Everything that [`serve`](crate::serve) needs to know.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The Hugging Face folder of the model, a GGUF file, or a folder with one.
    pub model_dir: PathBuf,
    /// The id the engine answers to and echoes.
    pub model_name: String,
    /// Where it listens.
    pub listen: Listen,
    /// Most tokens of prompt and completion together, for one request; at most the model's `max_position_embeddings`.
    pub context_tokens: usize,
    /// Requests that compute at once, at least 1; more wait inside, first come first served.
    pub concurrency: usize,
    /// Where it computes.
    pub device: DeviceChoice,
    /// Threads for matrix products on the CPU, for all requests together; `None` leaves it to candle (one per core).
    pub threads: Option<usize>,
    /// Bounds on tokens, beside the context.
    pub budgets: TokenBudgets,
    /// What matrices are written anew as when the model loads, where its files have them in F32, F16 or BF16.
    pub quantization: Option<Quantization>,
    /// Whether every number of the weights is looked at when the model loads, and one that is none is an error.
    pub verify: bool,
}

/// An encoding of matrices in blocks of the GGML family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantization {
    /// 8.5 bits a number; answers are hardly to be told from those of the original.
    Q8_0,
    /// 6.6 bits a number. This one and those below need rows of a multiple of 256 numbers; others become `Q8_0`.
    Q6K,
    /// 5.5 bits a number.
    Q5K,
    /// 4.5 bits a number.
    Q4K,
}

impl Quantization {
    /// All of them by their names in options.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("q8_0", Self::Q8_0),
        ("q6_k", Self::Q6K),
        ("q5_k", Self::Q5K),
        ("q4_k", Self::Q4K),
    ];

    /// The one of a name, in letters of any case.
    pub fn named(name: &str) -> Option<Self> {
        let mut known = Self::NAMES.into_iter();
        known
            .find(|(known, _)| name.eq_ignore_ascii_case(known))
            .map(|(_, quantization)| quantization)
    }

    pub(crate) fn encoding(self) -> Encoding {
        match self {
            Self::Q8_0 => Encoding::Q8_0,
            Self::Q6K => Encoding::Q6K,
            Self::Q5K => Encoding::Q5K,
            Self::Q4K => Encoding::Q4K,
        }
    }
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
}

/// The address of the engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listen {
    /// A Unix socket. A socket file that nobody listens on any more is replaced.
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

/// Requests that may wait inside one engine, besides those that compute.
pub(crate) const WAITING_REQUESTS_MAX: usize = 1024;

/// No machine computes more requests at once than this; larger is a mistyped option.
const CONCURRENCY_MAX: usize = 1024;

/// A smaller context holds no useful prompt and answer.
const CONTEXT_TOKENS_MIN: usize = 16;

impl EngineOptions {
    /// Refuses numbers that cannot work, before anything is loaded.
    pub(crate) fn validate(&self) -> Result<(), EngineError> {
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
        if self.threads == Some(0) {
            return Err(EngineError::option(
                "threads",
                "0 threads cannot compute; leave it out for one per core",
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
                    "{self:?} cannot be opened ({first_line}); check the driver and the ordinal, or use the CPU"
                ),
            )
        };
        match self {
            Self::Cpu => Ok((Device::Cpu, DType::F32)),
            Self::Cuda(_) if !candle_core::utils::cuda_is_available() => Err(EngineError::option(
                "device",
                "this engine was built without CUDA; build it with `--features cuda`, or use the CPU",
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
mod tests {
    use super::*;

    fn options() -> EngineOptions {
        EngineOptions {
            model_dir: PathBuf::from("somewhere"),
            model_name: "name".to_owned(),
            listen: Listen::Unix(PathBuf::from("socket")),
            context_tokens: 128,
            concurrency: 1,
            device: DeviceChoice::Cpu,
            threads: None,
            budgets: TokenBudgets::default(),
            quantization: None,
            verify: false,
        }
    }

    #[test]
    fn numbers_that_cannot_work_are_refused_by_their_option() {
        assert!(options().validate().is_ok());
        for (wrong, name) in [
            (
                EngineOptions {
                    concurrency: 0,
                    ..options()
                },
                "concurrency",
            ),
            (
                EngineOptions {
                    context_tokens: 0,
                    ..options()
                },
                "context_tokens",
            ),
            (
                EngineOptions {
                    threads: Some(0),
                    ..options()
                },
                "threads",
            ),
            (
                EngineOptions {
                    model_name: String::new(),
                    ..options()
                },
                "model_name",
            ),
        ] {
            let message = wrong.validate().expect_err("must be refused").to_string();
            assert!(message.starts_with(name), "{message}");
        }
    }

    #[cfg(not(feature = "cuda"))]
    #[test]
    fn a_gpu_without_its_feature_is_a_clear_error() {
        let message = DeviceChoice::Cuda(0)
            .open()
            .expect_err("there is no CUDA in this build")
            .to_string();
        assert!(message.contains("--features cuda"), "{message}");
    }
}
