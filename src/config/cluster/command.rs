//! The keys of `cluster.command`: custom programs that start and end nodes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::problems::Problem;
use crate::values::Length;
use pool::Span;

/// A larger number is a mistake.
pub(super) const ARGUMENTS_MAX: usize = 100;
const TIMEOUT: (Span, Span) = (Span::from_secs(1), Span::from_secs(600));

/// Programs that start and end nodes. Each reads a JSON object from standard input: docs/guides/slurm.md.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CommandSection {
    /// Requests a node and prints the id of its lease.
    pub scale_up: Vec<String>,
    /// Gives a node back.
    pub scale_down: Vec<String>,
    /// Prints all leases of this pool.
    pub status: Vec<String>,
    /// Time limit of each program, 1s to 10m.
    pub timeout: Length,
}

impl Default for CommandSection {
    fn default() -> CommandSection {
        CommandSection {
            scale_up: Vec::new(),
            scale_down: Vec::new(),
            status: Vec::new(),
            timeout: Length::from_secs(30),
        }
    }
}

/// `is_used`: true if these programs provide the nodes.
pub(crate) fn problems(commands: &CommandSection, is_used: bool) -> Vec<Problem> {
    let mut problems = Vec::new();
    let all = [
        ("scale_up", &commands.scale_up),
        ("scale_down", &commands.scale_down),
        ("status", &commands.status),
    ];
    for (key, command) in all {
        let key = format!("cluster.command.{key}");
        if is_used && command.is_empty() {
            let message = "is empty; write the program and its arguments, such as [/opt/pool/scale-up, --queue, gpu]";
            problems.push(Problem::new(key.clone(), message));
        }
        if command.first().is_some_and(String::is_empty) || command.len() > ARGUMENTS_MAX {
            let message = format!("has no program, or more than {ARGUMENTS_MAX} arguments");
            problems.push(Problem::new(key, message));
        }
    }
    let timeout = commands.timeout;
    if !(TIMEOUT.0..=TIMEOUT.1).contains(&timeout.0) {
        let message = format!("is {timeout}; allowed: 1s to 10m");
        problems.push(Problem::new("cluster.command.timeout", message));
    }
    problems
}
