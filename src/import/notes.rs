//! Notes on a translation: warnings, and models that were left out, each with key and line.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use config::positions::Positions;

/// A note on a key of the file.
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

/// A problem with a key, before its line has been looked up.
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
    pub fn from_path(path: &Path, text: &str) -> Notes {
        Notes {
            origin: path.display().to_string(),
            positions: Positions::parse(text),
            ..Notes::default()
        }
    }

    /// Adds a warning; repeated warnings are dropped.
    pub fn warn(&mut self, key: &str, message: impl Into<String>) {
        let message = message.into();
        if self.written.insert((key.to_owned(), message.clone())) {
            let note = self.note(Problem::at(key, message));
            self.warnings.push(note);
        }
    }

    /// Warns of a key that was left out. `table` has keys without a counterpart, separated by spaces, with the alternative.
    pub fn warn_without(&mut self, path: &str, key: &str, table: &[(&str, &str)], otherwise: &str) {
        let is_listed = |keys: &str| keys.split(' ').any(|known| known == key);
        match table.iter().find(|(keys, _)| is_listed(keys)) {
            Some((_, instead)) => self.warn(path, format!("has no counterpart: {instead}")),
            None => self.warn(path, otherwise),
        }
    }

    /// Sorts by position in the file.
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
