//! What a replica needs before anybody has measured one (M1): weights, key-value cache, and what
//! the engine itself takes. It reads headers and `config.json` of a local model; it decides
//! nothing about placement. Reading is blocking: call it off the event loop.

use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::config::reading;
use crate::pool::Bytes;

use super::model_file::ComputeDevice;
use super::recipe::{CandleRecipe, CommandRecipe};
use super::safetensors::{self, read_text, weights_of};

/// What the embedded engine's process takes beside weights and cache when it runs on the CPU:
/// program, tokenizer, activations of a small model. A starting figure; measurements replace it.
pub const CANDLE_CPU_OVERHEAD: Bytes = Bytes(16 * Bytes::MIB);
/// What an engine takes on each GPU beside weights and cache: the CUDA context and the work space
/// of its libraries, a few hundred MiB by NVIDIA's own accounts. Measurements replace it.
pub const GPU_OVERHEAD: Bytes = Bytes(512 * Bytes::MIB);

const CONFIG_JSON_MAX: u64 = 16 << 20;

/// Why there is no figure. Each names what to look at.
#[derive(Debug, thiserror::Error)]
pub enum EstimateError {
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{}: {problem}", path.display())]
    Broken { path: PathBuf, problem: String },
    /// A command whose model cannot be looked at.
    #[error(
        "nothing says how much memory {model} needs: {why}; set pool_config.memory_gib in its file to what one replica takes on all its GPUs together"
    )]
    NoFigure { model: String, why: String },
}

/// The sizes in `config.json` that the cache depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelShape {
    pub layers: u64,
    pub key_value_heads: u64,
    pub head_dimension: u64,
    /// A replica over several devices divides these among them (M5).
    pub attention_heads: u64,
    /// The longest sequence the model was made for, if it says so.
    pub context: Option<u64>,
}

impl ModelShape {
    /// Reads `config.json` of a model's folder.
    pub fn read(folder: &Path) -> Result<ModelShape, EstimateError> {
        let path = folder.join("config.json");
        let text = read_text(&path, CONFIG_JSON_MAX)?;
        let file: ConfigJson = reading::json(&text).map_err(|flaw| EstimateError::Broken {
            path: path.clone(),
            problem: flaw.to_string(),
        })?;
        // Models that also read images keep the sizes of their language part in a section.
        let sizes = file.text_config.unwrap_or(file.sizes);
        sizes
            .shape()
            .map_err(|problem| EstimateError::Broken { path, problem })
    }

    /// Keys and values of every layer for `sequences` of `context` tokens.
    fn cache_bytes(&self, context: u64, sequences: u64, bytes_per_element: u64) -> u64 {
        [
            self.layers,
            self.key_value_heads,
            self.head_dimension,
            context,
            sequences,
            bytes_per_element,
        ]
        .iter()
        .fold(2_u64, |product, factor| product.saturating_mul(*factor))
    }
}

#[derive(Deserialize)]
struct ConfigJson {
    text_config: Option<Sizes>,
    #[serde(flatten)]
    sizes: Sizes,
}

#[derive(Deserialize)]
struct Sizes {
    num_hidden_layers: Option<u64>,
    num_attention_heads: Option<u64>,
    num_key_value_heads: Option<u64>,
    hidden_size: Option<u64>,
    head_dim: Option<u64>,
    max_position_embeddings: Option<u64>,
}

impl Sizes {
    fn shape(&self) -> Result<ModelShape, String> {
        let needed = |value: Option<u64>, key: &str| {
            value
                .filter(|value| *value > 0)
                .ok_or_else(|| format!("`{key}` is missing or 0"))
        };
        let heads = needed(self.num_attention_heads, "num_attention_heads")?;
        let head_dimension = match self.head_dim {
            Some(dimension) => dimension,
            None => needed(self.hidden_size, "hidden_size")?.div_ceil(heads),
        };
        Ok(ModelShape {
            layers: needed(self.num_hidden_layers, "num_hidden_layers")?,
            key_value_heads: self.num_key_value_heads.unwrap_or(heads),
            head_dimension,
            attention_heads: heads,
            context: self.max_position_embeddings,
        })
    }
}

