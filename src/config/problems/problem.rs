//! An invalid value with its origin: the line of the file, or the environment variable.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::positions::Positions;
use reading::ParseError;

/// A key with an invalid value. Prints as `pool.queue_limit is 0; allowed: 1 to 1000000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub key: String,
    /// The problem, and what to write instead.
    pub message: String,
}

impl Problem {
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Problem {
        Problem {
            key: key.into(),
            message: message.into(),
        }
    }
}

impl Problem {
    /// Returns true if the problem is about this key, about a key above it, or mentions it.
    pub(crate) fn is_about(&self, key: &str) -> bool {
        key.is_empty()
            || key.starts_with(&self.key)
            || self.key.starts_with(key)
            || self.message.contains(key)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.message)
    }
}

/// The origins of a configuration's values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Origins {
    pub file: Option<PathBuf>,
    pub positions: Positions,
    /// Variables that set keys, by `section.key`.
    pub variables: BTreeMap<String, String>,
}

impl Origins {
    /// The problem with its place.
    pub fn place(&self, problem: Problem) -> PlacedProblem {
        let place = match self.variable(&problem.key) {
            Some(name) => ValueSource::Variable(name.to_owned()),
            None => match (&self.file, self.positions.line(&problem.key)) {
                (Some(file), Some(line)) => ValueSource::Line(file.clone(), line),
                _ => ValueSource::Default,
            },
        };
        PlacedProblem::Value { place, problem }
    }

    /// A variable sets a key and everything below it.
    pub fn variable(&self, key: &str) -> Option<&str> {
        let above = |name: &str| {
            let rest = key.strip_prefix(name);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let mut set = self.variables.iter();
        set.find(|(name, _)| above(name))
            .map(|(_, variable)| variable.as_str())
    }
}

/// The source of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSource {
    Line(PathBuf, u64),
    Variable(String),
    /// Neither in a file nor in a variable: a default or a derived value.
    Default,
}

/// A problem with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacedProblem {
    /// A value that is not allowed.
    Value {
        place: ValueSource,
        problem: Problem,
    },
    /// A part of the file that cannot be parsed.
    Text { path: PathBuf, flaw: ParseError },
    /// An environment variable that cannot be parsed.
    Variable { name: String, message: String },
    /// An environment variable that matches no key.
    UnknownVariable { name: String, hint: String },
}

impl fmt::Display for PlacedProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlacedProblem::Value { place, problem } => match place {
                ValueSource::Line(path, line) => {
                    write!(f, "{}: line {line}: {problem}", path.display())
                }
                ValueSource::Variable(name) => {
                    write!(f, "the environment variable {name}: {problem}")
                }
                ValueSource::Default => problem.fmt(f),
            },
            PlacedProblem::Text { path, flaw } => write!(f, "{}: {flaw}", path.display()),
            PlacedProblem::Variable { name, message } => {
                write!(
                    f,
                    "the environment variable {name} cannot be used: {message}"
                )
            }
            PlacedProblem::UnknownVariable { name, hint } => write!(
                f,
                "the environment variable {name} names no key of the configuration; {hint}"
            ),
        }
    }
}

/// Formats one problem on the same line as the heading, or several below it.
pub(crate) fn listed(problems: &[PlacedProblem]) -> String {
    match problems {
        [only @ PlacedProblem::Value { .. }] => {
            format!("the configuration cannot be used: {only}")
        }
        [only] => only.to_string(),
        several => {
            let lines: Vec<String> = several
                .iter()
                .map(|problem| format!("\n  {problem}"))
                .collect();
            format!(
                "the configuration cannot be used; it has {} problems:{}",
                several.len(),
                lines.concat()
            )
        }
    }
}
