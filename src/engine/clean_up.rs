//! Removes what an engine may have left outside of its processes: a container that outlives the program
//! which started it. It owns the bound on that; which command it is, the recipe said.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::log::{LogStream, ReplicaLog};

const CLEAN_UP_MAX: Duration = Duration::from_secs(10);

/// Runs the command to its end, at most 10 s; an empty one is none. What goes wrong is told in the log.
pub(super) async fn run(command: &[String], log: &ReplicaLog) {
    if let Some(problem) = run_silently(command).await {
        log.push(LogStream::Stderr, &problem);
    }
}

/// The same for an engine that has no log; gives what went wrong.
pub(super) async fn run_silently(command: &[String]) -> Option<String> {
    let [program, arguments @ ..] = command else {
        return None;
    };
    let ended = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .status();
    let problem = match timeout(CLEAN_UP_MAX, ended).await {
        // `rm -f` of a container that is gone already is no failure.
        Ok(Ok(_)) => return None,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("it took more than {} s", CLEAN_UP_MAX.as_secs()),
    };
    let line = format!("the engine's container may still be there: {command:?}: {problem}");
    tracing::error!("{line}");
    Some(line)
}
