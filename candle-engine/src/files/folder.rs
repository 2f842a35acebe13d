//! Owns what every reader of a model's folder needs: its files by their extension, and what to do about wrong ones.

use std::path::{Path, PathBuf};

/// What `config.json` has no field for.
pub(super) const GGUF_POOLING: &str = "gguf_pooling_type";

pub(super) const REMEDY: &str =
    "the weights do not belong to this description: download the model's files again";

/// Files of a folder by the end of their names, in order.
pub(super) fn files_with_extension(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    found.sort();
    found
}
