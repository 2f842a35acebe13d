//! The programs that run models, and the memory that each takes beside weights and cache.

use pool::Bytes;

use model_files::Split;

/// What the embedded engine's process takes on the CPU whatever the model is: program, threads, and the tables of a small
/// tokenizer.
pub const CANDLE_CPU_OVERHEAD: Bytes = Bytes(16 * Bytes::MIB);
/// What an engine takes on each GPU beside weights and cache: the CUDA context and the work space
/// of its libraries, a few hundred MiB by NVIDIA's own accounts. Measurements replace it.
pub const GPU_OVERHEAD: Bytes = Bytes(512 * Bytes::MIB);

/// A program that runs models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineKind {
    Vllm,
    Sglang,
    /// text-generation-inference.
    Tgi,
    LlamaCpp,
    /// text-embeddings-inference.
    Tei,
    TrtLlm,
    Other,
}

impl EngineKind {
    /// How it spreads a model over several devices.
    pub fn split(self) -> Split {
        match self {
            EngineKind::LlamaCpp => Split::Layers,
            _ => Split::Heads,
        }
    }

    /// What it takes on each device beside weights and cache. Starting figures, which measurements
    /// replace:
    ///
    /// - vLLM: 3 GiB, and on several devices 1.75 GiB more. Its own account of Llama 3 8B on an
    ///   80 GB card is 1.79 GiB outside of PyTorch and 1.26 GiB of activations, on two cards 3.58
    ///   and 1.26 GiB (vllm-project/vllm pull request 10511). SGLang and TGI, built on the same
    ///   libraries, are taken to need as much.
    ///   So is TensorRT-LLM.
    /// - Text Embeddings Inference: 1 GiB. The CUDA context, and the activations of a batch of 16384
    ///   tokens: some 8 KiB each for a model of 1024 features.
    /// - llama.cpp: 1 GiB. The CUDA context, and a compute buffer whose larger part is the logits
    ///   of one batch: 512 tokens × 128256 words × 4 bytes are 251 MiB for Llama 3.
    /// - other programs: `GPU_OVERHEAD`, the CUDA context alone.
    pub fn overhead_per_device(self, devices: u32) -> Bytes {
        match self {
            EngineKind::Vllm | EngineKind::Sglang | EngineKind::Tgi | EngineKind::TrtLlm
                if devices > 1 =>
            {
                Bytes(4864 * Bytes::MIB)
            }
            EngineKind::Vllm | EngineKind::Sglang | EngineKind::Tgi | EngineKind::TrtLlm => {
                Bytes(3 * Bytes::GIB)
            }
            EngineKind::LlamaCpp | EngineKind::Tei => Bytes(Bytes::GIB),
            EngineKind::Other => GPU_OVERHEAD,
        }
    }

    /// Thousandths of each device that it fills by default: vLLM's
    /// `gpu_memory_utilization` 0.9; SGLang's `mem_fraction_static`, which it sets by the card, to
    /// 0.87 on one of 80 GB; TGI's `cuda-memory-fraction` 1.0. `None`: it takes what the model
    /// needs.
    pub(super) fn share_per_mille(self) -> Option<u32> {
        match self {
            EngineKind::Vllm => Some(900),
            EngineKind::Sglang => Some(870),
            EngineKind::Tgi => Some(1000),
            EngineKind::LlamaCpp | EngineKind::Tei | EngineKind::TrtLlm | EngineKind::Other => None,
        }
    }

    /// Whether it holds weights of four bytes in two, as these do with `--dtype auto`.
    pub(super) fn halves_wide_weights(self) -> bool {
        matches!(
            self,
            EngineKind::Vllm
                | EngineKind::Sglang
                | EngineKind::Tgi
                | EngineKind::Tei
                | EngineKind::TrtLlm
        )
    }
}
