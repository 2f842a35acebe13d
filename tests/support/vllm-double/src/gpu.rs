//! Memory of fake GPUs, used like vLLM: it checks that its share is free, holds the weights, fills the share with its cache, keeps
//! a little while asleep, and prints vLLM's error if memory is insufficient.

#[path = "../../fake-nvml/state.rs"]
mod state;

use std::path::PathBuf;

use crate::flags::Flags;
use crate::number;
use state::{State, Wish};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
/// Activations and memory outside of PyTorch.
const BESIDE_CACHE: u64 = GIB;
/// CUDA graphs, in addition to the share.
const GRAPHS: u64 = 256 * MIB;
/// Memory that stays while it sleeps.
const RESIDENT: u64 = GIB;
/// Bytes of one cached token on all GPUs together, as for a model of 8 billion parameters.
const TOKEN_BYTES: u64 = 128 << 10;

/// The GPUs of this process; none if `MODEL_POOL_FAKE_NVML` is not set.
#[derive(Debug)]
pub struct Gpu {
    file: Option<PathBuf>,
    indices: Vec<usize>,
    utilisation: f64,
    /// On each GPU.
    weights: u64,
    context: u64,
    graphs: u64,
}

impl Gpu {
    pub fn visible(flags: &Flags) -> Result<Gpu, String> {
        let file = std::env::var_os("MODEL_POOL_FAKE_NVML").map(PathBuf::from);
        let indices = match &file {
            Some(file) => visible(file)?,
            None => Vec::new(),
        };
        if file.is_some() && indices.len() < flags.tensor_parallel {
            return Err(format!(
                "ValueError: World size ({}) is larger than the number of available GPUs ({}) in this node.",
                flags.tensor_parallel,
                indices.len()
            ));
        }
        let count = flags.tensor_parallel.max(1) as u64;
        Ok(Gpu {
            file,
            indices: indices.into_iter().take(flags.tensor_parallel).collect(),
            utilisation: flags.utilisation,
            weights: number("VLLM_DOUBLE_WEIGHTS_BYTES", 8 * GIB) / count,
            context: flags.max_model_len * TOKEN_BYTES / count,
            graphs: if flags.eager { 0 } else { GRAPHS },
        })
    }

    /// On each GPU.
    pub fn weights(&self) -> u64 {
        self.weights
    }

    fn state(&self) -> Option<State> {
        State::read(self.file.as_deref()?).ok()
    }

    fn share(&self, index: usize) -> u64 {
        let total = self
            .state()
            .and_then(|state| state.gpu(index)?.figure("total"));
        (total.unwrap_or(0) as f64 * self.utilisation) as u64
    }

    /// vLLM's first check before it loads anything.
    pub fn check_share(&self) -> Result<(), String> {
        for &index in &self.indices {
            let (wanted, free) = (self.share(index), self.free(index));
            if wanted > free {
                return Err(format!(
                    "ValueError: Free memory on device cuda:{index} ({:.2}/{:.2} GiB) on startup is less than desired GPU memory utilization ({}, {:.2} GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.",
                    gib(free),
                    gib((wanted as f64 / self.utilisation) as u64),
                    self.utilisation,
                    gib(wanted)
                ));
            }
        }
        Ok(())
    }

    fn free(&self, index: usize) -> u64 {
        self.state().map_or(0, |state| state.free(index))
    }

    pub fn take_weights(&self) -> Result<(), String> {
        self.hold_each(|_| self.weights)
    }

    /// Bytes of the cache on the first GPU.
    pub fn take_cache(&self) -> Result<u64, String> {
        let Some(&first) = self.indices.first() else {
            return Ok(4 * GIB);
        };
        let cache = self
            .share(first)
            .saturating_sub(self.weights + BESIDE_CACHE);
        if cache == 0 {
            return Err("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.".to_owned());
        }
        if cache < self.context {
            return Err(format!(
                "ValueError: To serve at least one request with the models's max seq len, {:.2} GiB KV cache is needed, which is larger than the available KV cache memory ({:.2} GiB).",
                gib(self.context),
                gib(cache)
            ));
        }
        self.hold_each(|index| self.share(index) + self.graphs)?;
        Ok(cache)
    }

    pub fn fall_asleep(&self) -> Result<(), String> {
        self.hold_each(|_| RESIDENT)
    }

    /// Allocates everything again, or only the memory for the weights.
    pub fn wake(&self, whole: bool) -> Result<(), String> {
        if whole {
            self.hold_each(|index| self.share(index) + self.graphs)
        } else {
            self.hold_each(|_| RESIDENT + self.weights)
        }
    }

    fn hold_each(&self, bytes: impl Fn(usize) -> u64) -> Result<(), String> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        for &index in &self.indices {
            let wish = Wish {
                gpu: index,
                pid: std::process::id(),
                bytes: bytes(index),
                words: "",
            };
            let taken = state::allocate(file, &wish).map_err(|error| error.to_string())?;
            if let Err(free) = taken {
                return Err(format!(
                    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {:.2} GiB. GPU {index} has a total capacity of {:.2} GiB of which {:.2} GiB is free.",
                    gib(wish.bytes),
                    gib((self.share(index) as f64 / self.utilisation) as u64),
                    gib(free)
                ));
            }
        }
        Ok(())
    }
}

pub fn gib(bytes: u64) -> f64 {
    bytes as f64 / GIB as f64
}

/// The GPUs in `CUDA_VISIBLE_DEVICES`, by index or UUID, as indices in the file.
fn visible(file: &std::path::Path) -> Result<Vec<usize>, String> {
    let names = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    let state = State::read(file)
        .map_err(|error| format!("RuntimeError: cannot read {}: {error}", file.display()))?;
    let count = state.all("gpu").count();
    let find = |name: &str| {
        let by_index = name.parse().ok().filter(|index| *index < count);
        by_index
            .or_else(|| (0..count).find(|index| state.uuid(*index) == name))
            .ok_or_else(|| format!("RuntimeError: No CUDA GPUs are available ({names})"))
    };
    names
        .split(',')
        .filter(|name| !name.is_empty())
        .map(find)
        .collect()
}
