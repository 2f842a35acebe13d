//! Errors of an upload. Faults of lines are collected, so a client can mend several of them together.

use std::fmt;
use std::io;
use std::str::Utf8Error;

use crate::line::LineError;
use crate::upload::fingerprints::Repeated;

/// An upload ends after this many bad lines.
pub const BAD_LINES_MAX: usize = 20;

/// A line that cannot be a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// From 1, in the text as uploaded, with its empty lines.
    pub line: u64,
    /// The fault, without the line's number.
    pub message: String,
    pub field: Option<&'static str>,
}

impl BadLine {
    pub(super) fn new(line: u32, error: LineError) -> BadLine {
        BadLine {
            line: u64::from(line),
            message: error.message,
            field: error.field,
        }
    }

    pub(super) fn not_utf8(line: u32, error: &Utf8Error) -> BadLine {
        BadLine {
            line: u64::from(line),
            message: format!(
                "the line is not valid UTF-8 at column {}",
                error.valid_up_to() + 1
            ),
            field: None,
        }
    }
}

impl fmt::Display for BadLine {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(text, "line {}: {}", self.line, self.message)
    }
}

#[derive(Debug)]
pub enum UploadError {
    Io(io::Error),
    /// The text, decompressed, has more bytes.
    TooLarge {
        limit_bytes: u64,
    },
    /// In the order of the file, up to [`BAD_LINES_MAX`].
    Lines(Vec<BadLine>),
    /// The file has no request.
    Empty,
    TooManyLines {
        limit: u64,
    },
    TooManyModels {
        limit: usize,
    },
    Gzip(String),
    /// An earlier call returned an error.
    Stopped,
}

impl fmt::Display for UploadError {
    fn fmt(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UploadError::Io(error) => write!(text, "the file cannot be stored: {error}"),
            UploadError::TooLarge { limit_bytes } => {
                write!(text, "the file is larger than {limit_bytes} bytes")
            }
            UploadError::Lines(lines) => {
                for (nth, line) in lines.iter().enumerate() {
                    let gap = if nth == 0 { "" } else { "\n" };
                    write!(text, "{gap}{line}")?;
                }
                Ok(())
            }
            UploadError::Empty => text.write_str("the file has no requests"),
            UploadError::TooManyLines { limit } => {
                write!(text, "the file has more than {limit} requests")
            }
            UploadError::TooManyModels { limit } => {
                write!(text, "the file has requests for more than {limit} models")
            }
            UploadError::Gzip(problem) => {
                write!(text, "the file cannot be decompressed: {problem}")
            }
            UploadError::Stopped => text.write_str("the upload has failed before"),
        }
    }
}

impl std::error::Error for UploadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            UploadError::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for UploadError {
    fn from(error: io::Error) -> UploadError {
        UploadError::Io(error)
    }
}

#[derive(Debug, Default)]
pub(super) struct BadLines(Vec<BadLine>);

impl BadLines {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// # Errors
    /// All bad lines, when there are as many as an upload reports.
    pub(super) fn add(&mut self, line: BadLine) -> Result<(), UploadError> {
        self.0.push(line);
        if self.0.len() < BAD_LINES_MAX {
            return Ok(());
        }
        Err(self.take())
    }

    /// Adds lines that repeat the id of another line, and keeps the first lines of the file.
    pub(super) fn add_repeated(&mut self, repeated: Vec<Repeated>) {
        self.0.extend(repeated.into_iter().map(|found| BadLine {
            line: u64::from(found.line),
            message: format!("`custom_id` is the same as in line {}", found.first_line),
            field: Some("custom_id"),
        }));
        self.0.sort_by_key(|bad| bad.line);
        self.0.truncate(BAD_LINES_MAX);
    }

    pub(super) fn take(&mut self) -> UploadError {
        UploadError::Lines(std::mem::take(&mut self.0))
    }
}
