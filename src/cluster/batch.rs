//! Common parts of Slurm and PBS, batch systems whose client programs submit a script as a job.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::end_texts;
use super::program::{Call, ProgramResult, one_line, run};
use super::{ClusterError, LeaseId, LeaseSet, LeaseState, NodeLease};

const LOG_TAIL_BYTES: u64 = 4 << 10;
/// Prefix of the names of jobs and of their logs.
pub(super) const PREFIX: &str = "model-pool";

/// The path of a client program in this folder, or its name, to be found on the PATH.
pub(super) fn program(folder: Option<&Path>, name: &str) -> PathBuf {
    folder.map_or_else(|| PathBuf::from(name), |folder| folder.join(name))
}

/// The properties of a job, except its state, that both batch systems report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JobFacts {
    pub id: String,
    pub shape: String,
    /// The number of the pool's request, if the job has one.
    pub demand: Option<u64>,
    /// The nodes of the job, if it has several for the pool's requests.
    pub set: Option<LeaseSet>,
    /// The pool that made the request.
    pub owner: Option<String>,
    pub host: String,
    pub time_limit: Option<Duration>,
    pub starts_unix: Option<u64>,
    pub ends_unix: Option<u64>,
}

impl JobFacts {
    /// `node` is the name with which the job's node joins. Returns `None` if the job's id is not valid.
    pub fn lease(self, node: String, state: LeaseState) -> Option<NodeLease> {
        Some(NodeLease {
            id: LeaseId::parse(&self.id).ok()?,
            node,
            shape: self.shape,
            demand: self.demand,
            owner: self.owner,
            set: self.set,
            state,
            time_limit: self.time_limit,
            starts_unix: self.starts_unix,
            ends_unix: self.ends_unix,
        })
    }
}

/// The error messages of a batch system's programs.
pub(super) struct Errors {
    /// Parts of the messages that mean that the batch system does not respond.
    pub unreachable: &'static [&'static str],
    /// Pairs of a part of a message and the advice for it.
    pub advice: &'static [(&'static str, &'static str)],
}

impl Errors {
    pub fn is_unreachable(&self, message: &str) -> bool {
        has_any(message, self.unreachable)
    }

    /// The error for a program that ended with a status other than 0.
    pub fn failure(&self, program: &str, ended: &ProgramResult) -> ClusterError {
        let message = ended.reason();
        let program = program.to_owned();
        if self.is_unreachable(&message) {
            return ClusterError::Unreachable { program, message };
        }
        if ended.status.code().is_none() {
            // The program may have done its work before, such as submitting a job.
            let message = format!("a signal ended it: {message}");
            return ClusterError::Output { program, message };
        }
        ClusterError::Refused {
            program,
            advice: self.advice_for(&message),
            message,
        }
    }

    /// The advice for the first known part of the message, with a separator in front. Empty for unknown messages.
    pub fn advice_for(&self, message: &str) -> String {
        let found = self.advice.iter().find(|(part, _)| message.contains(part));
        found.map_or_else(String::new, |(_, advice)| format!("; {advice}"))
    }

    /// Checks the result of a program that changes nothing. Some programs exit with 0 even if the batch system did not respond.
    pub fn checked(
        &self,
        program: &str,
        ended: ProgramResult,
    ) -> Result<ProgramResult, ClusterError> {
        if ended.status.success() && !self.is_unreachable(&ended.message) {
            Ok(ended)
        } else {
            Err(self.failure(program, &ended))
        }
    }

    /// Calls the program that submits a job. If the call times out, the job may exist.
    pub async fn submit(&self, call: Call<'_>) -> Result<ProgramResult, ClusterError> {
        let program = call.name;
        let ended = run(call).await.map_err(not_submitted)?;
        if ended.status.success() {
            Ok(ended)
        } else {
            Err(self.failure(program, &ended))
        }
    }
}

fn not_submitted(error: ClusterError) -> ClusterError {
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

/// The job id in the output of a submitting program. `number` is the part of the id that must consist of digits.
pub(super) fn submitted(
    program: &str,
    ended: &ProgramResult,
    id: &str,
    number: &str,
) -> Result<LeaseId, ClusterError> {
    let is_number = !number.is_empty() && number.chars().all(|digit| digit.is_ascii_digit());
    let id = LeaseId::parse(id).ok().filter(|_| is_number);
    id.ok_or_else(|| ClusterError::Output {
        program: program.to_owned(),
        message: format!(
            "it printed `{}` and no job id; the job may have been submitted, which `model-pool cluster status` shows",
            one_line(&ended.stdout)
        ),
    })
}

pub(super) fn has_any(text: &str, parts: &[&str]) -> bool {
    parts.iter().any(|part| text.contains(part))
}

/// Returns true if the name is `prefix`, a number, and for a node of a set its rank.
pub(super) fn is_numbered(name: &str, prefix: &str) -> bool {
    let numbers = name.strip_prefix(prefix).unwrap_or_default();
    let mut numbers = numbers.splitn(2, '-');
    numbers.all(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The file name for a job's output. `id` may be the batch system's placeholder for the id.
pub(super) fn log_name(id: &str) -> String {
    format!("{PREFIX}-{id}.log")
}

/// The last line of a job's log that was not written by the batch system, if this machine can read the file.
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

/// Appends the end of the job's log to the reason for its end.
pub(super) fn add_log_end(lease: &mut NodeLease, line: Option<String>) {
    if let LeaseState::Ended { why } = &mut lease.state
        && let Some(line) = line
    {
        why.push_str(&end_texts::log_end(&line));
    }
}

pub(super) fn now_unix() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or(Duration::ZERO).as_secs()
}
