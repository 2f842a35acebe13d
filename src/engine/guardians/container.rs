//! The container of an engine, handled with the commands of its recipe: `run.rs` finds its main process and removes it when the
//! engine has ended, `adoption.rs` removes it after a restart. Its processes are not our descendants, and they outlive the program
//! that started them.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::log::{LogStream, ReplicaLog};

const COMMAND_MAX: Duration = Duration::from_secs(10);

/// Runs the command for at most 10 s; an empty command does nothing. Logs any problem.
pub(crate) async fn remove(command: &[String], log: &ReplicaLog) {
    if let Some(problem) = remove_silently(command).await {
        log.push(LogStream::Stderr, &problem);
    }
}

/// Like [`remove`], for an engine without a log. Returns the problem.
pub(crate) async fn remove_silently(command: &[String]) -> Option<String> {
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
    let problem = match timeout(COMMAND_MAX, ended).await {
        // `rm -f` of a container that is already gone succeeds.
        Ok(Ok(_)) => return None,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("it took more than {} s", COMMAND_MAX.as_secs()),
    };
    let line = format!("the engine's container may still be there: {command:?}: {problem}");
    tracing::error!("{line}");
    Some(line)
}

/// Pause between attempts while the container does not exist yet.
const INSPECT_EVERY: Duration = Duration::from_millis(500);

/// The host process number of the main process in the container that `clean_up` removes. Returns once it runs; pending forever
/// without a container.
pub(crate) async fn main_process(clean_up: &[String]) -> u32 {
    let [program, arguments @ .., _remove, _force, name] = clean_up else {
        return std::future::pending().await;
    };
    loop {
        let inspection = Command::new(program)
            .args(arguments)
            .args(["inspect", "-f", "{{.State.Pid}}", name])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .output();
        if let Ok(Ok(response)) = timeout(COMMAND_MAX, inspection).await
            && let Ok(pid) = String::from_utf8_lossy(&response.stdout).trim().parse()
            && pid != 0
        {
            return pid;
        }
        tokio::time::sleep(INSPECT_EVERY).await;
    }
}
