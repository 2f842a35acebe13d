//! Small files for this account alone, such as keys and what a process must not forget: never readable by others, not even
//! for a moment, and replaced as a whole. After a power failure there is the old file or the new one.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A file that is written beside its name. Dropped before [`PrivateFile::publish`], it is removed.
#[derive(Debug)]
pub struct PrivateFile {
    target: PathBuf,
    path: PathBuf,
    is_published: bool,
}

/// Puts a file with these bytes, and mode 0600, in the place of the target, in a folder that is there. It is on the disk when
/// this returns. A target that is a symbolic link is replaced itself. Blocks.
///
/// # Errors
/// The target is as it was, unless the last step failed: bringing the folder to the disk.
pub fn replace(target: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = PrivateFile::filled(target, |file| file.write_all(bytes))?;
    file.publish().map_err(|(path, error)| {
        let _ = std::fs::remove_file(path);
        error
    })
}

impl PrivateFile {
    /// Writes the bytes with mode 0600, and creates the folder if it is missing. Blocks.
    ///
    /// # Errors
    /// Nothing is left of it.
    pub fn write(target: &Path, bytes: &[u8]) -> io::Result<PrivateFile> {
        std::fs::create_dir_all(folder_of(target))?;
        PrivateFile::filled(target, |file| file.write_all(bytes))
    }

    fn filled(
        target: &Path,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<PrivateFile> {
        let mut name = target.as_os_str().to_owned();
        name.push(format!(".new-{}", std::process::id()));
        let path = PathBuf::from(name);
        let mut opened = match create(&path) {
            // A process of the same number was killed while it wrote.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                std::fs::remove_file(&path)?;
                create(&path)?
            }
            opened => opened?,
        };
        let file = PrivateFile {
            target: target.to_owned(),
            path,
            is_published: false,
        };
        fill(&mut opened)?;
        opened.sync_all()?;
        Ok(file)
    }

    /// Gives the file its name, in the place of one that has it. Blocks.
    ///
    /// # Errors
    /// The file stays where it is, and the error says where.
    pub fn publish(mut self) -> Result<(), (PathBuf, io::Error)> {
        self.is_published = true;
        let folder = folder_of(&self.target);
        let done =
            std::fs::rename(&self.path, &self.target).and_then(|()| File::open(folder)?.sync_all());
        done.map_err(|error| (self.path.clone(), error))
    }
}

impl Drop for PrivateFile {
    fn drop(&mut self) {
        if !self.is_published {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Follows no symbolic link: another account could have put one there.
fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

fn folder_of(target: &Path) -> &Path {
    let folder = target.parent().filter(|it| !it.as_os_str().is_empty());
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
    fn a_private_file_takes_the_place_of_another_with_a_narrow_mode() {
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
    fn a_file_is_replaced_as_a_whole_in_a_folder_that_is_there() {
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
    fn on_a_full_disk_the_old_file_stays_and_nothing_else() {
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
        let beside = format!("state.new-{}", std::process::id());
        symlink(&other, &target).expect("a link");
        symlink(&other, folder.path().join(beside)).expect("a link");
        replace(&target, b"own").expect("replaced");
        assert_eq!(read(&other), "of another account");
        assert_eq!(read(&target), "own");
        let data = std::fs::symlink_metadata(&target).expect("there");
        assert!(data.is_file());
        assert_eq!(count(folder.path()), 2);
    }

    #[test]
    fn what_a_killed_process_left_is_in_no_way() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("state");
        let left = format!("state.new-{}", std::process::id());
        std::fs::write(folder.path().join(left), "half").expect("written");
        replace(&target, b"whole").expect("replaced");
        assert_eq!((read(&target).as_str(), count(folder.path())), ("whole", 1));
    }
}
