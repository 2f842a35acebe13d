//! What a replica needs before anybody has measured one (M1): weights, key-value cache, and what
//! the engine itself takes. It adds up what other files read from headers and `config.json`; it
//! decides nothing about placement. Reading is blocking: call it off the event loop.

use std::io;
use std::path::{Path, PathBuf};

use crate::pool::Bytes;

use super::architecture::{Architecture, CacheLoad};
use super::engine_options::{EngineKind, EngineOptions};
use super::gguf::{self, Gguf};
use super::parameters::{CONFIG_TOLERANCE_PER_CENT, weights_by_config};
use super::safetensors::{self, Weights};

/// What the embedded engine's process takes on the CPU whatever the model is: program, threads, and the tables of a small
/// tokenizer.
pub const CANDLE_CPU_OVERHEAD: Bytes = Bytes(16 * Bytes::MIB);
/// What an engine takes on each GPU beside weights and cache: the CUDA context and the work space
/// of its libraries, a few hundred MiB by NVIDIA's own accounts. Measurements replace it.
pub const GPU_OVERHEAD: Bytes = Bytes(512 * Bytes::MIB);

/// Sequences that llama-server serves at once unless it is told.
const LLAMA_SEQUENCES: u64 = 4;
/// Tokens of llama.cpp's batch, which its windows hold beside.
const LLAMA_BATCH: u64 = 512;
/// Entries of a model's folder that are looked at.
const FOLDER_ENTRIES_MAX: usize = 10_000;

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
    #[error("engine_config.model_path names no local model")]
    NotLocal,
    /// A command whose model cannot be looked at.
    #[error(
        "nothing says how much memory {model} needs: {why}; set pool_config.memory_gib in its file to what one replica takes on all its GPUs together"
    )]
    NoFigure { model: String, why: String },
}

/// What the files of a model say.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFiles {
    pub weights: Weights,
    pub architecture: Architecture,
    /// The weights are not there; their size is counted from `config.json`.
    pub by_config: bool,
}

impl ModelFiles {
    /// Reads the headers of a model's folder or file: safetensors, GGUF, or `config.json` alone.
    pub fn read(path: &Path) -> Result<ModelFiles, EstimateError> {
        if is_gguf(path) {
            return ModelFiles::read_gguf(path);
        }
        let folder = if path.is_file() {
            path.parent().unwrap_or(path)
        } else {
            path
        };
        if path.is_file() || safetensors::has_weights(folder) {
            return Ok(ModelFiles {
                weights: safetensors::weights_of(path)?,
                architecture: Architecture::of_folder(folder)?,
                by_config: false,
            });
        }
        if let Some(file) = gguf_of(folder)? {
            return ModelFiles::read_gguf(&file);
        }
        let config = folder.join("config.json");
        // Weights in a form that has no header to read are there all the same.
        if !config.exists() || by_file_sizes(folder, Bytes::ZERO).is_some() {
            return Err(safetensors::no_weights(folder));
        }
        Ok(ModelFiles {
            weights: Weights {
                stored_bytes: weights_by_config(&config)?,
                ..Weights::default()
            },
            architecture: Architecture::of_config_json(&config)?,
            by_config: true,
        })
    }

    fn read_gguf(path: &Path) -> Result<ModelFiles, EstimateError> {
        let gguf = Gguf::read(path)?;
        Ok(ModelFiles {
            weights: Weights {
                stored_bytes: gguf.tensor_bytes,
                float_elements: gguf.elements,
                ..Weights::default()
            },
            architecture: Architecture::of_gguf(path, &gguf)?,
            by_config: false,
        })
    }

    /// What an administrator should hear about what was read.
    pub(super) fn guesses(&self) -> Vec<String> {
        let mut guesses = self.architecture.guesses.clone();
        if self.by_config {
            guesses.push(format!(
                "its weights are not on disk, and are counted from config.json, to about {CONFIG_TOLERANCE_PER_CENT} %"
            ));
        }
        guesses
    }

