//! Checks the size, rank and base model of an adapter's files before an engine loads them.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::adapter_lookups::{AdapterError, AdapterFound};
use catalog::{AdapterConfig, AdapterFiles, AdapterPlace, DynamicAdapters, Entry, FileError};
use pool::{Bytes, FilesFingerprint};
use rustix::process::geteuid;
use source::ADAPTER_FILES_MAX;

/// Looks for the adapter `name` in a local folder. Returns `None` if it does not exist. Blocking.
pub(super) fn look_in_folder(
    entry: &Entry,
    name: &str,
) -> Result<Option<AdapterFound>, AdapterError> {
    let (Some(dynamic), Some(id)) = (&entry.dynamic_adapters, entry.adapter_id(name)) else {
        return Ok(None);
    };
    let AdapterPlace::Folder(root) = &dynamic.place else {
        return Ok(None);
    };
    let mut folders = [root.join(name), root.join(id)].into_iter();
    let Some(folder) = folders.find(|folder| folder.is_dir()) else {
        return Ok(None);
    };
    check_links(root, &folder).map_err(|problem| AdapterError::Unusable {
        name: name.to_owned(),
        problem,
    })?;
    checked(dynamic, folder, (name, id)).map(Some)
}

/// Refuses links out of the adapters' folder: other accounts may be able to write there, and could link to files that only the pool
/// can read. Links owned by root or by this account are accepted as an administrator's.
fn check_links(root: &Path, folder: &Path) -> Result<(), String> {
    let unreadable = |error: std::io::Error| format!("its files: {error}");
    let inside = std::fs::canonicalize(root).map_err(unreadable)?;
    let entries = std::fs::read_dir(folder).map_err(unreadable)?;
    let entries = entries.take(ADAPTER_FILES_MAX + 1);
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    for path in std::iter::once(Ok(folder.to_owned())).chain(paths) {
        let path = path.map_err(unreadable)?;
        let found = std::fs::symlink_metadata(&path).map_err(unreadable)?;
        if !found.is_symlink() || [0, geteuid().as_raw()].contains(&found.uid()) {
            continue;
        }
        let target = std::fs::canonicalize(&path).map_err(unreadable)?;
        if !target.starts_with(&inside) {
            let file = path.file_name().unwrap_or_default().display();
            return Err(format!(
                "{file} is a symbolic link out of the folder of adapters; copy the files there"
            ));
        }
    }
    Ok(())
}

/// Checks a folder that holds all files of an adapter. Blocking.
pub(crate) fn checked(
    dynamic: &DynamicAdapters,
    folder: PathBuf,
    (name, id): (&str, &str),
) -> Result<AdapterFound, AdapterError> {
    match check(dynamic, &folder) {
        Ok((mark, rank, bytes)) => Ok(AdapterFound {
            name: name.to_owned(),
            id: id.to_owned(),
            folder,
            mark,
            rank,
            bytes,
        }),
        Err(problem) => Err(AdapterError::Unusable {
            name: name.to_owned(),
            problem,
        }),
    }
}

/// Reads the description and the header of the adapter in a folder, and compares them with what the model accepts.
fn check(
    dynamic: &DynamicAdapters,
    folder: &Path,
) -> Result<(FilesFingerprint, u32, Bytes), String> {
    let (mark, bytes) = files_of(folder).map_err(|error| format!("its files: {error}"))?;
    check_size(dynamic, bytes)?;
    let files = AdapterFiles::read(folder).map_err(|error| without_folder(&error, folder))?;
    check_description(dynamic, &files.config, files.rank())?;
    Ok((mark, files.rank(), bytes))
}

/// Refuses an adapter whose files are larger than `max_adapter_gib`.
pub(super) fn check_size(dynamic: &DynamicAdapters, bytes: Bytes) -> Result<(), String> {
    if bytes > dynamic.bytes_max {
        Err(format!(
            "its files take {bytes}, and at most {} are allowed (lora_config.max_adapter_gib)",
            dynamic.bytes_max
        ))
    } else {
        Ok(())
    }
}

/// Removes the adapter's folder from an error's text, since users must not see where the pool keeps it.
pub(super) fn without_folder(error: &FileError, folder: &Path) -> String {
    let text = error.to_string();
    let folder = format!("{}/", folder.display());
    text.replace(&folder, "")
        .replace(folder.trim_end_matches('/'), "its folder")
}

/// Refuses an adapter of another base model, or of a rank above the engine's limit.
pub(super) fn check_description(
    dynamic: &DynamicAdapters,
    config: &AdapterConfig,
    rank: u32,
) -> Result<(), String> {
    let most = dynamic.room.rank;
    if rank > most {
        return Err(format!(
            "its rank is {rank}, and the engine has room for {most} (lora_config.max_lora_rank)"
        ));
    }
    match config.base.as_deref() {
        Some(base) if !dynamic.is_base(base) => Err(format!(
            "adapter_config.json says that it was trained for {}, and this model is {}; if that is the same, add the name to lora_config.base_models",
            base.escape_debug(),
            dynamic.bases.join(" or ")
        )),
        _ => Ok(()),
    }
}

/// A fingerprint of a folder's files and their total size. Reads no file.
fn files_of(folder: &Path) -> std::io::Result<(FilesFingerprint, Bytes)> {
    let mut files = Vec::new();
    for file in std::fs::read_dir(folder)? {
        let file = file?;
        let about = std::fs::metadata(file.path())?;
        if about.is_file() {
            files.push((file.file_name(), about));
        }
        if files.len() > ADAPTER_FILES_MAX {
            return Err(std::io::Error::other(format!(
                "more than {ADAPTER_FILES_MAX}"
            )));
        }
    }
    files.sort_by(|one, other| one.0.cmp(&other.0));
    let mut hasher = DefaultHasher::new();
    let mut bytes = 0_u64;
    for (name, about) in &files {
        name.hash(&mut hasher);
        (about.len(), about.mtime(), about.mtime_nsec(), about.ino()).hash(&mut hasher);
        bytes = bytes.saturating_add(about.len());
    }
    Ok((hasher.finish(), Bytes(bytes)))
}
