//! Why a configuration cannot be used, in words that say what to do.

use std::io;
use std::path::PathBuf;

use super::problem::{PlacedProblem, listed};
use reading::ParseError;

/// Why the configuration cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read the configuration file {}: {source}; name another one with --config", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{}: {flaw}", path.display())]
    Parse { path: PathBuf, flaw: ParseError },
    #[error("the environment variable {name} cannot be used: {message}")]
    Variable { name: String, message: String },
    #[error("the environment variable {name} names no key of the configuration; {hint}")]
    UnknownVariable { name: String, hint: String },
    /// One or more problems, each with its line or variable, its key and the allowed values.
    #[error("{}", listed(problems))]
    Invalid { problems: Vec<PlacedProblem> },
}
