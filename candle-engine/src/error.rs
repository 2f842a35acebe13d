//! Errors that end an engine. Each is one line with the problem, its location, and the remedy. Request errors are in
//! [`crate::api_error`].

use model_files::FileError;
use std::fmt::Display;
use std::path::{Path, PathBuf};

/// The reason an engine could not start or continue. `Display` prints one line, suitable as a process's final message.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The model folder cannot be served.
    #[error("{}: {problem}; {remedy}", file.display())]
    Model {
        /// The file at fault.
        file: PathBuf,
        /// The problem with the file.
        problem: String,
        /// Advice for the operator.
        remedy: String,
    },
    /// An option is wrong.
    #[error("{name}: {problem}")]
    Option {
        /// The option's name in [`EngineOptions`](crate::EngineOptions).
        name: &'static str,
        /// The problem, with valid values.
        problem: String,
    },
    /// The engine cannot listen on the address.
    #[error(
        "cannot listen on {address}: {source}; choose another address or stop the program that uses it"
    )]
    Listen {
        /// The socket path or TCP address.
        address: String,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// The server stopped unexpectedly.
    #[error("the HTTP server stopped: {0}")]
    Serve(std::io::Error),
    /// Loading failed in a way that no check anticipates.
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

/// Joins the lines of a library's error into one.
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
    fn a_multi_line_error_is_joined_into_one_line() {
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
