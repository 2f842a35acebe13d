//! The kinds of programs that run models, and the memory each takes in addition to weights and cache.

use pool::Bytes;

use model_files::Split;

/// Memory of the embedded engine's process on the CPU for any model: program, threads, and the tables of a small tokenizer.
pub const CANDLE_CPU_OVERHEAD: Bytes = Bytes(16 * Bytes::MIB);
/// Memory of llama-server's process on the host for any model: program, threads, vocabulary, and the results of a batch.
pub const LLAMA_CPU_OVERHEAD: Bytes = Bytes(64 * Bytes::MIB);
/// An engine's memory on each GPU in addition to weights and cache: the CUDA context and the workspace of its libraries, a few
/// hundred MiB by NVIDIA's documentation. Measurements replace it.
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
    /// The engine's way to divide a model over several devices.
    pub fn split(self) -> Split {
        match self {
            EngineKind::LlamaCpp => Split::Layers,
            _ => Split::Heads,
        }
    }

    /// Memory on each device in addition to weights and cache. Initial estimates, replaced by measurements:
    ///
    /// - vLLM: 3 GiB, and on several devices 1.75 GiB more. Its own report for Llama 3 8B on an
    ///   80 GB card is 1.79 GiB outside of PyTorch and 1.26 GiB of activations, on two cards 3.58
    ///   and 1.26 GiB (vllm-project/vllm pull request 10511). SGLang, TGI and TensorRT-LLM use the
    ///   same libraries and are assumed to need as much.
    /// - Text Embeddings Inference: 1 GiB. The CUDA context, and the activations of a batch of 16384
    ///   tokens: about 8 KiB each for a model of 1024 features.
    /// - llama.cpp: 1 GiB if its file's header is unknown. The CUDA context, and a compute buffer that mostly holds the
    ///   logits of one batch: 512 tokens × 128256 words × 4 bytes are 251 MiB for Llama 3. With the
    ///   header, `estimates::llama_cpp` counts the buffer.
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

    /// Thousandths of each device that the engine fills by default: vLLM's `gpu_memory_utilization` is 0.9; SGLang's
    /// `mem_fraction_static` depends on the card and is 0.87 with 80 GB; TGI's `cuda-memory-fraction` is 1.0. `None`: it takes only
    /// what the model needs.
    pub(crate) fn share_per_mille(self) -> Option<u32> {
        match self {
            EngineKind::Vllm => Some(900),
            EngineKind::Sglang => Some(870),
            EngineKind::Tgi => Some(1000),
            EngineKind::LlamaCpp | EngineKind::Tei | EngineKind::TrtLlm | EngineKind::Other => None,
        }
    }

    /// Returns true if the engine stores four-byte weights in two bytes, as these do with `--dtype auto`.
    pub(crate) fn halves_wide_weights(self) -> bool {
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
