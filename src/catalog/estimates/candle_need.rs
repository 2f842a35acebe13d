//! Estimates the memory of an embedded-engine replica before any measurement (M1). The engine allocates its cache at start and
//! stays within it, so the estimate is the maximum:
//!
//! ```text
//! weights       on the CPU as stored in their files, which stay mapped, or in the form they are converted to at
//!               load; encoders, and decoders that candle's library computes, in four bytes; on a GPU as wide as they are stored
//! cache         pages of 16 tokens: concurrency × context, at most max_batch_total_tokens; keys and values of four bytes on
//!               the CPU, or two by `kv_cache_dtype`, of two on a GPU unless weights have four; no windows; latent attention
//!               expanded for each head
//! activations   4 bytes × rows of a step × (4 hidden + 3 feed-forward + 3 queries), and logits of every sequence
//!               encoders on the CPU: 4 hidden + 4 feed-forward + 3 queries + 4 head widths, and the keys and values of one
//!               layer in pages of 16 tokens, at most four times a batch; on GPUs, and where distances add to scores: twice
//!               the scores of all heads instead, rows × heads × context
//!               speech: one window and its text instead of a cache, the rows of a window, a block of scores, and the
//!               samples ahead of each request that takes turns
//!               images: the rows of one in the vision tower, the tower's results for each sequence, and on the CPU 456 MiB
//!               for images that are decoded or wait
//! adapters      as many as may be loaded, each with the highest rank, in four bytes a number
//! the engine    16 MiB and eight times its tokenizer.json; 512 MiB on each GPU
//! ```
//!
//! With several GPUs each holds an equal share of weights and cache, plus room for one more layer, since layers are not split.

use std::path::Path;

use pool::Bytes;

use super::candle_activations::{activations, paged};
use super::candle_vision::VisionTower;
use super::estimate::{EstimateError, by_file_sizes, share, times};
use crate::documents::{CacheType, ComputeDevice, Quantization};
use crate::engines::{CANDLE_CPU_OVERHEAD, GPU_OVERHEAD};
use crate::recipes::{CandleRecipe, ModelTask, candle_models};
use model_files::{CacheLoad, ModelFiles, NumberWidth, Split, Widths};
use model_files::{Rows, Weights};

/// Memory per byte of the tokenizer's file: the texts of tokens and merges are indexed in both directions.
const TOKENIZER_FACTOR: u64 = 8;
/// A larger file is not a tokenizer.
const TOKENIZER_BYTES_MAX: u64 = 1 << 30;

/// The memory that one replica needs on each of its devices.
pub(crate) fn need(
    recipe: &CandleRecipe,
    files: &ModelFiles,
    devices: u32,
) -> Result<Bytes, EstimateError> {
    let architecture = &files.architecture;
    let wanted = recipe.context.map(u64::from);
    let context = architecture.tokens(wanted.or(candle_models::context(architecture)))?;
    let library = candle_models::library_family(&architecture.origin);
    let weights_of_four = files.weights.stored_bytes >= files.weights.held_in(4);
    let width = match recipe.device {
        _ if library.is_some() => NumberWidth::FOUR_BYTES,
        ComputeDevice::Cuda | ComputeDevice::Metal if !weights_of_four => NumberWidth::TWO_BYTES,
        ComputeDevice::Cuda | ComputeDevice::Metal => NumberWidth::FOUR_BYTES,
        ComputeDevice::Cpu => match recipe.numbers.kv_cache {
            CacheType::F16 | CacheType::Bf16 => NumberWidth::TWO_BYTES,
            CacheType::Auto | CacheType::F32 => NumberWidth::FOUR_BYTES,
        },
    };
    // A speech model computes one window at a time, whichever request it is of.
    let is_speech = recipe.serves == Some(ModelTask::Speech);
    let sequences = if is_speech {
        1
    } else {
        u64::from(recipe.concurrency)
    };
    let load = CacheLoad {
        tokens: cache_tokens(recipe, context, sequences),
        keys: width,
        values: width,
        drops_old_tokens: false,
        expands_latent: true,
        ..CacheLoad::even(context, sequences)
    };
    // Encoders process a text in one pass and have no cache; decoders have a cache whatever their task.
    let cache = architecture.cache_bytes_per_device(&load, Split::Heads, 1);
    let weights = match library {
        // From config.json alone, the numbers are taken to have two bytes.
        Some(_) if files.by_config => files.weights.stored_bytes.saturating_mul(2),
        Some(_) => files.weights.held_in(4),
        None => weights(recipe, files),
    };
    let tower = VisionTower::read(&architecture.origin);
    // The count of parameters in config.json has no tower.
    let tower_weights = tower
        .filter(|_| files.by_config)
        .map_or(0, |tower| tower.weights());
    let images = tower.map_or(0, |tower| tower.images(recipe, context));
    let divided = Bytes(weights) + Bytes(tower_weights) + Bytes(cache);
    let widths = architecture.widths;
    let layer = match devices {
        0 | 1 => Bytes::ZERO,
        _ => share(divided, blocks(files)),
    };
    let activations = widths.map_or(0, |widths| activations(recipe, files, widths, context));
    let adapters = widths.map_or(0, |widths| adapters(recipe, widths));
    Ok(share(divided, devices)
        + layer
        + Bytes(activations)
        + Bytes(images)
        + share(Bytes(adapters), devices)
        + overhead(recipe))
}

