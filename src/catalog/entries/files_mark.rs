//! A fingerprint of a model's files that changes when a file is changed, added or removed. Uses only file metadata, not file
//! contents.

use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::entry::Entry;
use crate::recipes::Recipe;

/// Maximum number of files inspected per folder.
const FILES_MAX: usize = 10_000;
/// Extensions of files that engines read from a model's folder.
const READ: [&str; 10] = [
    "json",
    "safetensors",
    "gguf",
    "bin",
    "pt",
    "pth",
    "model",
    "txt",
    "jinja",
    "py",
];

impl Entry {
    /// The fingerprint, or 0 if no file is on this machine. Blocking: reads the metadata of the files in its folders.
    pub fn files_mark(&self) -> u64 {
        let adapters: Vec<PathBuf> = match &self.recipe {
            Recipe::Server(server) => server
                .adapters
                .iter()
                .map(|(_, path)| path.clone())
                .collect(),
            Recipe::Candle(candle) => candle
                .adapters
                .iter()
                .map(|(_, path)| path.clone())
                .collect(),
            Recipe::Command(_) | Recipe::Remote(_) | Recipe::RayServe(_) => Vec::new(),
        };
        let mut files: Vec<(PathBuf, Metadata)> = Vec::new();
        for path in self.weights_path().into_iter().chain(adapters) {
            add(&path, &mut files);
        }
        if files.is_empty() {
            return 0;
        }
        files.sort_by(|one, other| one.0.cmp(&other.0));
        let mut hasher = DefaultHasher::new();
        for (path, about) in &files {
            path.hash(&mut hasher);
            (about.len(), about.mtime(), about.mtime_nsec(), about.ino()).hash(&mut hasher);
        }
        hasher.finish().max(1)
    }
}

fn add(path: &Path, files: &mut Vec<(PathBuf, Metadata)>) {
    let Ok(about) = std::fs::metadata(path) else {
        return;
    };
    if about.is_file() {
        files.push((path.to_owned(), about));
        return;
    }
    let listing = std::fs::read_dir(path).into_iter().flatten().flatten();
    for file in listing.take(FILES_MAX) {
        let path = file.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if ending.is_none_or(|ending| !READ.contains(&ending)) {
            continue;
        }
        match std::fs::metadata(&path) {
            Ok(about) if about.is_file() => files.push((path, about)),
            _ => {}
        }
    }
}
