//! Settings for starting the embedded engine, and its sleep modes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::documents::{ComputeDevice, NumberTypes, Quantization, Secret, Sleep, Task};
use crate::engines::{CANDLE_CPU_OVERHEAD, ExtraRoute, GPU_OVERHEAD, Parking, post};
use crate::recipes::candle_models::ModelTask;
use crate::weights::AdapterRoom;

/// Token limits in the embedded engine; `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TokenBudgets {
    /// For one prompt.
    pub input: Option<u32>,
    /// For all prompts computed at the same time.
    pub prefill: Option<u32>,
    /// For all running requests, including their maximum response lengths.
    pub total: Option<u32>,
    /// Conditions for adding waiting requests to the running batch; `None`: as soon as there is room.
    pub joining: Option<JoiningRule>,
}

/// Adds waiting requests once enough are waiting, or after a number of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct JoiningRule {
    /// Waiting requests required, in thousandths of the number of running ones.
    pub served_ratio_milli: u32,
    /// Steps after which a request is added in any case.
    pub steps: u32,
}

/// Tokens proposed by lookup in a request's own text; `None` uses the engine's defaults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Speculation {
    /// Proposed tokens per request and step; 0 disables speculation.
    pub tokens: Option<u32>,
    /// Maximum and minimum number of most recent tokens to look up.
    pub lookup_max: Option<u32>,
    pub lookup_min: Option<u32>,
}

/// Settings of the embedded engine.
#[derive(Clone, Debug, PartialEq)]
pub struct CandleRecipe {
    /// Absolute path of the folder with `config.json`, the tokenizer and the weights, or of a GGUF file.
    pub model_path: PathBuf,
    /// The model's task; `None` if unknown, before its files are fetched.
    pub serves: Option<ModelTask>,
    /// The configured task, which overrides the model's files.
    pub task: Option<Task>,
    /// Context of one sequence in tokens; `None` uses the model's own.
    pub context: Option<u32>,
    /// Sequences computed together.
    pub concurrency: u32,
    /// Processor threads; `None` lets the engine choose.
    pub threads: Option<u32>,
    /// Requests tokenized simultaneously; `None` lets the engine choose.
    pub tokenizer_workers: Option<u32>,
    pub budgets: TokenBudgets,
    pub speculation: Speculation,
    /// The form that wide weights are converted to at load.
    pub quantization: Option<Quantization>,
    pub numbers: NumberTypes,
    /// Checks every number of the weights before the model becomes ready.
    pub verify: bool,
    /// Computes layers that do not fit on the GPUs on the CPU.
    pub overflows: bool,
    pub device: ComputeDevice,
    pub sleep: Sleep,
    /// LoRA adapters to load at start, with their folders.
    pub adapters: Vec<(String, PathBuf)>,
    /// Room for adapters loaded at run time.
    pub adapter_room: AdapterRoom,
    pub env: BTreeMap<String, Secret>,
}

impl CandleRecipe {
    /// Returns true if the model supports this route. A model that has not been fetched is assumed to support every route of the
    /// engine.
    pub(super) fn has(&self, extra: ExtraRoute) -> bool {
        match (extra, self.serves) {
            (ExtraRoute::Tokenize | ExtraRoute::Detokenize, serves) => {
                serves != Some(ModelTask::Speech)
            }
            (ExtraRoute::Transcriptions | ExtraRoute::Translations, serves) => {
                matches!(serves, None | Some(ModelTask::Speech))
            }
            (ExtraRoute::Embeddings, serves) => {
                matches!(serves, None | Some(ModelTask::Embeddings))
            }
            (ExtraRoute::Rerank | ExtraRoute::Score, serves) => {
                matches!(serves, None | Some(ModelTask::Ranks))
            }
            (
                ExtraRoute::Speech
                | ExtraRoute::Voices
                | ExtraRoute::Images
                | ExtraRoute::ImageEdits
                | ExtraRoute::ImageVariations
                | ExtraRoute::Infill
                | ExtraRoute::Completion,
                _,
            ) => false,
        }
    }

    /// The configured sleep mode. On a GPU, embedding, ranking and speech models have none: most are encoders, whose weights would
    /// stay on the GPU.
    pub(super) fn parking(&self) -> Option<&'static Parking> {
        match (self.sleep, self.device, self.serves) {
            (Sleep::Off | Sleep::Discard, _, _) => None,
            (Sleep::Weights, ComputeDevice::Cpu, _) => Some(&CANDLE_ON_THE_CPU),
            (
                Sleep::Weights,
                _,
                Some(ModelTask::Embeddings | ModelTask::Ranks | ModelTask::Speech),
            ) => None,
            (Sleep::Weights, _, Some(ModelTask::Texts) | None) => Some(&CANDLE_ON_A_GPU),
        }
    }
}

/// Keeps the weights mapped, which lets the system reclaim their pages, and drops caches.
const CANDLE_ON_THE_CPU: Parking = Parking {
    depth: Sleep::Weights,
    sleep: post("/sleep"),
    wake: &[post("/wake_up")],
    is_sleeping: Some("/is_sleeping"),
    resident_per_device: CANDLE_CPU_OVERHEAD,
    weights_on_host: false,
};

/// The weights stay at their source in host memory: in pages of mapped files, or in the form quantised at load.
const CANDLE_ON_A_GPU: Parking = Parking {
    resident_per_device: GPU_OVERHEAD,
    weights_on_host: true,
    ..CANDLE_ON_THE_CPU
};
