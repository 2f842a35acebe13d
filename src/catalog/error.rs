//! What is wrong with a document or the catalogue, and what an administrator should hear that stops nothing.

use std::path::PathBuf;
use std::{fmt, io};

use reading::ParseError;

/// Something an administrator should hear that stops nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The file, or what stands for it.
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

/// `line 3: `, if the line is known.
fn at_line(line: Option<u64>) -> String {
    line.map(|line| format!("line {line}: "))
        .unwrap_or_default()
}

/// Why the catalogue, or one document, cannot be used.
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
        /// Such as `pool_config.priority`; empty for the document.
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
    /// Every file that cannot be used, one a line.
    #[error("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Several { errors: Vec<CatalogError> },
}

impl CatalogError {
    /// The path of the value that is wrong; empty for the document.
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
