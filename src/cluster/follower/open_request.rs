//! The open requests and the states of their leases.

use tokio::time::Instant;

use super::lease_return::{LeaseReturn, LeaseSelector};
use super::messages::ClusterNews;
use super::silent_nodes::MISSING_MAX;
use super::{Follower, HOST_EXCLUDED_FOR, now};
use crate::{Cluster, LeaseId, LeaseState, NodeLease, Outlook, Release, is_node_of};

/// Limit of attempts to send a request that the cluster does not know afterwards.
const SENT_MAX: u32 = 4;

pub(super) struct Open {
    pub demand: u64,
    pub shape: String,
    /// One lease serves this request and others.
    pub is_of_set: bool,
    pub lease: Option<LeaseId>,
    pub node: Option<String>,
    /// The error that makes it unknown whether the cluster accepted the request.
    pub unknown: Option<String>,
    pub running_since: Option<Instant>,
    pub missing: u32,
    sent: u32,
    reported: (String, Outlook),
}

impl Open {
    pub fn new(demand: u64, shape: &str) -> Open {
        Open {
            demand,
            shape: shape.to_owned(),
            is_of_set: false,
            lease: None,
            node: None,
            unknown: None,
            running_since: None,
            missing: 0,
            sent: 0,
            reported: (String::new(), Outlook::Unknown),
        }
    }

    /// A request of a set that one lease serves.
    pub fn of_set(demand: u64, shape: &str) -> Open {
        Open {
            is_of_set: true,
            ..Open::new(demand, shape)
        }
    }

    /// Counts an attempt to send the request to the cluster.
    pub fn begin(&mut self) {
        self.sent += 1;
        (self.unknown, self.missing) = (None, 0);
    }

    /// Returns true if the outcome was unknown and the limit of attempts is not reached. The caller has found that the cluster has
    /// no such lease.
    pub fn may_be_sent_again(&self) -> bool {
        self.unknown.is_some() && self.sent < SENT_MAX
    }

    pub fn is_of(&self, lease: &NodeLease) -> bool {
        let has_demand = lease.demand == Some(self.demand);
        match (&self.lease, &self.node) {
            (Some(id), _) if lease.id != *id => false,
            (Some(_), _) if lease.set.is_none() => true,
            (Some(_), Some(node)) => lease.node == *node,
            (Some(_), None) | (None, _) => has_demand,
        }
    }

    /// Returns true if one lease serves both requests.
    pub fn is_of_set_with(&self, other: &Open) -> bool {
        // Each shape has at most one open set.
        self.is_of_set && other.is_of_set && self.shape == other.shape
    }

    pub fn is_met_by(&self, node: &str) -> bool {
        let name = self.node.as_deref();
        name.is_some_and(|name| is_node_of(name, node))
    }

    pub fn name_node(&mut self, node: String, news: &impl Fn(ClusterNews)) {
        self.node = Some(node.clone());
        let demand = self.demand;
        news(ClusterNews::Named { demand, node });
    }

    pub fn report(&mut self, reason: String, outlook: Outlook, news: &impl Fn(ClusterNews)) {
        let report = (reason.clone(), outlook);
        if std::mem::replace(&mut self.reported, report) != self.reported {
            let demand = self.demand;
            news(ClusterNews::Pending {
                demand,
                reason,
                outlook,
            });
        }
    }
}

impl<C: Cluster, N: Fn(ClusterNews)> Follower<C, N> {
    /// Compares the open requests with the leases, reports their progress, and settles them.
    pub(super) async fn look_at_open(&mut self, leases: &[NodeLease]) {
        for open in std::mem::take(&mut self.open) {
            let open = self.looked_at(open, leases).await;
            self.open.extend(open);
        }
        let mut unsent = std::mem::take(&mut self.unsent).into_iter().peekable();
        while let Some(first) = unsent.next() {
            let mut set = vec![first];
            while let Some(open) = unsent.next_if(|open| set[0].is_of_set_with(open)) {
                set.push(open);
            }
            self.submitted_set(set).await;
        }
    }

    /// Returns the request if it stays open.
    async fn looked_at(&mut self, mut open: Open, leases: &[NodeLease]) -> Option<Open> {
        let demand = open.demand;
        let found = leases.iter().find(|lease| open.is_of(lease));
        let refused = |why: String| (self.news)(ClusterNews::Refused { demand, why });
        let Some(lease) = found else {
            open.missing += 1;
            if open.missing < MISSING_MAX {
                return Some(open);
            }
            if open.may_be_sent_again() {
                // The cluster was unreachable and responds again. If it accepted the first request after all, that lease is left
                // over.
                self.has_looked = false;
                if open.is_of_set {
                    self.unsent.push(open);
                    return None;
                }
                return self.submitted(open).await;
            }
            if let Some(unknown) = open.unknown {
                refused(unknown);
            } else if let Some(id) = open.lease {
                refused(format!("the cluster no longer knows its lease {id}"));
            }
            return None;
        };
        open.missing = 0;
        open.lease = Some(lease.id.clone());
        if open.node.as_ref() != Some(&lease.node) {
            open.name_node(lease.node.clone(), &self.news);
        }
        if self.joined.contains(&lease.node) {
            return None;
        }
        match &lease.state {
            LeaseState::Ended { why } => {
                refused(format!("lease {} has ended: {why}", lease.id));
                return None;
            }
            LeaseState::Pending { reason } => {
                open.running_since = None;
                let text = format!("lease {}: {reason}", lease.id);
                open.report(text, lease.outlook(), &self.news);
            }
            LeaseState::Starting { host, .. } | LeaseState::Running { host } => {
                let since = *open.running_since.get_or_insert_with(now);
                let waits = match &lease.state {
                    LeaseState::Starting { reason, .. } => Some(reason),
                    _ => None,
                };
                if since.elapsed() >= self.join_within {
                    let seconds = self.join_within.as_secs();
                    let why = waits.map_or_else(String::new, |reason| format!(" ({reason})"));
                    let log = match self.cluster.log_end(&lease.id).await {
                        Some(line) => format!("its log ends with: {line}; "),
                        None => "check its log, and ".to_owned(),
                    };
                    refused(format!(
                        "lease {} has run on {host} for {seconds} s and its node {} has not joined{why}; it is given back: {log}raise cluster.join_within if it needs longer",
                        lease.id, lease.node
                    ));
                    let until = now() + HOST_EXCLUDED_FOR;
                    self.excluded.push((host.clone(), until));
                    let which = LeaseSelector::Lease(lease.id.clone());
                    self.ending.push(LeaseReturn::new(which, Release::Now));
                    return None;
                }
                let what = waits.map_or("its node starts", String::as_str);
                let text = format!("lease {} runs on {host}; {what}", lease.id);
                open.report(text, lease.outlook(), &self.news);
            }
        }
        Some(open)
    }
}
