//! Jobs as `GET /api/jobs/` lists them. Keeps only this pool's jobs; other jobs may have any form.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;

use super::super::LeaseState;
use super::reasons;
use super::submission::{cancelled_by, demand_of, key_of};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub id: String,
    /// The last part of the id.
    pub key: String,
    pub shape: String,
    pub demand: Option<u64>,
    /// The pool that made the request.
    pub owner: Option<String>,
    /// Ray's status: PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED.
    pub status: String,
    pub message: String,
    /// Ray's name of the error, in versions that report it.
    pub error_type: String,
    pub entrypoint: String,
    /// The address of its machine.
    pub host: String,
    /// Ray's id of the node.
    pub node_id: String,
    pub exit: Option<i64>,
    pub time_limit: Option<Duration>,
    pub ended_unix: Option<u64>,
    /// Another job was submitted to end this one.
    pub is_cancelled: bool,
}

/// This pool's leases, and the ids of jobs that ended others.
pub(super) struct Jobs {
    pub leases: Vec<Job>,
    pub cancels: Vec<(String, Option<u64>)>,
}

impl Job {
    pub fn is_pending(&self) -> bool {
        self.status == "PENDING"
    }

    /// Returns true if the job runs or has run, that is, if it had a node. A job in an unknown state counts as running, because it
    /// may hold resources.
    pub fn has_started(&self) -> bool {
        !self.is_pending() && (!self.has_ended() || !self.node_id.is_empty())
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.status.as_str(), "STOPPED" | "SUCCEEDED" | "FAILED")
    }

    /// Returns true if the job's machine may have caused its failure.
    pub fn has_failed(&self) -> bool {
        self.status == "FAILED" && !self.node_id.is_empty() && !self.is_cancelled
    }

    /// `waits` gives the reason for a pending job.
    pub fn lease_state(&self, waits: impl FnOnce(&Job) -> String) -> LeaseState {
        match self.status.as_str() {
            // Ray cannot stop a pending job. If the job that ends it has failed, it ends as soon as it starts.
            "PENDING" if self.is_cancelled => LeaseState::Ended {
                why: "the request was cancelled".to_owned(),
            },
            "PENDING" => LeaseState::Pending {
                reason: waits(self),
            },
            _ if self.has_ended() => LeaseState::Ended {
                why: reasons::ended(self),
            },
            _ => LeaseState::Running {
                host: self.host.clone(),
            },
        }
    }
}

/// # Errors
/// If the value is not a list, or a job of this pool has no status.
pub(super) fn of_list(list: &Value, pool: &str) -> Result<Jobs, String> {
    let Some(list) = list.as_array() else {
        return Err("it is not a list of jobs".to_owned());
    };
    let text = |job: &Value, key: &str| job[key].as_str().unwrap_or_default().to_owned();
    let time = |job: &Value, key: &str| job[key].as_u64().filter(|ms| *ms > 0).map(|ms| ms / 1000);
    let mut jobs = Jobs {
        leases: Vec::new(),
        cancels: Vec::new(),
    };
    for job in list {
        let id = text(job, "submission_id");
        if let Some(other) = cancelled_by(&id) {
            if key_of(other, pool).is_some() {
                jobs.cancels.push((id.clone(), time(job, "end_time")));
            }
            continue;
        }
        let Some(key) = key_of(&id, pool) else {
            continue;
        };
        let status = text(job, "status");
        if status.is_empty() {
            return Err(format!("the job {id} has no status"));
        }
        let metadata = &job["metadata"];
        let limit = metadata["time_limit_seconds"].as_str();
        jobs.leases.push(Job {
            key: key.to_owned(),
            shape: text(metadata, "shape"),
            demand: demand_of(key),
            owner: metadata["owner"].as_str().map(str::to_owned),
            status,
            message: text(job, "message"),
            error_type: text(job, "error_type"),
            entrypoint: text(job, "entrypoint"),
            host: host_of(&text(job, "driver_agent_http_address")),
            node_id: text(job, "driver_node_id"),
            exit: job["driver_exit_code"].as_i64(),
            time_limit: limit
                .and_then(|seconds| seconds.parse().ok())
                .map(Duration::from_secs),
            ended_unix: time(job, "end_time"),
            is_cancelled: false,
            id,
        });
    }
    let cancelled: BTreeSet<&str> = jobs
        .cancels
        .iter()
        .filter_map(|(id, _)| cancelled_by(id))
        .collect();
    for job in &mut jobs.leases {
        job.is_cancelled = cancelled.contains(job.id.as_str());
    }
    Ok(jobs)
}

/// The host of `http://10.0.0.7:52365`, where the port may be -1.
fn host_of(address: &str) -> String {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let host = rest.rsplit_once(':').map_or(rest, |(host, _)| host);
    host.trim_matches(['[', ']']).to_owned()
}
