//! Small files for this account alone, such as keys and durable state. Other accounts can never read them. Replacement is atomic:
//! after a power failure, either the old or the new file exists. Also creates the folders for such files and for sockets.

mod folder;

pub use folder::{make, make_private};

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Suffix of the temporary name next to the target.
const SUFFIX: &str = ".new";
/// Attempts to remove a file in the way: another process may remove it at the same time.
const TRIES: u32 = 5;

/// A file that is written under a temporary name next to its target, by one writer at a time. Dropping it before
/// [`PrivateFile::publish`] removes it. The next writer removes the file of a killed process.
#[derive(Debug)]
pub struct PrivateFile {
    target: PathBuf,
    path: PathBuf,
    is_published: bool,
    /// Locked: another writer must not take it for a leftover.
    opened: File,
}

/// The step that failed after the file was written.
#[derive(Debug)]
pub enum NotPublished {
    /// The file could not be renamed and stays at this path.
    Name { path: PathBuf, error: io::Error },
    /// The file has its name, but after a power failure the former file may be back.
    Durability { error: io::Error },
}

/// Replaces the target with a file of these bytes and mode 0600, in an existing folder. The file is on the disk when this returns.
/// A symbolic link is replaced itself. Blocks.
///
/// # Errors
/// The target is unchanged, unless the last step failed: syncing the folder to the disk. Also if another writer is writing the
/// target.
pub fn replace(target: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = PrivateFile::filled(target, |file| file.write_all(bytes))?;
    file.publish().map_err(|problem| match problem {
        NotPublished::Name { path, error } => {
            let _ = std::fs::remove_file(path);
            error
        }
        NotPublished::Durability { error } => error,
    })
}

impl PrivateFile {
    /// Writes the bytes with mode 0600, and creates the folder if it is missing. Blocks.
    ///
    /// # Errors
    /// No part of the file remains. Also if another writer is writing the target.
    pub fn write(target: &Path, bytes: &[u8]) -> io::Result<PrivateFile> {
        std::fs::create_dir_all(folder_of(target))?;
        PrivateFile::filled(target, |file| file.write_all(bytes))
    }

