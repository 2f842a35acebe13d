//! The folder of the files of batches: the sizes of results, and the removal of files that no record names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
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

/// Removes old files that neither `known` nor an open batch names.
pub(super) fn remove_orphans(
    dir: &Path,
    known: &BTreeSet<String>,
    open: &[String],
) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_part = name.ends_with(".part");
        let stem = name
            .strip_suffix(".jsonl")
            .or_else(|| name.strip_suffix(".index"));
        let is_named = stem.is_none_or(|stem| {
            let batch = stem.rsplit_once('.').map(|(batch, _)| batch);
            known.contains(stem) || open.iter().any(|id| batch == Some(id.as_str()))
        });
        let age = entry.metadata()?.modified()?.elapsed();
        // Uploads of this process may be in progress; a silent client is refused after a minute.
        if (is_part || !is_named) && age.is_ok_and(|age| age > UNFINISHED_FOR) {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
