//! Jobs as Slurm's programs print them: `squeue` in JSON (two dialects: 20.11 to 22.05, and from 23.02) and as text, `sacct` as
//! text. Keeps only this pool's jobs.

use std::time::Duration;

use serde_json::Value;

use super::super::LeaseState;
use super::super::batch::JobFacts;
use super::{reasons, script};

/// No value contains it, unlike `|`, which names may contain.
pub(super) const SEPARATOR: char = '\u{1f}';
pub(super) const QUEUE_FORMAT: &str =
    "%A\u{1f}%j\u{1f}%T\u{1f}%r\u{1f}%N\u{1f}%l\u{1f}%S\u{1f}%e\u{1f}%k";
pub(super) const ACCOUNTING_FIELDS: &str =
    "JobIDRaw,JobName%200,State%60,NodeList%200,TimelimitRaw,Start,End,ExitCode";

const WAITS: &[&str] = &[
    "PENDING",
    "REQUEUED",
    "REQUEUE_HOLD",
    "REQUEUE_FED",
    "SPECIAL_EXIT",
    "RESV_DEL_HOLD",
    "CONFIGURING",
    "POWER_UP_NODE",
];
/// A job that is completing still holds its GPUs.
const RUNS: &[&str] = &[
    "COMPLETING",
    "RUNNING",
    "SUSPENDED",
    "STOPPED",
    "RESIZING",
    "SIGNALING",
    "STAGE_OUT",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub facts: JobFacts,
    /// Slurm's name of the state.
    pub state: String,
    pub reason: String,
    pub exit: Option<u64>,
}

impl Job {
    fn base(&self) -> &str {
        self.state.split([' ', '+']).next().unwrap_or_default()
    }

    pub fn has_ended(&self) -> bool {
        !WAITS.contains(&self.base()) && !RUNS.contains(&self.base())
    }

    /// Returns true if the job's machine may have caused its end.
    pub fn has_failed(&self) -> bool {
        matches!(self.base(), "FAILED" | "NODE_FAIL" | "BOOT_FAIL")
    }

    pub fn lease_state(&self) -> LeaseState {
        let (base, host) = (self.base(), &self.facts.host);
        if base == "CONFIGURING" || base == "POWER_UP_NODE" {
            let reason = format!("Slurm starts the machine {host} ({base})");
            return LeaseState::Pending { reason };
        }
        if WAITS.contains(&base) {
            let reason = reasons::pending(&self.reason);
            return LeaseState::Pending { reason };
        }
        if RUNS.contains(&base) {
            let host = host.clone();
            return LeaseState::Running { host };
        }
        let (limit, reason) = (self.facts.time_limit, &self.reason);
        LeaseState::Ended {
            why: reasons::ended(&self.state, reason, host, self.exit, limit),
        }
    }
}

/// # Errors
/// If the text is not `squeue`'s JSON, or lists errors. While slurmctld does not respond, `squeue` prints an empty list with an
/// error, and exits with 0.
pub(super) fn of_json(text: &str, pool: &str, uid: u32) -> Result<Vec<Job>, String> {
    let document: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if document["errors"]
        .as_array()
        .is_some_and(|errors| !errors.is_empty())
    {
        return Err("it names errors".to_owned());
    }
    let Some(jobs) = document["jobs"].as_array() else {
        return Err("it has no list `jobs`".to_owned());
    };
    let own = |job: &&Value| number(&job["user_id"]) == Some(u64::from(uid));
    let jobs = jobs.iter().filter(own);
    Ok(jobs.filter_map(|job| json_job(job, pool)).collect())
}

