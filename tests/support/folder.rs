//! Reads the files of a folder, for tests that create sources of weights.

use std::path::Path;

/// Returns names and contents; ignores subfolders.
pub fn files_of(folder: &Path) -> Vec<(String, Vec<u8>)> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, std::fs::read(entry.path()).unwrap())
        })
        .collect()
}
