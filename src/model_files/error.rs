//! Errors in a model's files. Each error names the file.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The header contradicts itself or the size of the file.
    #[error("{}: {problem}; download it again", path.display())]
    Damaged { path: PathBuf, problem: String },
    /// A download left something other than the file.
    #[error("{}: {problem}; {advice}", path.display())]
    StandIn {
        path: PathBuf,
        problem: String,
        advice: &'static str,
    },
    #[error("{}: {problem}", path.display())]
    Broken { path: PathBuf, problem: String },
    /// The file may be intact, but its format is unknown here.
    #[error("{}: {problem}", path.display())]
    Unknown { path: PathBuf, problem: String },
}
