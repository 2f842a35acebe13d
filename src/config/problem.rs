//! A value that cannot be used, and where it was written: the line of the file, or the environment variable.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::positions::Positions;

/// A key whose value cannot be used. It prints as `pool.queue_limit is 0; allowed: 1 to 1000000`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub key: String,
    /// What is wrong, and what to write instead.
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

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.key, self.message)
    }
}

/// Where the values of a configuration come from.
#[derive(Clone, Debug, Default)]
pub(super) struct Origins {
    pub file: Option<PathBuf>,
    pub positions: Positions,
    /// The variables that have set keys, by `section.key`.
    pub variables: BTreeMap<String, String>,
}

impl Origins {
    /// The problem with its place.
    pub fn place(&self, problem: Problem) -> PlacedProblem {
        let place = match self.variable(&problem.key) {
            Some(name) => Place::Variable(name.to_owned()),
            None => match (&self.file, self.positions.line(&problem.key)) {
                (Some(file), Some(line)) => Place::Line(file.clone(), line),
                _ => Place::Default,
            },
        };
        PlacedProblem { place, problem }
    }

    /// A variable sets a key with everything below it.
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

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Line(PathBuf, u64),
    Variable(String),
    /// It is in no file: it follows from another value.
    Default,
}

/// A problem with the place of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedProblem {
    place: Place,
    problem: Problem,
}

impl fmt::Display for PlacedProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Line(path, line) => {
                write!(f, "{}: line {line}: {}", path.display(), self.problem)
            }
            Place::Variable(name) => {
                write!(f, "the environment variable {name}: {}", self.problem)
            }
            Place::Default => self.problem.fmt(f),
        }
    }
}

/// One problem on the same line as what it is a problem of, several below it.
pub(super) fn listed(problems: &[PlacedProblem]) -> String {
    match problems {
        [only] => format!("the configuration cannot be used: {only}"),
        several => {
            let lines: Vec<String> = several.iter().map(|it| format!("\n  {it}")).collect();
            format!(
                "the configuration cannot be used, because of {} problems:{}",
                several.len(),
                lines.concat()
            )
        }
    }
}