/// Memory for the maximum number of loaded adapters, each with the highest rank in every matrix of a block, in four bytes a number.
/// Reserving all of it up front means that loading an adapter needs no separate decision. The files are copied, and with a GPU the
/// host holds a second copy.
fn adapters(recipe: &CandleRecipe, widths: Widths) -> u64 {
    let room = recipe.adapter_room;
    let count = u64::from(room.count).saturating_add(recipe.adapters.len() as u64);
    count.saturating_mul(adapter_bytes(room.rank, widths))
}

/// Both narrow matrices of the four attention and three feed-forward matrices.
pub(super) fn adapter_bytes(rank: u32, widths: Widths) -> u64 {
    let attention = widths.hidden.saturating_add(widths.queries);
    let feed_forward = widths.hidden.saturating_add(widths.wide);
    let numbers = attention
        .saturating_mul(4)
        .saturating_add(feed_forward.saturating_mul(3));
    numbers
        .saturating_mul(widths.blocks)
        .saturating_mul(u64::from(rank))
        .saturating_mul(4)
}

/// Tokens in the cache, rounded up to full pages per sequence.
fn cache_tokens(recipe: &CandleRecipe, context: u64, sequences: u64) -> u64 {
    let all = paged(context).saturating_mul(sequences);
    let most = recipe.budgets.total.map(|total| paged(u64::from(total)));
    all.min(most.unwrap_or(u64::MAX))
}

/// Bytes of the weights on all devices together.
fn weights(recipe: &CandleRecipe, files: &ModelFiles) -> u64 {
    let weights = files.weights;
    // For weights that are not on this machine only the size is known. A model without cached layers is an encoder.
    let is_encoder = files.architecture.layers.is_empty() && !files.by_config;
    // A speech model's matrices stay in their files on the CPU, and become wide on a GPU.
    let is_widened = recipe.serves == Some(ModelTask::Speech)
        && recipe.device != ComputeDevice::Cpu
        && !files.by_config;
    match recipe.quantization {
        _ if is_encoder || is_widened => weights.held_in(4),
        Some(form) => quantised(weights, form),
        None => weights.stored_bytes,
    }
}

/// Size after conversion at load. Matrices whose rows do not divide into the form's blocks use the next finer form, or stay
/// unchanged.
fn quantised(weights: Weights, form: Quantization) -> u64 {
    let [rows_of_32, rows_of_256] = weights.matrices();
    let coarse = match form {
        Quantization::Q4K => rows_of_256,
        Quantization::Q8_0 => Rows::default(),
    };
    let fine = Rows {
        elements: rows_of_32.elements.saturating_sub(coarse.elements),
        stored_bytes: rows_of_32.stored_bytes.saturating_sub(coarse.stored_bytes),
    };
    let rest = weights
        .stored_bytes
        .saturating_sub(coarse.stored_bytes)
        .saturating_sub(fine.stored_bytes);
    // 144 bytes for 256 numbers, and 34 for 32.
    rest.saturating_add(coarse.elements.saturating_mul(144) / 256)
        .saturating_add(fine.elements.saturating_mul(34) / 32)
}

/// The engine's own memory on each device, without its model.
pub(crate) fn overhead(recipe: &CandleRecipe) -> Bytes {
    match recipe.device {
        ComputeDevice::Cpu => CANDLE_CPU_OVERHEAD + Bytes(tokenizer_bytes(&recipe.model_path)),
        ComputeDevice::Cuda | ComputeDevice::Metal => GPU_OVERHEAD,
    }
}

/// Memory for the tables of the model's tokenizer.
fn tokenizer_bytes(path: &Path) -> u64 {
    let file = path.join("tokenizer.json");
    let length = std::fs::metadata(file).map_or(0, |file| file.len());
    length.min(TOKENIZER_BYTES_MAX) * TOKENIZER_FACTOR
}

/// A substitute estimate for files whose headers cannot be read. The flag is true if it includes more than the engine itself.
pub(super) fn by_sizes(recipe: &CandleRecipe, devices: u32) -> (Bytes, bool) {
    let own = match recipe.device {
        ComputeDevice::Cpu => overhead(recipe),
        ComputeDevice::Cuda | ComputeDevice::Metal => times(overhead(recipe), devices),
    };
    let sizes = by_file_sizes(&recipe.model_path, own);
    (share(sizes.unwrap_or(own), devices), sizes.is_some())
}

/// Number of layers that are divided over devices, at least one. Models that the library computes are not divided.
pub(crate) fn blocks(files: &ModelFiles) -> u32 {
    if candle_models::library_family(&files.architecture.origin).is_some() {
        return 1;
    }
    let blocks = files.architecture.widths.map_or(1, |widths| widths.blocks);
    u32::try_from(blocks).unwrap_or(u32::MAX).max(1)
}

