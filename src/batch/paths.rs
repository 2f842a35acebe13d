//! Names of the files of a batch, and private files under them.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

pub const DATA: &str = "jsonl";
pub const INDEX: &str = "index";
pub const OUTPUT: &str = "output.jsonl";
pub const ERRORS: &str = "errors.jsonl";
/// Suffix of a file that is still being written.
pub const PART: &str = "part";

const ID_BYTES_MAX: usize = 128;

/// Returns the path of a file of this id. Refuses ids that could leave the folder.
pub fn path_of(dir: &Path, id: &str, suffix: &str) -> io::Result<PathBuf> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if id.is_empty() || id.len() > ID_BYTES_MAX || !id.bytes().all(is_plain) {
        let message = format!(
            "the id {id:?} must have 1 to {ID_BYTES_MAX} letters, digits, hyphens and underscores"
        );
        return Err(io::Error::new(ErrorKind::InvalidInput, message));
    }
    Ok(dir.join(format!("{id}.{suffix}")))
}

/// Appends the suffix of unfinished files.
pub fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(PART);
    PathBuf::from(name)
}

/// Creates a file with mode 0600. Refuses an existing file.
pub fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(path).map_err(|error| named(path, error))
}

/// Opens a file for reading and writing, and creates it with mode 0600 if it is missing.
pub fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true);
    options.truncate(false).mode(0o600);
    options.open(path).map_err(|error| named(path, error))
}

pub fn open_to_read(path: &Path) -> io::Result<File> {
    File::open(path).map_err(|error| named(path, error))
}

/// Makes new and renamed files of the folder durable.
pub fn sync_folder(dir: &Path) -> io::Result<()> {
    File::open(dir)
        .and_then(|folder| folder.sync_all())
        .map_err(|error| named(dir, error))
}

/// Adds the path to an error of the system, and keeps its kind.
pub fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

pub fn damaged(path: &Path, problem: impl std::fmt::Display) -> io::Error {
    io::Error::new(
        ErrorKind::InvalidData,
        format!("{}: {problem}", path.display()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_cannot_leave_the_folder() {
        let dir = Path::new("/data");
        for id in ["", "..", "a/b", "a.b", "a\0", &"x".repeat(129)] {
            let refused = path_of(dir, id, DATA).expect_err("refused");
            assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{id:?}");
        }
        let path = path_of(dir, "file-7_a", DATA).expect("a path");
        assert_eq!(path, Path::new("/data/file-7_a.jsonl"));
        assert_eq!(part_of(&path), Path::new("/data/file-7_a.jsonl.part"));
    }
}
