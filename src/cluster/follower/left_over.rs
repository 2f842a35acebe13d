//! Leases that no request of this run has brought and whose nodes have not joined: of an earlier run, or in the place of
//! a node that the cluster has taken away. The next request for that shape gets one; without it they are given back.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::super::{LeaseId, LeaseState, NodeLease, is_node_of};

/// How long they are kept for a request.
const KEPT_FOR: Duration = Duration::from_secs(300);

struct LeftOver {
    lease: NodeLease,
    since: Instant,
}

#[derive(Default)]
pub(super) struct LeftOvers(Vec<LeftOver>);

impl LeftOvers {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Another one, which is listed and has not ended.
    pub fn add(&mut self, lease: &NodeLease, now: Instant) {
        if self.0.iter().all(|it| it.lease.id != lease.id) {
            self.0.push(LeftOver {
                lease: lease.clone(),
                since: now,
            });
        }
    }

    /// One of this shape, for a request.
    pub fn take(&mut self, shape: &str) -> Option<NodeLease> {
        let index = self.0.iter().position(|it| it.lease.shape == shape)?;
        Some(self.0.remove(index).lease)
    }

    /// A node of this name takes part.
    pub fn joined(&mut self, node: &str) {
        self.0.retain(|it| !is_node_of(&it.lease.node, node));
    }

    /// What became of them, and which have to be given back. The node of one that runs may be about to join; then the
    /// pool gives it back once it is idle.
    pub fn look(
        &mut self,
        leases: &[NodeLease],
        joined: &BTreeSet<String>,
        join_within: Duration,
    ) -> Vec<LeaseId> {
        let mut spent = Vec::new();
        for old in std::mem::take(&mut self.0) {
            let listed = leases.iter().find(|it| it.id == old.lease.id);
            let Some(lease) = listed.filter(|it| !it.has_ended() && !joined.contains(&it.node))
            else {
                continue;
            };
            let is_pending = matches!(lease.state, LeaseState::Pending { .. });
            let is_late = old.since.elapsed() > KEPT_FOR;
            let never_joins = old.since.elapsed() > KEPT_FOR + join_within;
            if (is_late && is_pending) || never_joins {
                spent.push(lease.id.clone());
            } else {
                self.0.push(LeftOver {
                    lease: lease.clone(),
                    since: old.since,
                });
            }
        }
        spent
    }
}