impl CandleRecipe {
    /// Context of one sequence in tokens: from the model's file, or else the model's own.
    pub fn context_tokens(&self) -> Result<u64, EstimateError> {
        match self.context {
            Some(tokens) => Ok(u64::from(tokens)),
            None => {
                let architecture = candle_models::architecture(&self.model_path)?;
                Ok(architecture.tokens(candle_models::context(&architecture))?)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipes::recipe::tests::candle as recipe;
    use model_files::{Architecture, LayerCache};

    /// Ten layers, with weights of `bytes` bytes per number.
    fn files(bytes: u64) -> ModelFiles {
        let mut architecture = Architecture::new(Path::new("config.json"));
        let heads = LayerCache::Heads {
            heads: 2,
            key_size: 64,
            value_size: 64,
            window: Some(16),
        };
        architecture.push(10, heads);
        architecture.widths = Some(Widths {
            hidden: 256,
            wide: 512,
            queries: 256,
            vocabulary_size: 1000,
            blocks: 10,
            expert: 0,
            experts_used: 0,
        });
        let weights = Weights {
            stored_bytes: 1_000_000 * bytes,
            float_elements: 1_000_000,
            ..Weights::default()
        };
        ModelFiles {
            weights,
            architecture,
            tensors: Vec::new(),
            by_config: false,
        }
    }

    const TOKENS: u64 = 2 * 1024;
    /// Numbers per token in ten layers with two heads of keys and values.
    const NUMBERS: u64 = 10 * 2 * 128;
    const ACTIVATIONS: u64 = (512 * (4 * 256 + 3 * 512 + 3 * 256) + 2 * 1000) * 4;

    #[test]
    fn on_a_gpu_the_cache_has_the_width_of_the_weights() {
        let need = |bytes| need(&recipe(ComputeDevice::Cuda), &files(bytes), 1).expect("a need");
        let beside = ACTIVATIONS + GPU_OVERHEAD.0;
        assert_eq!(need(2).0, 2_000_000 + TOKENS * NUMBERS * 2 + beside);
        assert_eq!(need(4).0, 4_000_000 + TOKENS * NUMBERS * 4 + beside);
    }

    #[test]
    fn a_speech_model_keeps_one_window_however_many_requests_take_turns() {
        let mut speech = recipe(ComputeDevice::Cpu);
        speech.serves = Some(ModelTask::Speech);
        let mut files = files(2);
        let window = LayerCache::State { bytes: 12_000_000 };
        files.architecture.push(4, window);
        let need = |recipe: &CandleRecipe| need(recipe, &files, 1).expect("a need").0;
        let one = need(&speech);
        assert!(one > 2_000_000 + 4 * 12_000_000, "{one}");
        speech.concurrency += 1;
        assert_eq!(
            need(&speech) - one,
            2 * 480_000 * 4,
            "the samples ahead of one request"
        );
        let (cpu, mut gpu) = (weights(&speech, &files), speech.clone());
        gpu.device = ComputeDevice::Cuda;
        assert_eq!(
            (cpu, weights(&gpu, &files)),
            (2_000_000, files.weights.held_in(4))
        );
    }

    #[test]
    fn a_model_of_the_library_has_four_bytes_per_number_on_every_device() {
        let folder = tempfile::tempdir().expect("a folder");
        let origin = folder.path().join("config.json");
        std::fs::write(&origin, r#"{"architectures": ["MptForCausalLM"]}"#).expect("written");
        let mut files = files(2);
        let own = need(&recipe(ComputeDevice::Cpu), &files, 1).expect("a need");
        files.architecture.origin = origin;
        files.architecture.attention_heads = Some(4);
        let library = |files: &ModelFiles, device| need(&recipe(device), files, 1).expect("a need");
        assert_eq!(blocks(&files), 1);
        // The context is the window of the layers, 16 tokens, unless the recipe sets it.
        let on_cpu = library(&files, ComputeDevice::Cpu);
        assert!(
            on_cpu > own + Bytes(2_000_000 - 1),
            "{on_cpu:?} and {own:?}"
        );
        let on_gpu = library(&files, ComputeDevice::Cuda);
        assert_eq!(
            on_gpu.0 - GPU_OVERHEAD.0,
            on_cpu.0 - overhead(&recipe(ComputeDevice::Cpu)).0
        );
        files.by_config = true;
        let by_config = library(&files, ComputeDevice::Cpu);
        assert_eq!(by_config, on_cpu);
    }

    #[test]
    fn over_several_gpus_each_one_reserves_an_additional_layer() {
        let files = files(2);
        let need = |devices| need(&recipe(ComputeDevice::Cuda), &files, devices).expect("a need");
        let divided = 2_000_000 + TOKENS * NUMBERS * 2;
        let beside = ACTIVATIONS + GPU_OVERHEAD.0;
        assert_eq!(need(1).0, divided + beside);
        assert_eq!(need(2).0, divided / 2 + divided / 10 + beside);
        assert_eq!(blocks(&files), 10);
    }
}
