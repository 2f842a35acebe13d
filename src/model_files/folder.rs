//! Reads a model's folder or file, in any supported format: its weights and its architecture.

use std::path::{Path, PathBuf};

use crate::architecture::Architecture;
use crate::error::FileError;
use crate::gguf::{self, Gguf, TensorSize};
use crate::parameters::{CONFIG_TOLERANCE_PER_CENT, guesses_by_config, weights_by_config};
use crate::safetensors::{self, Weights};

/// Maximum entries of a model's folder to read.
const FOLDER_ENTRIES_MAX: usize = 10_000;
/// Maximum file names in an error.
const NAMES_MAX: usize = 8;

/// The contents of a model's files.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFiles {
    pub weights: Weights,
    pub architecture: Architecture,
    /// The tensors of a GGUF model; empty for other formats.
    pub tensors: Vec<TensorSize>,
    /// The weights are not on disk; their size is estimated from `config.json`.
    pub by_config: bool,
}

impl ModelFiles {
    /// Reads the headers of a model's folder or file: safetensors, GGUF, or only `config.json`.
    pub fn read(path: &Path) -> Result<ModelFiles, FileError> {
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
                tensors: Vec::new(),
                by_config: false,
            });
        }
        if let Some(file) = gguf_of(folder)? {
            return ModelFiles::read_gguf(&file);
        }
        let config = folder.join("config.json");
        // Weights in a form without a readable header are still weights.
        if !config.exists() || bytes_of_weight_files(folder).is_some() {
            return Err(safetensors::no_weights(folder));
        }
        let mut architecture = Architecture::of_config_json(&config)?;
        architecture.guesses.extend(guesses_by_config(&config)?);
        Ok(ModelFiles {
            weights: Weights {
                stored_bytes: weights_by_config(&config)?,
                ..Weights::default()
            },
            architecture,
            tensors: Vec::new(),
            by_config: true,
        })
    }

    fn read_gguf(path: &Path) -> Result<ModelFiles, FileError> {
        let gguf = Gguf::read(path)?;
        Ok(ModelFiles {
            weights: Weights {
                stored_bytes: gguf.tensor_bytes,
                float_elements: gguf.elements,
                ..Weights::default()
            },
            architecture: Architecture::of_gguf(path, &gguf)?,
            tensors: gguf.tensors,
            by_config: false,
        })
    }

    /// Assumptions that an administrator should know.
    pub fn guesses(&self) -> Vec<String> {
        let mut guesses = self.architecture.guesses.clone();
        if self.by_config {
            guesses.push(format!(
                "its weights are not on disk; their size is estimated from config.json, to within {CONFIG_TOLERANCE_PER_CENT} %"
            ));
        }
        guesses
    }
}

pub fn is_gguf(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// The only GGUF model of a folder. Image projectors (`mmproj`) do not count.
pub fn gguf_of(folder: &Path) -> Result<Option<PathBuf>, FileError> {
    let listing = std::fs::read_dir(folder).map_err(|source| FileError::Read {
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
        several => {
            let names = several.iter().filter_map(|path| path.file_name());
            let names: Vec<_> = names
                .take(NAMES_MAX)
                .map(|name| name.to_string_lossy())
                .collect();
            let more = if several.len() > NAMES_MAX {
                ", …"
            } else {
                ""
            };
            Err(FileError::Broken {
                path: folder.to_owned(),
                problem: format!(
                    "the folder contains {} GGUF models ({}{more}); use the path of one model, in a model file as engine_config.model_path",
                    several.len(),
                    names.join(", ")
                ),
            })
        }
    }
}

/// The total size of the weight files, for use when headers cannot be read. `None` if there are none.
pub fn bytes_of_weight_files(path: &Path) -> Option<u64> {
    let is_weights = |file: &Path| {
        file.extension().is_some_and(|extension| {
            ["safetensors", "gguf", "bin", "pt", "pth"]
                .iter()
                .any(|known| extension == *known)
        })
    };
    let metadata = std::fs::metadata(path).ok()?;
    if metadata.is_file() {
        return Some(metadata.len());
    }
    let sizes: u64 = std::fs::read_dir(path)
        .ok()?
        .filter_map(Result::ok)
        .filter(|file| is_weights(&file.path()))
        .filter_map(|file| std::fs::metadata(file.path()).ok())
        .map(|metadata| metadata.len())
        .sum();
    (sizes > 0).then_some(sizes)
}
