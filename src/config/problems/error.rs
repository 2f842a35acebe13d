//! The errors of loading a configuration, with advice.

use std::io;
use std::path::PathBuf;

use super::problem::{PlacedProblem, listed};

/// The reason why the configuration cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {}: {source}; name another one with --config", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// All problems, each with its line or variable, its key and the allowed values.
    #[error("{}", listed(problems))]
    Invalid { problems: Vec<PlacedProblem> },
}
