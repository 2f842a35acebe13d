//! Bounded reads of small files of the kernel, in `/sys` and `/proc`, below a folder that tests replace.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Names another folder in place of `/`, with the files of a machine. For tests of kinds of devices that a machine lacks.
pub const ROOT_VARIABLE: &str = "MODEL_POOL_DEVICE_ROOT";

/// A file of sysfs has at most one page of 4 KiB; lists in `/proc` are longer.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// More than the processes, or the open files of a process, on any machine.
const ENTRIES_MAX: usize = 1 << 16;

/// The folder in which the files of the kernel are found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Root(PathBuf);

/// The reason a file gives no figure.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{path} cannot be read: {source}")]
    Unreadable { path: String, source: io::Error },

    #[error("{path} has more than {FILE_BYTES_MAX} bytes")]
    TooLarge { path: String },

    #[error("{path} is `{text}`, which is not a number")]
    NotANumber { path: String, text: String },
}

impl FileError {
    pub(super) fn kind(&self) -> Option<io::ErrorKind> {
        match self {
            FileError::Unreadable { source, .. } => Some(source.kind()),
            FileError::TooLarge { .. } | FileError::NotANumber { .. } => None,
        }
    }

    /// Returns true if the file, or the device behind it, is gone.
    pub(super) fn is_gone(&self) -> bool {
        const NO_SUCH_DEVICE: i32 = 19;
        match self {
            FileError::Unreadable { source, .. } => {
                source.kind() == io::ErrorKind::NotFound
                    || source.raw_os_error() == Some(NO_SUCH_DEVICE)
            }
            FileError::TooLarge { .. } | FileError::NotANumber { .. } => false,
        }
    }
}

impl Root {
    pub(super) fn new(folder: &Path) -> Root {
        Root(folder.to_owned())
    }

    /// The path below this root. `absolute` starts with `/`.
    pub(super) fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let absolute = absolute.as_ref();
        self.0.join(absolute.strip_prefix("/").unwrap_or(absolute))
    }

    /// The text of a file. Blocks as long as the driver takes.
    pub(super) fn text(&self, absolute: impl AsRef<Path>) -> Result<String, FileError> {
        let path = self.path(absolute);
        let shown = || path.display().to_string();
        let mut bytes = Vec::new();
        let read = File::open(&path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
        read.map_err(|source| FileError::Unreadable {
            path: shown(),
            source,
        })?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(FileError::TooLarge { path: shown() });
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// A file that holds one decimal number.
    pub(super) fn number(&self, absolute: impl AsRef<Path>) -> Result<u64, FileError> {
        let absolute = absolute.as_ref();
        let text = self.text(absolute)?;
        text.trim().parse().map_err(|_| FileError::NotANumber {
            path: self.path(absolute).display().to_string(),
            text: text.trim().chars().take(40).collect(),
        })
    }

    /// The names in a folder, sorted; none if it cannot be read.
    pub(super) fn names(&self, absolute: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(absolute)).into_iter().flatten();
        let names = entries.flatten().map(|entry| entry.file_name());
        let mut names: Vec<String> = names
            .take(ENTRIES_MAX)
            .filter_map(|name| OsString::into_string(name).ok())
            .collect();
        names.sort_unstable();
        names
    }
}

/// The value of the line `NAME VALUE` or `NAME: VALUE`.
pub(super) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?;
        let rest = rest.strip_prefix(':').unwrap_or(rest);
        rest.starts_with([' ', '\t']).then(|| rest.trim())
    })
}
