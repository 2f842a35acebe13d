//! Errors of workloads. Every message names the file, the line or the column, and the valid form.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
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
        "{}: {} unknown to the pool: {names}; `--unknown add` gives each a size drawn from the seed, `--unknown skip` leaves their requests out",
        path.display(),
        models_are(*count)
    )]
    Unknown {
        path: PathBuf,
        count: usize,
        names: String,
    },
}

fn models_are(count: usize) -> String {
    match count {
        1 => "1 model is".to_owned(),
        _ => format!("{count} models are"),
    }
}