    fn filled(
        target: &Path,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<PrivateFile> {
        let mut name = target.as_os_str().to_owned();
        name.push(SUFFIX);
        let path = PathBuf::from(name);
        let mut file = PrivateFile {
            target: target.to_owned(),
            opened: create(&path)?,
            path,
            is_published: false,
        };
        fill(&mut file.opened)?;
        file.opened.sync_all()?;
        Ok(file)
    }

    /// Renames the file to its target, replacing any file there. Blocks.
    ///
    /// # Errors
    /// The step that failed, with the file's path.
    pub fn publish(self) -> Result<(), NotPublished> {
        self.publish_with(|folder| File::open(folder)?.sync_all())
    }

    fn publish_with(
        mut self,
        sync: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), NotPublished> {
        self.is_published = true;
        if let Err(error) = std::fs::rename(&self.path, &self.target) {
            let path = self.path.clone();
            return Err(NotPublished::Name { path, error });
        }
        sync(folder_of(&self.target)).map_err(|error| NotPublished::Durability { error })
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        if !self.is_published {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Creates and locks a new file. Follows no symbolic link: another account could have put one there.
fn create(path: &Path) -> io::Result<File> {
    for _ in 0..TRIES {
        let created = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        match created {
            Ok(file) if is_locked_by_another(&file) => return Err(in_use()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => make_room(path)?,
            created => return created,
        }
    }
    Err(in_use())
}

/// Removes a file left by a killed process, whose lock has ended with it.
fn make_room(path: &Path) -> io::Result<()> {
    let there = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        there => there?,
    };
    // The lock is held until the end.
    let left = if there.is_file() {
        OpenOptions::new().write(true).open(path).ok()
    } else {
        None
    };
    if let Some(left) = &left {
        if is_locked_by_another(left) {
            return Err(in_use());
        }
        // Before the lock was taken, another writer may have put its own file there.
        let (locked, now) = (left.metadata()?, std::fs::symlink_metadata(path));
        if !now.is_ok_and(|found| (found.dev(), found.ino()) == (locked.dev(), locked.ino())) {
            return Ok(());
        }
    }
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Tries to take the lock. Returns true if another writer has it. Assumes one writer on file systems without locks.
fn is_locked_by_another(file: &File) -> bool {
    matches!(file.try_lock(), Err(TryLockError::WouldBlock))
}

fn in_use() -> io::Error {
    io::Error::new(ErrorKind::WouldBlock, "another process is writing it")
}

fn folder_of(target: &Path) -> &Path {
    let folder = target
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn read(path: &Path) -> String {
        std::fs::read_to_string(path).expect("read")
    }

    fn mode(path: &Path) -> u32 {
        let data = std::fs::metadata(path).expect("there");
        data.permissions().mode() & 0o777
    }

    fn count(folder: &Path) -> usize {
        std::fs::read_dir(folder).expect("a folder").count()
    }

    #[test]
    fn a_private_file_replaces_another_with_a_private_mode() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("deep/admin.key");
        drop(PrivateFile::write(&target, b"given up").expect("written"));
        assert_eq!(count(&folder.path().join("deep")), 0);
        std::fs::write(&target, "old").expect("written");
        std::fs::set_permissions(&target, PermissionsExt::from_mode(0o644)).expect("set");
        drop(PrivateFile::write(&target, b"given up").expect("written"));
        assert_eq!(read(&target), "old");
        let file = PrivateFile::write(&target, b"new\n").expect("written");
        file.publish().expect("published");
        assert_eq!(read(&target), "new\n");
        assert_eq!(mode(&target), 0o600);
        assert_eq!(count(&folder.path().join("deep")), 1, "nothing else");
    }

    #[test]
    fn a_file_is_replaced_atomically_in_an_existing_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("state");
        for text in ["a long first text", "short"] {
            replace(&target, text.as_bytes()).expect("replaced");
            assert_eq!((read(&target).as_str(), mode(&target)), (text, 0o600));
        }
        assert_eq!(count(folder.path()), 1);
        let missing = folder.path().join("none/state");
        assert!(replace(&missing, b"x").is_err());
        assert!(!folder.path().join("none").exists());
    }

    #[test]
    fn on_a_full_disk_the_old_file_is_kept_and_no_partial_file_remains() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("state");
        replace(&target, b"old").expect("replaced");
        let failed = PrivateFile::filled(&target, |file| {
            file.write_all(b"ne")?;
            Err(ErrorKind::StorageFull.into())
        });
        let error = failed.expect_err("there is no room");
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert_eq!((read(&target).as_str(), count(folder.path())), ("old", 1));
    }

    #[test]
    fn no_symbolic_link_is_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let other = folder.path().join("other");
        std::fs::write(&other, "of another account").expect("written");
        let target = folder.path().join("state");
        symlink(&other, &target).expect("a link");
        symlink(&other, folder.path().join("state.new")).expect("a link");
        replace(&target, b"own").expect("replaced");
        assert_eq!(read(&other), "of another account");
        assert_eq!(read(&target), "own");
        let data = std::fs::symlink_metadata(&target).expect("there");
        assert!(data.is_file());
        assert_eq!(count(folder.path()), 2);
    }

    #[test]
    fn a_file_left_by_a_killed_process_is_removed_by_the_next_write() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("state");
        std::fs::write(folder.path().join("state.new"), "half").expect("written");
        replace(&target, b"whole").expect("replaced");
        assert_eq!((read(&target).as_str(), count(folder.path())), ("whole", 1));
    }

    #[test]
    fn the_second_of_two_concurrent_writers_is_refused_and_the_first_keeps_its_content() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("admin.key");
        let first = PrivateFile::write(&target, b"first").expect("written");
        for _ in 0..2 {
            let refused = PrivateFile::write(&target, b"second").expect_err("it is in use");
            assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        }
        first.publish().expect("published");
        assert_eq!((read(&target).as_str(), count(folder.path())), ("first", 1));
        replace(&target, b"third").expect("the first one is done");
        assert_eq!(read(&target), "third");
    }

    #[test]
    fn a_file_that_could_not_be_renamed_stays_under_its_temporary_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("admin.key");
        let file = PrivateFile::write(&target, b"key").expect("written");
        let failed = file.publish_with(|_| Err(ErrorKind::StorageFull.into()));
        let Err(NotPublished::Durability { error }) = failed else {
            panic!("it has its name: {failed:?}");
        };
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert_eq!((read(&target).as_str(), count(folder.path())), ("key", 1));

        let taken = folder.path().join("taken");
        std::fs::create_dir(&taken).expect("a folder");
        let file = PrivateFile::write(&taken, b"key").expect("written");
        let failed = file.publish();
        let Err(NotPublished::Name { path, .. }) = failed else {
            panic!("a folder has that name: {failed:?}");
        };
        assert_eq!(read(&path), "key");
    }
}
