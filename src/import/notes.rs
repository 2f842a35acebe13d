//! Findings of a translation: warnings, and models that are left out, each with key and line.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use config::positions::Positions;

/// One remark about a key of the file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    pub origin: String,
    pub line: Option<u64>,
    /// The path of the key, such as `models.qwen.cmdStop`.
    pub key: String,
    pub message: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.origin)?;
        if let Some(line) = self.line {
            write!(f, "line {line}: ")?;
        }
        write!(f, "{}: {}", self.key, self.message)
    }
}

/// A problem with one key, whose line is not looked up yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub key: String,
    pub message: String,
}

impl Problem {
    pub fn at(key: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem {
            key: key.into(),
            message: message.into(),
        }
    }
}

/// Collects the notes on one file.
#[derive(Debug, Default)]
pub struct Notes {
    origin: String,
    positions: Positions,
    written: BTreeSet<(String, String)>,
    pub warnings: Vec<Note>,
    pub left_out: Vec<Note>,
}

impl Notes {
    pub fn of(path: &Path, text: &str) -> Notes {
        Notes {
            origin: path.display().to_string(),
            positions: Positions::of(text),
            ..Notes::default()
        }
    }

    /// Says it once, however often it is found.
    pub fn warn(&mut self, key: &str, message: impl Into<String>) {
        let message = message.into();
        if self.written.insert((key.to_owned(), message.clone())) {
            let note = self.note(Problem::at(key, message));
            self.warnings.push(note);
        }
    }

    /// In the order of the file.
    pub fn sort(&mut self) {
        self.warnings.sort_by_key(|note| note.line);
        self.left_out.sort_by_key(|note| note.line);
    }

    pub fn leave_out(&mut self, problem: Problem) {
        let note = self.note(problem);
        self.left_out.push(note);
    }

    pub fn note(&self, problem: Problem) -> Note {
        Note {
            origin: self.origin.clone(),
            line: self.positions.line(&problem.key),
            key: problem.key,
            message: problem.message,
        }
    }
}
