//! Texts for the end of a job, shared by several kinds of cluster.

use std::fmt::Display;
use std::time::Duration;

/// Part of the reasons of requests that wait in vain.
pub(super) const NEVER_STARTS: &str = "so it never starts";
/// Parts of the reasons of requests at a limit of the account.
pub(super) const LIMITS: [&str; 3] = [" has reached ", " has as many ", " has as much "];
/// Parts of the reasons of requests that the cluster has not decided about, or whose machine it starts.
pub(super) const NOT_CONSIDERED: [&str; 3] = [
    "has not considered it yet",
    "starts the machine",
    "has not found a node for it yet",
];
pub(super) const NO_AUTOSCALER: &str = "it has no autoscaler";
pub(super) const RELEASED: &str = "its node was released or ended on its own";

/// Suffix of a reason: the machine, if it is known.
pub(super) fn place(host: &str) -> String {
    match host {
        "" => String::new(),
        host => format!(" on {host}"),
    }
}

/// Suffix of a reason: the last line of the node's output.
pub(super) fn log_end(line: &str) -> String {
    format!("; its log ends with: {line}")
}

pub(super) fn time_is_over(limit: Option<Duration>) -> String {
    match limit {
        Some(limit) => format!("its time limit of {} min was over", limit.as_secs() / 60),
        None => "its time limit was over".to_owned(),
    }
}

/// `section` is the configuration section with the lines that a site adds to its scripts.
pub(super) fn no_program(place: &str, section: &str) -> String {
    format!(
        "its script found no program{place} (status 127); correct cluster.program, or add its folder to PATH in {section}.setup"
    )
}

pub(super) fn cannot_run(place: &str) -> String {
    format!("its script could not run a program{place} (status 126)")
}

pub(super) fn failed(status: impl Display, place: &str) -> String {
    format!("it failed with status {status}{place}")
}
