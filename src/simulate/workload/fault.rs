//! Errors of workloads. Every message names the file, the line or the column, and what would be right.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum WorkloadFault {
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} line {line}: {problem}", path.display())]
    Line {
        path: PathBuf,
        line: u64,
        problem: String,
    },
    #[error("{}: {problem}", path.display())]
    File { path: PathBuf, problem: String },
    #[error("workload `{spec}`: {problem}")]
    Spec { spec: String, problem: String },
    #[error(
        "{}: {count} models are unknown to the pool: {names}; `--unknown add` gives each a size drawn from the seed, `--unknown skip` leaves their requests out",
        path.display()
    )]
    Unknown {
        path: PathBuf,
        count: usize,
        names: String,
    },
}
