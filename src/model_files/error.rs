//! Why a file of a model cannot be used. Each error names the file.

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
    /// Its header contradicts itself or the size of the file.
    #[error("{}: {problem}; download it again", path.display())]
    Damaged { path: PathBuf, problem: String },
    /// A download has left something else in its place.
    #[error("{}: {problem}; {advice}", path.display())]
    StandIn {
        path: PathBuf,
        problem: String,
        advice: &'static str,
    },
    #[error("{}: {problem}", path.display())]
    Broken { path: PathBuf, problem: String },
    /// It may be whole, in a form that is not known here.
    #[error("{}: {problem}", path.display())]
    Unknown { path: PathBuf, problem: String },
}
