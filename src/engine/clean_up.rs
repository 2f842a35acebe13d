//! The container of an engine: its processes are nobody's children here, and outlive the program that started
//! them. It asks which they are and has them removed, both within a bound; which commands these are follows
//! from the recipe.

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

/// From one question to the next while the container is not there yet.
const ASK_EVERY: Duration = Duration::from_millis(500);

/// The number, on this host, of the process that leads the container which `clean_up` removes. Comes back
/// once it runs; never where there is no container.
pub(super) async fn main_process(clean_up: &[String]) -> u32 {
    let [program, words @ .., _remove, _force, name] = clean_up else {
        return std::future::pending().await;
    };
    loop {
        let asked = Command::new(program)
            .args(words)
            .args(["inspect", "-f", "{{.State.Pid}}", name])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .output();
        if let Ok(Ok(answer)) = timeout(CLEAN_UP_MAX, asked).await
            && let Ok(pid) = String::from_utf8_lossy(&answer.stdout).trim().parse()
            && pid != 0
        {
            return pid;
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}
