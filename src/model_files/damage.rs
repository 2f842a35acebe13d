//! Finds damaged and missing model files, as far as headers and sizes show. Reports every problem; callers decide whether an engine
//! needs the file.

use std::path::Path;

use crate::config_json::Keys;
use crate::error::FileError;
use crate::folder::{gguf_of, is_gguf};
use crate::gguf::Gguf;
use crate::safetensors;

/// Maximum entries of a folder to inspect.
const ENTRIES_MAX: usize = 10_000;
/// Small description files that engines read.
const DESCRIPTIONS: [&str; 3] = [
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
];

/// Problems in a model's folder or file. An unknown format is not a problem.
pub fn damage(path: &Path) -> Vec<FileError> {
    let mut found = if path.is_file() {
        of_file(path)
    } else {
        of_folder(path)
    };
    found.retain(|error| !matches!(error, FileError::Unknown { .. }));
    found
}

fn of_file(path: &Path) -> Vec<FileError> {
    let is_safetensors = path
        .extension()
        .is_some_and(|extension| extension == "safetensors");
    let read = if is_safetensors {
        safetensors::weights_of(path).err()
    } else if is_gguf(path) {
        Gguf::read(path).err()
    } else {
        empty(path)
    };
    read.into_iter().collect()
}

fn of_folder(folder: &Path) -> Vec<FileError> {
    let mut found = safetensors::problems(folder);
    match gguf_of(folder) {
        Ok(Some(file)) => found.extend(Gguf::read(&file).err()),
        Ok(None) => {}
        // If there are several, the engine chooses.
        Err(FileError::Broken { .. } | FileError::Unknown { .. }) => {}
        Err(
            error
            @ (FileError::Read { .. } | FileError::Damaged { .. } | FileError::StandIn { .. }),
        ) => found.push(error),
    }
    let descriptions = DESCRIPTIONS.iter().map(|name| folder.join(name));
    let descriptions = descriptions.filter(|file| file.exists());
    found.extend(descriptions.filter_map(|file| Keys::read(&file).err()));
    let listing = std::fs::read_dir(folder).into_iter().flatten();
    let files = listing
        .take(ENTRIES_MAX)
        .filter_map(|file| Some(file.ok()?.path()));
    let is_other = |path: &Path| {
        let other = ["bin", "pt", "pth"];
        path.extension()
            .is_some_and(|extension| other.iter().any(|known| extension == *known))
    };
    found.extend(
        files
            .filter(|path| is_other(path))
            .filter_map(|path| empty(&path)),
    );
    found
}

/// Weights without a readable header must at least not be empty.
fn empty(path: &Path) -> Option<FileError> {
    let length = std::fs::metadata(path).ok()?.len();
    (length == 0).then(|| FileError::Broken {
        path: path.to_owned(),
        problem: "it is empty (0 bytes); download it again".to_owned(),
    })
}