/// The whole need of one replica of the embedded engine, on all its devices together.
pub(super) fn candle(recipe: &CandleRecipe, devices: u32) -> Result<Bytes, EstimateError> {
    let weights = weights_of(&recipe.model_path)?;
    let shape = ModelShape::read(&recipe.model_path)?;
    // Weights and cache have one type: F32 on the CPU, BF16 on a GPU.
    let float_bytes = match recipe.device {
        ComputeDevice::Cpu => 4,
        ComputeDevice::Cuda | ComputeDevice::Metal => 2,
    };
    let context = context_of(&recipe.model_path, recipe.context, shape)?;
    let cache = shape.cache_bytes(context, u64::from(recipe.concurrency), float_bytes);
    Ok(Bytes(weights.held_in(float_bytes)) + Bytes(cache) + overhead(recipe.device, devices))
}

impl CandleRecipe {
    /// Tokens of one sequence: what the model's file says, or else its `config.json`.
    pub fn context_tokens(&self) -> Result<u64, EstimateError> {
        match self.context {
            Some(tokens) => Ok(u64::from(tokens)),
            None => context_of(&self.model_path, None, ModelShape::read(&self.model_path)?),
        }
    }
}

fn overhead(device: ComputeDevice, devices: u32) -> Bytes {
    match device {
        ComputeDevice::Cpu => CANDLE_CPU_OVERHEAD,
        ComputeDevice::Cuda | ComputeDevice::Metal => times(GPU_OVERHEAD, devices),
    }
}

fn times(bytes: Bytes, count: u32) -> Bytes {
    Bytes(bytes.0.saturating_mul(u64::from(count)))
}

fn context_of(folder: &Path, asked: Option<u32>, shape: ModelShape) -> Result<u64, EstimateError> {
    asked.map(u64::from).or(shape.context).ok_or_else(|| EstimateError::Broken {
        path: folder.join("config.json"),
        problem: "`max_position_embeddings` is missing, and engine_config.max_total_tokens does not say the context either".to_owned(),
    })
}

/// The whole need of one replica of a command whose model lies in a local folder or file: weights
/// as stored, a two-byte cache for `sequences`, and the overhead of each GPU.
pub(super) fn command(
    recipe: &CommandRecipe,
    sequences: u32,
    devices: u32,
) -> Result<Bytes, EstimateError> {
    let Some(path) = recipe.model_path.as_deref().map(Path::new) else {
        return Err(EstimateError::Broken {
            path: PathBuf::new(),
            problem: "engine_config.model_path is not set".to_owned(),
        });
    };
    let weights = safetensors::weights_of(path)?;
    let shape = ModelShape::read(path)?;
    let context = context_of(path, recipe.context, shape)?;
    let cache = shape.cache_bytes(context, u64::from(sequences), 2);
    Ok(Bytes(weights.stored_bytes) + Bytes(cache) + times(GPU_OVERHEAD, devices))
}

/// What stands in when headers cannot be read: the sizes of the weight files, and the overhead.
/// `None` when there is no such file.
pub(super) fn by_file_sizes(path: &Path, overhead: Bytes) -> Option<Bytes> {
    let is_weights = |file: &Path| {
        file.extension().is_some_and(|extension| {
            ["safetensors", "gguf", "bin", "pt", "pth"]
                .iter()
                .any(|known| extension == *known)
        })
    };
    let metadata = std::fs::metadata(path).ok()?;
    if metadata.is_file() {
        return Some(Bytes(metadata.len()) + overhead);
    }
    let sizes: Bytes = std::fs::read_dir(path)
        .ok()?
        .filter_map(Result::ok)
        .filter(|file| is_weights(&file.path()))
        .filter_map(|file| std::fs::metadata(file.path()).ok())
        .map(|metadata| Bytes(metadata.len()))
        .sum();
    (sizes > Bytes::ZERO).then(|| sizes + overhead)
}

/// The overhead that `by_file_sizes` adds for the embedded engine.
pub(super) fn candle_overhead(recipe: &CandleRecipe, devices: u32) -> Bytes {
    overhead(recipe.device, devices)
}

/// The overhead that `by_file_sizes` adds for a command.
pub(super) fn command_overhead(devices: u32) -> Bytes {
    times(GPU_OVERHEAD, devices)
}
