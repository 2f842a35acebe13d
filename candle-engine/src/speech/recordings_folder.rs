//! The folder of recordings that are too large for memory: private to this process, locked while it lives, and removed with it. At the
//! start, folders that killed engines left are removed.

use crate::error::EngineError;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs::{File, Permissions};
use std::io::{Error as IoError, Result as IoResult};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use tempfile::TempDir;

const PREFIX: &str = "model-pool-recordings-";
/// Another engine may remove a folder between its creation and its lock.
const TRIES_MAX: u32 = 8;

/// A folder with the mode 0700.
pub(super) struct RecordingsFolder {
    folder: TempDir,
    /// Shows other engines that this one lives.
    _lock: File,
}

impl RecordingsFolder {
    /// Creates a folder in `parent`, and removes the folders of engines that were killed. Blocks.
    ///
    /// # Errors
    /// If the folder cannot be created.
    pub fn create(parent: &Path) -> Result<Self, EngineError> {
        let failed = |error: IoError| {
            EngineError::load(format!(
                "the folder of recordings cannot be created in {} ({error}); set TMPDIR to a folder that this account may write",
                parent.display()
            ))
        };
        remove_abandoned(parent);
        let mut tries = 1;
        loop {
            match create_locked(parent).map_err(failed)? {
                Some(created) => return Ok(created),
                None if tries < TRIES_MAX => tries += 1,
                None => {
                    let removed = IoError::other("other engines remove it");
                    return Err(failed(removed));
                }
            }
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Creates a file without a name, which the system removes when it is closed, even by a kill. Blocks.
    ///
    /// # Errors
    /// If the system cannot create it.
    pub fn create_file(&self) -> IoResult<File> {
        let file = tempfile::tempfile_in(self.path())?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        Ok(file)
    }

    /// Bytes that are free on the folder's disk; `None` if the system does not report them. Blocks.
    pub fn free_bytes(&self) -> Option<u64> {
        let disk = rustix::fs::statvfs(self.path()).ok()?;
        Some(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

/// Creates a folder and locks it. Returns `None` if another engine has removed it before it was locked.
fn create_locked(parent: &Path) -> IoResult<Option<RecordingsFolder>> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(PREFIX);
    builder.permissions(Permissions::from_mode(0o700));
    let folder = builder.tempdir_in(parent)?;
    let Ok(lock) = open_folder(folder.path()) else {
        return Ok(None);
    };
    if let Err(error) = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        // The engine that holds the lock removes the folder.
        if error == rustix::io::Errno::WOULDBLOCK {
            return Ok(None);
        }
        tracing::debug!(%error, "the folder of recordings is on a file system without locks");
    }
    let is_there = std::fs::symlink_metadata(folder.path())
        .is_ok_and(|found| lock.metadata().is_ok_and(|own| own.ino() == found.ino()));
    Ok(is_there.then_some(RecordingsFolder {
        folder,
        _lock: lock,
    }))
}

fn open_folder(path: &Path) -> IoResult<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

/// Removes this account's folders whose engines have ended.
fn remove_abandoned(parent: &Path) {
    let Ok(entries) = std::fs::read_dir(parent) else {
        return;
    };
    let account = rustix::process::geteuid().as_raw();
    for entry in entries.flatten() {
        if !entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(PREFIX.as_bytes())
        {
            continue;
        }
        let path = entry.path();
        let Ok(folder) = open_folder(&path) else {
            continue;
        };
        let is_own = folder.metadata().is_ok_and(|found| found.uid() == account);
        let lock = FlockOperation::NonBlockingLockExclusive;
        if !is_own || rustix::fs::flock(&folder, lock).is_err() {
            continue;
        }
        match std::fs::remove_dir_all(&path) {
            Ok(()) => tracing::info!(
                folder = %path.display(),
                "removed the folder of recordings of an engine that was killed"
            ),
            Err(error) => tracing::warn!(
                folder = %path.display(),
                %error,
                "the folder of recordings of an engine that was killed cannot be removed"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn names(parent: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(parent).expect("a folder");
        let mut names: Vec<String> = entries
            .map(|entry| {
                entry
                    .expect("an entry")
                    .file_name()
                    .into_string()
                    .expect("a name")
            })
            .collect();
        names.sort();
        names
    }

    #[test]
    fn the_folder_is_private_and_its_files_have_no_names() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = RecordingsFolder::create(parent.path()).expect("created");
        let mode = std::fs::metadata(folder.path()).expect("there").mode();
        assert_eq!(mode & 0o7777, 0o700);
        let mut file = folder.create_file().expect("created");
        file.write_all(b"RIFF").expect("written");
        assert_eq!(file.metadata().expect("there").mode() & 0o077, 0);
        assert!(names(folder.path()).is_empty());
        assert!(folder.free_bytes().is_some());
        drop(folder);
        assert!(names(parent.path()).is_empty(), "it is removed");
    }

    #[test]
    fn the_folders_of_killed_engines_are_removed_and_those_of_others_are_kept() {
        let parent = tempfile::tempdir().expect("a folder");
        let living = RecordingsFolder::create(parent.path()).expect("created");
        let killed = parent.path().join(format!("{PREFIX}killed"));
        std::fs::create_dir(&killed).expect("created");
        std::fs::write(killed.join("recording"), "RIFF").expect("written");
        let (foreign, target) = (parent.path().join("foreign"), parent.path().join("target"));
        std::fs::create_dir(&foreign).expect("created");
        std::fs::create_dir(&target).expect("created");
        let link = parent.path().join(format!("{PREFIX}link"));
        std::os::unix::fs::symlink(&target, &link).expect("created");
        let file = parent.path().join(format!("{PREFIX}file"));
        std::fs::write(&file, "").expect("written");
        let next = RecordingsFolder::create(parent.path()).expect("created");
        assert!(!killed.exists());
        for kept in [living.path(), next.path(), &foreign, &target, &link, &file] {
            assert!(kept.exists(), "{}", kept.display());
        }
    }

    #[test]
    fn a_parent_that_cannot_be_written_is_named_with_the_variable_to_set() {
        let parent = tempfile::tempdir().expect("a folder");
        let missing = parent.path().join("missing");
        let error = RecordingsFolder::create(&missing).err().expect("an error");
        let message = error.to_string();
        assert!(
            message.contains("TMPDIR") && message.contains(&missing.display().to_string()),
            "{message}"
        );
    }
}
