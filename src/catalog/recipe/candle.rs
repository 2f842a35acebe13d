//! How the embedded engine is started, and how it sleeps.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::adapter_names::AdapterRoom;
use crate::candle_models::Serves;
use crate::engine_kind::{CANDLE_CPU_OVERHEAD, GPU_OVERHEAD};
use crate::engines::{Extra, Parking, post};
use crate::model_file::{ComputeDevice, NumberTypes, Quantization, Secret, Sleep, Task};

/// Bounds on tokens in the embedded engine; `None` is without one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TokenBudgets {
    /// Of one prompt.
    pub input: Option<u32>,
    /// Of all prompts that are computed at the same time.
    pub prefill: Option<u32>,
    /// Of all requests that run, with the most that they may answer.
    pub total: Option<u32>,
    /// When waiting requests join those that run; `None`: as soon as there is room.
    pub joining: Option<Joining>,
}

/// Waiting requests join once so many of them wait, or after so many steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Joining {
    /// Thousandths of the number of those that run.
    pub served_ratio_milli: u32,
    /// Steps without a new request after which one joins in any case.
    pub steps: u32,
}

/// Tokens that the embedded engine proposes by looking up a request's own text; `None` is the engine's own choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Speculation {
    /// Of one request in a step; 0 is no speculation.
    pub tokens: Option<u32>,
    /// How many last tokens are looked up, at most and at least.
    pub lookup_max: Option<u32>,
    pub lookup_min: Option<u32>,
}

/// The embedded engine.
#[derive(Clone, Debug, PartialEq)]
pub struct CandleRecipe {
    /// The folder with `config.json`, the tokenizer and the weights, or a GGUF file; absolute.
    pub model_path: PathBuf,
    /// What the model is for; `None` while its files are not here and nothing else says it.
    pub serves: Option<Serves>,
    /// What it is served for: by its own file, or else by the model's files.
    pub task: Option<Task>,
    /// Tokens of one sequence; `None`: what the model's own files say.
    pub context: Option<u32>,
    /// Sequences that are computed together.
    pub concurrency: u32,
    /// Processor threads; `None`: the engine's own choice.
    pub threads: Option<u32>,
    /// Requests that are made tokens of at once; `None`: the engine's own choice.
    pub tokenizer_workers: Option<u32>,
    pub budgets: TokenBudgets,
    pub speculation: Speculation,
    /// Wide weights are written anew in this form while they are loaded.
    pub quantization: Option<Quantization>,
    pub numbers: NumberTypes,
    /// Every number of the weights is looked at before the model counts as ready.
    pub verify: bool,
    /// Layers that do not fit on its GPUs are computed on the CPU.
    pub overflows: bool,
    pub device: ComputeDevice,
    pub sleep: Sleep,
    /// LoRA adapters that are loaded with it, with their folders.
    pub adapters: Vec<(String, PathBuf)>,
    /// For those that come while it runs.
    pub adapter_room: AdapterRoom,
    pub env: BTreeMap<String, Secret>,
}

impl CandleRecipe {
    /// Whether its model answers on this route; of a model that is not here yet all are supposed.
    pub(super) fn has(&self, extra: Extra) -> bool {
        match (extra, self.serves) {
            (Extra::Tokenize | Extra::Detokenize, _) => true,
            (Extra::Embeddings, serves) => {
                matches!(serves, None | Some(Serves::Embeddings))
            }
            (Extra::Rerank | Extra::Score, serves) => matches!(serves, None | Some(Serves::Ranks)),
            (
                Extra::Transcriptions
                | Extra::Translations
                | Extra::Speech
                | Extra::Voices
                | Extra::Images
                | Extra::ImageEdits
                | Extra::ImageVariations
                | Extra::Infill
                | Extra::Completion,
                _,
            ) => false,
        }
    }

    /// How it sleeps, if it is to. Of what embeds and ranks most are encoders, whose weights would stay on a GPU.
    pub(super) fn parking(&self) -> Option<&'static Parking> {
        match (self.sleep, self.device, self.serves) {
            (Sleep::Off | Sleep::Discard, _, _) => None,
            (Sleep::Weights, ComputeDevice::Cpu, _) => Some(&CANDLE_ON_THE_CPU),
            (Sleep::Weights, _, Some(Serves::Embeddings | Serves::Ranks)) => None,
            (Sleep::Weights, _, Some(Serves::Texts) | None) => Some(&CANDLE_ON_A_GPU),
        }
    }
}

/// It keeps its mapping of the weights, whose pages are the system's then, and drops caches.
const CANDLE_ON_THE_CPU: Parking = Parking {
    depth: Sleep::Weights,
    sleep: post("/sleep"),
    wake: &[post("/wake_up")],
    is_sleeping: Some("/is_sleeping"),
    resident_per_device: CANDLE_CPU_OVERHEAD,
    weights_on_host: false,
};

/// Its weights wait where they came from: in pages of mapped files, or in what was quantised at load.
const CANDLE_ON_A_GPU: Parking = Parking {
    resident_per_device: GPU_OVERHEAD,
    weights_on_host: true,
    ..CANDLE_ON_THE_CPU
};
