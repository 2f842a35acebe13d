//! The folder of the files of batches: the sizes of results, and the removal of files that no record names.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time after which a silent upload has ended.
const UNFINISHED_FOR: Duration = Duration::from_secs(3_600);

/// The sizes of the results in this folder, by batch. A folder that cannot be read has none.
pub(super) fn result_sizes(dir: &Path) -> BTreeMap<String, u64> {
    let mut sizes = BTreeMap::new();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let kinds = [".output.jsonl", ".errors.jsonl"];
        let batch = kinds.iter().find_map(|kind| name.strip_suffix(kind));
        if let (Some(batch), Ok(found)) = (batch, entry.metadata()) {
            *sizes.entry(batch.to_owned()).or_default() += found.len();
        }
    }
    sizes
}

/// Removes old files that neither `known` nor an open batch names. A file that cannot be removed does not keep the others.
///
/// # Errors
/// The first error. A file that has vanished is not an error.
pub(super) fn remove_orphans(
    dir: &Path,
    known: &BTreeSet<String>,
    open: &BTreeSet<String>,
) -> io::Result<()> {
    let entries = std::fs::read_dir(dir)?;
    remove_orphans_of(entries.map(|entry| Ok(entry?.path())), known, open)
}

fn remove_orphans_of(
    paths: impl Iterator<Item = io::Result<PathBuf>>,
    known: &BTreeSet<String>,
    open: &BTreeSet<String>,
) -> io::Result<()> {
    let mut first = Ok(());
    for path in paths {
        match path.and_then(|path| remove_if_orphan(&path, known, open)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => first = first.and(Err(error)),
            Ok(()) | Err(_) => {}
        }
    }
    first
}

fn remove_if_orphan(
    path: &Path,
    known: &BTreeSet<String>,
    open: &BTreeSet<String>,
) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_part = name.ends_with(".part");
    let stem = name
        .strip_suffix(".jsonl")
        .or_else(|| name.strip_suffix(".index"));
    let is_named = stem.is_none_or(|stem| {
        let batch = stem.rsplit_once('.').map(|(batch, _)| batch);
        known.contains(stem) || batch.is_some_and(|batch| open.contains(batch))
    });
    if is_named && !is_part {
        return Ok(());
    }
    let age = std::fs::symlink_metadata(path)?.modified()?.elapsed();
    // Uploads of this process may be in progress; a silent client is refused after a minute.
    if age.is_ok_and(|age| age > UNFINISHED_FOR) {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