fn json_job(job: &Value, pool: &str) -> Option<Job> {
    let text = |key: &str| job[key].as_str().unwrap_or_default().to_owned();
    let shape = script::shape_of(job["name"].as_str()?, pool)?.to_owned();
    // From 23.02 a list with the state and flags such as COMPLETING.
    let state = match &job["job_state"] {
        Value::Array(states) if states.iter().any(|state| state == "COMPLETING") => {
            "COMPLETING".to_owned()
        }
        Value::Array(states) => states.first()?.as_str()?.to_owned(),
        state => state.as_str()?.to_owned(),
    };
    let time = |key: &str| number(&job[key]).filter(|seconds| *seconds > 0);
    let exit = match &job["exit_code"] {
        Value::Object(exit) => exit.get("return_code").and_then(number),
        // A wait status: the exit status is in the second byte.
        exit => number(exit).map(|waited| (waited >> 8) & 0xff),
    };
    let request = script::request_of(&text("comment"));
    let facts = JobFacts {
        id: number(&job["job_id"])?.to_string(),
        shape,
        demand: request.demand,
        set: request.set,
        owner: request.owner,
        host: text("nodes"),
        time_limit: number(&job["time_limit"])
            .filter(|minutes| *minutes < u64::from(u32::MAX))
            .map(|minutes| Duration::from_secs(minutes * 60)),
        starts_unix: time("start_time"),
        ends_unix: time("end_time"),
    };
    Some(Job {
        facts,
        state,
        reason: text("state_reason"),
        exit,
    })
}

/// A number, or from 23.02 `{"set": true, "infinite": false, "number": 5}`.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Object(wrapped) => {
            let is_set = wrapped.get("set").and_then(Value::as_bool)?;
            let is_infinite = wrapped.get("infinite").and_then(Value::as_bool)?;
            let number = wrapped.get("number").and_then(Value::as_u64)?;
            (is_set && !is_infinite).then_some(number)
        }
        value => value.as_u64(),
    }
}

/// # Errors
/// If a line of this pool has another form.
pub(super) fn of_queue_text(text: &str, pool: &str) -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let fields: Vec<&str> = line.split(SEPARATOR).collect();
        // The comment is last and optional.
        let (fields, comment) = fields.split_at(fields.len().min(8));
        let [id, name, state, reason, host, limit, starts, ends] = fields[..] else {
            let line = super::super::program::one_line(line);
            return Err(format!(
                "a line has {} fields instead of 9: {line}",
                fields.len()
            ));
        };
        let comment = comment.first().copied().unwrap_or_default();
        let Some(shape) = script::shape_of(name, pool) else {
            continue;
        };
        let request = script::request_of(comment);
        let facts = JobFacts {
            id: id.to_owned(),
            shape: shape.to_owned(),
            demand: request.demand,
            set: request.set,
            owner: request.owner,
            host: host.to_owned(),
            time_limit: time_limit(limit),
            starts_unix: seconds(starts),
            ends_unix: seconds(ends),
        };
        jobs.push(Job {
            facts,
            state: state.to_owned(),
            reason: reason.to_owned(),
            exit: None,
        });
    }
    Ok(jobs)
}

/// Skips lines of another form: accounting only adds to the list of `squeue`.
pub(super) fn of_accounting(text: &str, pool: &str) -> Vec<Job> {
    let job = |line: &str| {
        let fields: Vec<&str> = line.split(SEPARATOR).collect();
        let [id, name, state, host, minutes, starts, ends, exit] = fields[..] else {
            return None;
        };
        let host = if host == "None assigned" { "" } else { host };
        let minutes: Option<u64> = minutes.parse().ok();
        let facts = JobFacts {
            id: id.to_owned(),
            shape: script::shape_of(name, pool)?.to_owned(),
            demand: None,
            set: None,
            owner: None,
            host: host.to_owned(),
            time_limit: minutes.map(|minutes| Duration::from_secs(minutes * 60)),
            starts_unix: seconds(starts),
            ends_unix: seconds(ends),
        };
        Some(Job {
            facts,
            state: state.to_owned(),
            reason: String::new(),
            exit: exit
                .split(':')
                .next()
                .and_then(|status| status.parse().ok()),
        })
    };
    text.lines().filter_map(job).collect()
}

fn seconds(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|seconds| *seconds > 0)
}

/// `30:00`, `1:30:00` or `2-00:00:00`. Other texts mean no limit.
pub(super) fn time_limit(text: &str) -> Option<Duration> {
    let (days, clock) = match text.trim().split_once('-') {
        Some((days, clock)) => (days.parse::<u64>().ok()?, clock),
        None => (0, text.trim()),
    };
    let mut seconds = 0;
    for part in clock.split(':') {
        seconds = seconds * 60
            + part
                .parse::<u64>()
                .ok()
                .filter(|number| *number < 100_000)?;
    }
    let is_clock = clock.contains(':');
    (is_clock && days < 100_000).then(|| Duration::from_secs(days * 86_400 + seconds))
}
