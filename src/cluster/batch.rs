//! What Slurm and PBS have in common: batch systems whose client programs submit a script as a job.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::ends;
use super::program::{Ended, one_line};
use super::{ClusterError, LeaseState};

const LOG_TAIL_BYTES: u64 = 4 << 10;

/// A client program: in this folder, or on the PATH.
pub(super) fn program(folder: Option<&Path>, name: &str) -> PathBuf {
    folder.map_or_else(|| PathBuf::from(name), |folder| folder.join(name))
}

/// An error of the program that submits: if it took too long, the job may exist.
pub(super) fn not_submitted(error: ClusterError) -> ClusterError {
    match error {
        ClusterError::Timeout {
            program,
            after,
            key,
            ..
        } => ClusterError::Timeout {
            program,
            after,
            note: "; the job may have been submitted, which `model-pool cluster status` shows",
            key,
        },
        error => error,
    }
}

/// The program that submits has ended well, and has printed something else than the id of a job.
pub(super) fn no_job_id(program: &str, output: &str) -> ClusterError {
    ClusterError::Output {
        program: program.to_owned(),
        message: format!(
            "it printed `{}` and no job id; the job may have been submitted, which `model-pool cluster status` shows",
            one_line(output)
        ),
    }
}

/// Why a program has ended with another status than 0.
pub(super) fn failure(
    program: &str,
    ended: &Ended,
    is_unreachable: fn(&str) -> bool,
    advice: &[(&str, &str)],
) -> ClusterError {
    let message = ended.reason();
    let program = program.to_owned();
    if is_unreachable(&message) {
        return ClusterError::Unreachable { program, message };
    }
    if ended.status.code().is_none() {
        // It may have done its work before that, such as to submit a job.
        let message = format!("a signal ended it: {message}");
        return ClusterError::Output { program, message };
    }
    ClusterError::Refused {
        program,
        advice: advice_for(&message, advice),
        message,
    }
}

/// The advice of the first part that the message has, with the separator before it; empty if the message says it all.
pub(super) fn advice_for(message: &str, advice: &[(&str, &str)]) -> String {
    let found = advice.iter().find(|(part, _)| message.contains(part));
    found.map_or_else(String::new, |(_, advice)| format!("; {advice}"))
}

/// The last line of a job's log that the batch system has not written itself, if this machine sees the file.
pub(super) fn last_line(path: &Path, is_foreign: fn(&str) -> bool) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    let start = length.saturating_sub(LOG_TAIL_BYTES);
    file.seek(SeekFrom::Start(start)).ok()?;
    let mut tail = Vec::new();
    file.take(LOG_TAIL_BYTES).read_to_end(&mut tail).ok()?;
    let tail = String::from_utf8_lossy(&tail);
    let mut lines = tail.lines().rev().map(one_line);
    lines.find(|line| !line.is_empty() && !is_foreign(line))
}

/// Adds the end of its log to why a job has ended.
pub(super) fn add_log_end(state: &mut LeaseState, line: Option<String>) {
    if let LeaseState::Ended { why } = state
        && let Some(line) = line
    {
        why.push_str(&ends::log_end(&line));
    }
}

pub(super) fn now_unix() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or(Duration::ZERO).as_secs()
}
