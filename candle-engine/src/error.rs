//! The errors that end an engine: each is one line that says what is wrong, where, and what to do. Errors of a request
//! are in [`crate::api_error`].

use model_files::FileError;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// Why an engine could not start or go on. `Display` is one line, fit to be a process's last words.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The model folder cannot be served.
    #[error("{}: {problem}; {remedy}", file.display())]
    Model {
        /// The file at fault.
        file: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What the operator can do.
        remedy: String,
    },
    /// An option is wrong.
    #[error("{name}: {problem}")]
    Option {
        /// The option's name in [`EngineOptions`](crate::EngineOptions).
        name: &'static str,
        /// What is wrong with it, and what would be right.
        problem: String,
    },
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; choose another address or stop what uses it")]
    Listen {
        /// The socket path or TCP address.
        address: String,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The server stopped by itself.
    #[error("the HTTP server stopped: {0}")]
    Serve(std::io::Error),
    /// Loading ended in a way that no check foresaw.
    #[error("loading failed: {0}")]
    Load(String),
}

impl From<FileError> for EngineError {
    fn from(error: FileError) -> Self {
        match error {
            FileError::Read { path, source } => Self::model(
                path,
                format!("it cannot be read ({source})"),
                "download the model completely, and make its files readable for this user",
            ),
            FileError::Damaged { path, problem } => Self::model(
                path,
                problem,
                "the file is damaged or incomplete: download it again",
            ),
            FileError::StandIn {
                path,
                problem,
                advice,
            } => Self::model(path, problem, advice),
            FileError::Broken { path, problem } => Self::model(
                path,
                problem,
                "download the model's files completely, or serve another model",
            ),
            FileError::Unknown { path, problem } => Self::model(
                path,
                problem,
                "serve another file of the model, or its safetensors",
            ),
        }
    }
}

impl EngineError {
    pub(crate) fn model(
        file: impl AsRef<Path>,
        problem: impl Display,
        remedy: impl Display,
    ) -> Self {
        Self::Model {
            file: file.as_ref().to_owned(),
            problem: one_line(problem),
            remedy: one_line(remedy),
        }
    }

    pub(crate) fn option(name: &'static str, problem: impl Display) -> Self {
        Self::Option {
            name,
            problem: one_line(problem),
        }
    }

    pub(crate) fn load(problem: impl Display) -> Self {
        Self::Load(one_line(problem))
    }
}

/// Libraries write errors over several lines; last words are one.
pub(crate) fn one_line(text: impl Display) -> String {
    text.to_string()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_many_lines_becomes_one() {
        let error = EngineError::model(
            "model/config.json",
            "expected a comma\n   at line 3",
            "repair it",
        );
        assert_eq!(
            error.to_string(),
            "model/config.json: expected a comma at line 3; repair it"
        );
    }
}