    /// Weights as the engine holds them.
    fn held_by(&self, kind: EngineKind) -> u64 {
        let stored = self.weights.stored_bytes;
        if kind.halves_wide_weights() && !self.by_config {
            stored.min(self.weights.held_in(2))
        } else {
            stored
        }
    }
}

pub(super) fn is_gguf(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// The one GGUF model of a folder. Projectors of pictures (`mmproj`) are no models.
pub(super) fn gguf_of(folder: &Path) -> Result<Option<PathBuf>, EstimateError> {
    let listing = std::fs::read_dir(folder).map_err(|source| EstimateError::Read {
        path: folder.to_owned(),
        source,
    })?;
    let mut models: Vec<PathBuf> = listing
        .take(FOLDER_ENTRIES_MAX)
        .filter_map(Result::ok)
        .map(|file| file.path())
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            let is_first = name
                .and_then(gguf::part_name)
                .is_none_or(|(_, part, _)| part == 1);
            is_gguf(path) && is_first && name.is_some_and(|name| !name.contains("mmproj"))
        })
        .collect();
    models.sort();
    match models.as_slice() {
        [] => Ok(None),
        [only] => Ok(Some(only.clone())),
        several => Err(EstimateError::Broken {
            path: folder.to_owned(),
            problem: format!(
                "the folder holds {} GGUF models; name the file in engine_config.model_path",
                several.len()
            ),
        }),
    }
}

/// What a command needs on each device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommandNeed {
    /// With the cache of as many sequences as requests are given to it.
    pub wanted: Bytes,
    /// With the cache of one sequence; with less it does not start.
    pub least: Bytes,
}

/// The need of one replica of a command on each of its devices: weights as stored, a cache for
/// `sequences` where its options do not say another number, and the program's own overhead.
pub(super) fn command(
    options: &EngineOptions,
    files: &ModelFiles,
    context: Option<u32>,
    sequences: u32,
    devices: u32,
) -> Result<CommandNeed, EstimateError> {
    let architecture = &files.architecture;
    let asked = context.map(u64::from);
    let weights = Bytes(
        files
            .held_by(options.kind)
            .div_ceil(u64::from(devices.max(1))),
    );
    let fixed = weights + options.kind.overhead_per_device(devices);
    if let Some(cache) = options.cache {
        let wanted = fixed + cache;
        return Ok(CommandNeed {
            wanted,
            least: wanted,
        });
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
        // Its context is that of all sequences together, and it does not know the file's figure
        // unless the command hands it over.
        let tokens = architecture.tokens(options.context.or(architecture.context).or(asked))?;
        let sequences = options.sequences.unwrap_or(LLAMA_SEQUENCES);
        let wanted = fixed
            + cache(CacheLoad {
                tokens,
                window_slack: LLAMA_BATCH,
                ..CacheLoad::even(tokens, sequences)
            });
        return Ok(CommandNeed {
            wanted,
            least: wanted,
        });
    }
    let tokens = architecture.tokens(options.context.or(asked))?;
    let sequences = u64::from(sequences).min(options.sequences.unwrap_or(u64::MAX));
    Ok(CommandNeed {
        wanted: fixed + cache(CacheLoad::even(tokens, sequences)),
        least: fixed + cache(CacheLoad::even(tokens, 1)),
    })
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

/// The overhead of a command on all its devices together.
pub(super) fn command_overhead(kind: EngineKind, devices: u32) -> Bytes {
    times(kind.overhead_per_device(devices), devices)
}

pub(super) fn times(bytes: Bytes, count: u32) -> Bytes {
    Bytes(bytes.0.saturating_mul(u64::from(count)))
}

/// The part of one device, rounded up.
pub(super) fn share(total: Bytes, devices: u32) -> Bytes {
    Bytes(total.0.div_ceil(u64::from(devices.max(1))))
}
