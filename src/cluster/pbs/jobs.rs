//! A job as `qstat -f` describes it. Only this pool's jobs are kept.

use super::super::LeaseState;
use super::super::batch::JobFacts;
use super::text::{Record, span};
use super::{reasons, script};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    /// Its id is `1234.server`.
    pub facts: JobFacts,
    /// PBS' letter: qstat(1B).
    pub state: String,
    /// 91: deleted, 92: finished, 93: failed (pbs_job_attributes(7B)).
    pub substate: Option<u64>,
    pub comment: String,
    /// Below 0: PBS could not start or go on with it; above 128: a signal ended it.
    pub exit: Option<i64>,
}

impl Job {
    /// `None`: it is no job of this pool.
    pub fn of(record: &Record, pool: &str) -> Option<Job> {
        if record.get("Job_Name") != script::job_name(pool) {
            return None;
        }
        let (shape, demand) = script::mark_of(record.get("Variable_List"))?;
        // `gpu07/0*16`: the host, an index, and the processors there.
        let host = record.get("exec_host").split(['/', '+']).next();
        let facts = JobFacts {
            id: record.name.clone(),
            shape,
            demand,
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
            let limit = job.facts.time_limit.map(|it| it.as_secs());
            let end = job.facts.starts_unix.zip(limit);
            job.facts.ends_unix = end.map(|(start, limit)| start.saturating_add(limit));
        } else {
            job.facts.starts_unix = record.time("estimated.start_time");
        }
        Some(job)
    }

    /// The number before the name of the server.
    pub fn number(&self) -> &str {
        number(&self.facts.id)
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.state.as_str(), "F" | "M" | "X")
    }

    /// Whether it runs, is suspended, or ends and still holds its GPUs.
    pub fn has_machine(&self) -> bool {
        matches!(self.state.as_str(), "R" | "S" | "U" | "E")
    }

    /// Whether its log says why it has ended.
    pub fn has_failed(&self) -> bool {
        self.has_ended() && self.exit.is_some_and(|it| it != 0)
    }

    /// Whether it has had all of its time.
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
