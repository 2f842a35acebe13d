//! The origin of a model in the catalogue: a model file, or a registration over the API.

use std::fmt;
use std::path::PathBuf;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    File(PathBuf),
    /// Registered over the API and kept in the store.
    Registered,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::File(path) => write!(f, "{}", path.display()),
            Source::Registered => f.write_str("registered"),
        }
    }
}
