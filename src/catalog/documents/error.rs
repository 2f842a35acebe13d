//! Errors in documents and in the catalogue, and non-fatal warnings.

use std::path::PathBuf;
use std::{fmt, io};

use reading::ParseError;

/// A non-fatal warning for administrators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The file, or a description of another source.
    pub origin: String,
    pub line: Option<u64>,
    pub key: Option<String>,
    pub message: String,
}

impl Warning {
    pub(crate) fn of_file(origin: impl fmt::Display, message: &str) -> Warning {
        Warning {
            origin: origin.to_string(),
            line: None,
            key: None,
            message: message.to_owned(),
        }
    }
}

impl Warning {
    /// The file, the line and the key.
    pub fn place(&self) -> String {
        let line = self.line.map(|line| format!(": line {line}"));
        let key = self.key.as_ref().map(|key| format!(": {key}"));
        let (line, key) = (line.unwrap_or_default(), key.unwrap_or_default());
        format!("{}{line}{key}", self.origin)
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.origin, at_line(self.line))?;
        match &self.key {
            Some(key) => write!(f, "{key}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

/// Formats `line 3: `, if the line is known.
fn at_line(line: Option<u64>) -> String {
    line.map(|line| format!("line {line}: "))
        .unwrap_or_default()
}

/// The reason why the catalogue or a document cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CatalogError {
    #[error("cannot read {}: {source}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{origin}: {flaw}")]
    Parse {
        origin: String,
        /// A key such as `pool_config.priority`; empty for the complete document.
        path: String,
        flaw: ParseError,
    },
    /// A value that is not allowed.
    #[error("{origin}: {}{field}: {problem}", at_line(*line))]
    Field {
        origin: String,
        line: Option<u64>,
        field: String,
        problem: String,
    },
    #[error(
        "the name {name} is given to two models: by {first} and by {second}; rename one of them, or remove the alias"
    )]
    Collision {
        name: String,
        first: String,
        second: String,
    },
    /// All files that cannot be used, one per line.
    #[error("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Several { errors: Vec<CatalogError> },
}

impl CatalogError {
    /// The path of the wrong value; empty for the complete document.
    pub(crate) fn path(&self) -> &str {
        match self {
            CatalogError::Parse { path, .. } => path,
            CatalogError::Field { field, .. } => field,
            CatalogError::Read { .. }
            | CatalogError::Collision { .. }
            | CatalogError::Several { .. } => "",
        }
    }
}
