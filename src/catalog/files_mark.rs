//! A mark of the files that a model is loaded from: it changes when one of them does, is added or removed. It reads no
//! file, only what the file system says of them.

use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::entry::Entry;
use super::recipe::Recipe;

/// Files of one folder that are looked at.
const FILES_MAX: usize = 10_000;
/// Endings of what engines read of a model's folder.
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
    /// 0 where nothing of it is on this machine. Blocking: looks at the files of its folders.
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
        let ending = path.extension().and_then(|it| it.to_str());
        if ending.is_none_or(|it| !READ.contains(&it)) {
            continue;
        }
        match std::fs::metadata(&path) {
            Ok(about) if about.is_file() => files.push((path, about)),
            _ => {}
        }
    }
}
