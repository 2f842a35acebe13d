//! A job as `qstat -f` describes it. Only this pool's jobs are kept.

use super::super::LeaseState;
use super::super::batch::JobFacts;
use super::text::{Record, span};
use super::{reasons, script};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    /// Its id is `1234.server`.
    pub facts: JobFacts,
    /// PBS' letter for the state: qstat(1B).
    pub state: String,
    /// 91: deleted, 92: finished, 93: failed (pbs_job_attributes(7B)).
    pub substate: Option<u64>,
    pub comment: String,
    /// Negative: PBS could not start or continue the job. Above 128: a signal ended it.
    pub exit: Option<i64>,
}

impl Job {
    /// Returns `None` if the record is not a job of this pool.
    pub fn from_record(record: &Record, pool: &str) -> Option<Job> {
        if record.get("Job_Name") != script::job_name(pool) {
            return None;
        }
        let (shape, demand, owner) = script::mark_of(record.get("Variable_List"))?;
        // `gpu07/0*16` has the host, an index, and the processors there.
        let host = record.get("exec_host").split(['/', '+']).next();
        let facts = JobFacts {
            id: record.name.clone(),
            shape,
            demand,
            set: None,
            owner,
            host: host.unwrap_or_default().to_owned(),
            time_limit: span(record.get("Resource_List.walltime")),
            starts_unix: record.time("stime"),
            ends_unix: None,
        };
        let mut job = Job {
            facts,
            state: record.get("job_state").to_owned(),
            substate: record.number("substate"),
            comment: record.get("comment").to_owned(),
            exit: record.number("Exit_status"),
        };
        if job.has_ended() {
            job.facts.ends_unix = record.time("mtime");
        } else if job.has_machine() {
            let limit = job.facts.time_limit.map(|limit| limit.as_secs());
            let end = job.facts.starts_unix.zip(limit);
            job.facts.ends_unix = end.map(|(start, limit)| start.saturating_add(limit));
        } else {
            job.facts.starts_unix = record.time("estimated.start_time");
        }
        Some(job)
    }

    /// The number before the server's name.
    pub fn number(&self) -> &str {
        number(&self.facts.id)
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.state.as_str(), "F" | "M" | "X")
    }

    /// Returns true if the job runs, is suspended, or is exiting and still holds its GPUs.
    pub fn has_machine(&self) -> bool {
        matches!(self.state.as_str(), "R" | "S" | "U" | "E")
    }

    /// Returns true if the reason for the job's end is in its log.
    pub fn has_failed(&self) -> bool {
        self.has_ended() && self.exit.is_some_and(|status| status != 0)
    }

    /// Returns true if the job has used up its time limit.
    pub fn is_out_of_time(&self) -> bool {
        let ran = self.facts.starts_unix.zip(self.facts.ends_unix);
        let ran = ran.map(|(start, end)| end.saturating_sub(start));
        ran.zip(self.facts.time_limit)
            .is_some_and(|(ran, limit)| ran >= limit.as_secs())
    }

    pub fn lease_state(&self) -> LeaseState {
        if self.has_ended() {
            return LeaseState::Ended {
                why: reasons::ended(self),
            };
        }
        if self.has_machine() {
            let host = self.facts.host.clone();
            return LeaseState::Running { host };
        }
        let reason = reasons::pending(&self.state, &self.comment);
        LeaseState::Pending { reason }
    }
}

pub(super) fn number(id: &str) -> &str {
    id.split('.').next().unwrap_or_default()
}
