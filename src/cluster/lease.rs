//! A node lease: a node that a cluster has granted or is requested to grant.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::ClusterError;
use super::end_texts::{LIMITS, NEVER_STARTS, NO_AUTOSCALER, NOT_CONSIDERED};

/// The cluster's own id of a lease, such as a job's number. Safe as a program's argument and in a file's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct LeaseId(String);

impl LeaseId {
    /// # Errors
    /// Fails if the text is empty, has more than 100 bytes, contains other characters than letters, digits, `-`, `_` and `.`, or
    /// begins with `-` or `.`.
    pub fn parse(text: &str) -> Result<LeaseId, ClusterError> {
        let allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        let is_id = (1..=100).contains(&text.len())
            && text.chars().all(allowed)
            && !text.starts_with(['-', '.']);
        if is_id {
            Ok(LeaseId(text.to_owned()))
        } else {
            Err(ClusterError::WrongId {
                id: text.chars().take(100).collect(),
            })
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum LeaseState {
    /// The request waits in the cluster's queue, for this reason.
    Pending { reason: String },
    /// The request has its machine, but no node runs there yet, for this reason.
    Starting { host: String, reason: String },
    /// The job runs on this machine. Its node may still be starting.
    Running { host: String },
    /// The lease is over.
    Ended { why: String },
}

/// The cluster's forecast for a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outlook {
    /// The cluster has not considered it, is starting its machine, or does not respond.
    #[default]
    Unknown,
    /// It waits for other jobs. The expected start is in seconds since 1970.
    Waits { starts_unix: Option<u64> },
    /// No machine comes unless the pool gives one back: a Ray without an autoscaler whose GPUs the pool holds.
    Stuck,
    /// It cannot start, such as with a time limit above the partition's, or at a limit of the account.
    Never,
    /// It has its machine.
    Starts,
}

/// A lease of several nodes, which the cluster starts together and ends together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LeaseSet {
    /// The number of the pool's request for its first node. The others follow.
    pub first: u64,
    pub nodes: u32,
}

/// A node of a lease. A lease of several nodes is listed once for each of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeLease {
    pub id: LeaseId,
    pub shape: String,
    /// The name with which its node joins the controller.
    pub node: String,
    /// The number of the pool's request; null for a person's request.
    pub demand: Option<u64>,
    /// The pool that requested it. Absent for a person's request and for clusters that do not store it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The nodes of the lease. Absent for a lease of one node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set: Option<LeaseSet>,
    #[serde(flatten)]
    pub state: LeaseState,
    #[serde(rename = "time_limit_seconds", serialize_with = "seconds")]
    pub time_limit: Option<Duration>,
    /// The job's start, or its expected start, in seconds since 1970.
    pub starts_unix: Option<u64>,
    /// The job's latest or actual end, in seconds since 1970.
    pub ends_unix: Option<u64>,
}

impl NodeLease {
    /// The latest end of a running job, in seconds since 1970, if the cluster reports it.
    pub fn ends_by(&self) -> Option<u64> {
        if !matches!(self.state, LeaseState::Running { .. }) {
            return None;
        }
        let limit = || Some(self.starts_unix?.saturating_add(self.time_limit?.as_secs()));
        self.ends_unix.or_else(limit)
    }

    /// Returns true if both describe the same node of the same lease, possibly at different times. The name of a lease's only node
    /// may change.
    pub fn is_same_node(&self, other: &NodeLease) -> bool {
        self.id == other.id && (self.set.is_none() || self.node == other.node)
    }

    /// The forecast for the request.
    pub fn outlook(&self) -> Outlook {
        let reason = match &self.state {
            LeaseState::Pending { reason } => reason,
            LeaseState::Starting { .. } | LeaseState::Running { .. } => return Outlook::Starts,
            LeaseState::Ended { .. } => return Outlook::Never,
        };
        if reason.contains(NEVER_STARTS) || LIMITS.iter().any(|part| reason.contains(part)) {
            Outlook::Never
        } else if reason.contains(NO_AUTOSCALER) {
            Outlook::Stuck
        } else if NOT_CONSIDERED.iter().any(|part| reason.contains(part)) {
            Outlook::Unknown
        } else {
            let starts_unix = self.starts_unix;
            Outlook::Waits { starts_unix }
        }
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.state, LeaseState::Ended { .. })
    }
}

/// Returns true if a node named `node` belongs to a lease announced as `name`. The names are equal, or `node` is a pod of the
/// Deployment `name`, to which Kubernetes appends two parts.
pub fn is_node_of(name: &str, node: &str) -> bool {
    if name == node {
        return true;
    }
    let rest = node
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix('-'));
    let parts = rest.and_then(|rest| rest.split_once('-'));
    let is_part = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    parts.is_some_and(|(hash, end)| is_part(hash) && is_part(end) && end.len() == 5)
}

fn seconds<S: serde::Serializer>(
    value: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value
        .map(|duration| duration.as_secs())
        .serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_running_lease_is_reported_or_derived_from_its_limit() {
        let mut lease = NodeLease {
            id: LeaseId::parse("1").expect("an id"),
            shape: "a".to_owned(),
            node: "n".to_owned(),
            demand: None,
            owner: None,
            set: None,
            state: LeaseState::Running {
                host: "gpu07".to_owned(),
            },
            time_limit: Some(Duration::from_secs(60)),
            starts_unix: Some(1000),
            ends_unix: Some(1050),
        };
        assert_eq!(lease.ends_by(), Some(1050));
        lease.ends_unix = None;
        assert_eq!(lease.ends_by(), Some(1060));
        lease.time_limit = None;
        assert_eq!(lease.ends_by(), None);
        lease.ends_unix = Some(1050);
        // Slurm's estimate of the end, assuming that the job begins as expected.
        lease.state = LeaseState::Pending {
            reason: String::new(),
        };
        assert_eq!(lease.ends_by(), None);
    }

    #[test]
    fn a_pod_belongs_only_to_its_own_deployment() {
        for node in ["pool-a-1", "pool-a-1-5d9c7b6f8-x7k2p"] {
            assert!(is_node_of("pool-a-1", node), "{node}");
        }
        for node in [
            "pool-a-2",
            "pool-a-1-2-5d9c7b6f8-x7k2p",
            "pool-a-10-5d9c7b6f8-x7k2p",
            "pool-a-1-5d9c7b6f8",
            "pool-a-1-5d9c7b6f8-x7k2",
            "pool-a-1-5d9c7b6f8-x7k2p-3",
        ] {
            assert!(!is_node_of("pool-a-1", node), "{node}");
        }
    }

    #[test]
    fn lease_ids_that_look_like_options_paths_or_commands_are_refused() {
        for id in ["17", "cloud-1.a_b", "a"] {
            assert_eq!(LeaseId::parse(id).expect(id).as_str(), id);
        }
        for id in ["", "-1", "--state=RUNNING", "../x", "1 2", "1;x", "é"] {
            assert!(LeaseId::parse(id).is_err(), "{id}");
        }
        assert!(LeaseId::parse(&"1".repeat(101)).is_err());
    }
}
