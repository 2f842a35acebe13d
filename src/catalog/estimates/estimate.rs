//! Estimates a replica's memory before any measurement (M1): weights, key-value cache, and the engine's own memory. Adds up figures
//! that other modules read from headers and `config.json`; it does not decide about placement. Blocking: call it outside the event
//! loop.

use std::path::Path;

use pool::Bytes;

use super::llama_cpp::Room;
use crate::engines::EngineKind;
use crate::recipes::EngineOptions;
use model_files::{CacheLoad, FileError, ModelFiles, bytes_of_weight_files};

/// Tokens of a llama.cpp batch, which its sliding windows hold in addition.
const LLAMA_BATCH: u64 = 512;
/// The reason why memory could not be estimated, with the key or file to look at.
#[derive(Debug, thiserror::Error)]
pub enum EstimateError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("engine_config.model_path names no local model")]
    NotLocal,
    /// A command whose model cannot be inspected.
    #[error(
        "the memory of {model} is unknown: {why}; set pool_config.memory_gib in its file to the memory of one replica on all its GPUs together"
    )]
    NoFigure { model: String, why: String },
    /// A bug in this program that affects only this model.
    #[error(
        "the memory of {model} cannot be determined: reading its files panicked ({message}); its model file: {file}"
    )]
    Panicked {
        model: String,
        file: String,
        message: String,
    },
}

/// Bytes of the weights in the engine's number type.
fn held_by(files: &ModelFiles, kind: EngineKind) -> u64 {
    let stored = files.weights.stored_bytes;
    if kind.halves_wide_weights() && !files.by_config {
        stored.min(files.weights.held_in(2))
    } else {
        stored
    }
}

/// Memory that a command needs on each device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandNeed {
    /// With a cache for as many sequences as the replica gets requests.
    pub wanted: Bytes,
    /// With a cache for one sequence, the minimum for starting.
    pub least: Bytes,
    /// Assumptions that an administrator should know.
    pub guesses: Vec<String>,
}

impl CommandNeed {
    pub(super) fn fixed(wanted: Bytes) -> CommandNeed {
        CommandNeed {
            wanted,
            least: wanted,
            guesses: Vec::new(),
        }
    }
}

/// The memory of one command replica on each of its devices: weights as stored, a cache for `sequences` unless the command's
/// options set another number, and the program's own overhead.
pub(crate) fn command(
    options: &EngineOptions,
    files: &ModelFiles,
    context: Option<u32>,
    sequences: u32,
    devices: u32,
) -> Result<CommandNeed, EstimateError> {
    let architecture = &files.architecture;
    let context_tokens = context.map(u64::from);
    let weights = Bytes(held_by(files, options.kind).div_ceil(u64::from(devices.max(1))));
    let fixed = weights + options.kind.overhead_per_device(devices);
    if let Some(cache) = options.cache {
        return Ok(CommandNeed::fixed(fixed + cache));
    }
    let cache = |load: CacheLoad| {
        let load = CacheLoad {
            keys: options.keys,
            values: options.values,
            drops_old_tokens: !options.keeps_old_tokens,
            ..load
        };
        Bytes(architecture.cache_bytes_per_device(&load, options.kind.split(), devices))
    };
    if options.kind == EngineKind::LlamaCpp {
        let Room { tokens, sequences } = Room::new(options, architecture, context)?;
        let wanted = fixed
            + cache(CacheLoad {
                tokens,
                window_slack: LLAMA_BATCH,
                ..CacheLoad::even(tokens, sequences)
            });
        return Ok(CommandNeed::fixed(wanted));
    }
    let tokens = architecture.tokens(options.context.or(context_tokens))?;
    let sequences = u64::from(sequences).min(options.sequences.unwrap_or(u64::MAX));
    Ok(CommandNeed {
        wanted: fixed + cache(CacheLoad::even(tokens, sequences)),
        least: fixed + cache(CacheLoad::even(tokens, 1)),
        guesses: Vec::new(),
    })
}

/// A substitute estimate when headers cannot be read: the sizes of the weight files plus the overhead. `None` if there are no such
/// files.
pub(super) fn by_file_sizes(path: &Path, overhead: Bytes) -> Option<Bytes> {
    bytes_of_weight_files(path).map(|bytes| Bytes(bytes) + overhead)
}

/// The overhead of a command on all its devices together.
pub(super) fn command_overhead(kind: EngineKind, devices: u32) -> Bytes {
    times(kind.overhead_per_device(devices), devices)
}

pub(crate) fn times(bytes: Bytes, count: u32) -> Bytes {
    Bytes(bytes.0.saturating_mul(u64::from(count)))
}

/// The share of one device, rounded up.
pub(crate) fn share(total: Bytes, devices: u32) -> Bytes {
    Bytes(total.0.div_ceil(u64::from(devices.max(1))))
}
