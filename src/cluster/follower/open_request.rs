//! The open request and the state of its lease.

use tokio::time::Instant;

use super::messages::ClusterNews;
use crate::{LeaseId, NodeLease, is_node_of};

/// Limit of attempts to send a request that the cluster does not know afterwards.
const SENT_MAX: u32 = 4;

pub(super) struct Open {
    pub demand: u64,
    pub shape: String,
    pub lease: Option<LeaseId>,
    pub node: Option<String>,
    /// The error that makes it unknown whether the cluster accepted the request.
    pub unknown: Option<String>,
    pub running_since: Option<Instant>,
    /// The time since which the cluster reports a reason that does not pass.
    pub stuck_since: Option<Instant>,
    pub missing: u32,
    sent: u32,
    reported: String,
}

impl Open {
    pub fn new(demand: u64, shape: &str) -> Open {
        Open {
            demand,
            shape: shape.to_owned(),
            lease: None,
            node: None,
            unknown: None,
            running_since: None,
            stuck_since: None,
            missing: 0,
            sent: 0,
            reported: String::new(),
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
        match &self.lease {
            Some(id) => lease.id == *id,
            None => lease.demand == Some(self.demand),
        }
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

    pub fn report(&mut self, reason: String, news: &impl Fn(ClusterNews)) {
        if self.reported != reason {
            self.reported.clone_from(&reason);
            let demand = self.demand;
            news(ClusterNews::Pending { demand, reason });
        }
    }
}
