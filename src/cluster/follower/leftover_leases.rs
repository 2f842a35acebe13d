//! Leases without a request of this run and without a joined node: from an earlier run, or replacements for nodes that the cluster
//! has taken away. The next request for that shape takes one. Unused ones are given back.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::super::{LeaseId, LeaseState, NodeLease, is_node_of};

/// Time for which a left-over lease waits for a request.
const KEPT_FOR: Duration = Duration::from_secs(300);

struct LeftoverLease {
    lease: NodeLease,
    since: Instant,
}

#[derive(Default)]
pub(super) struct LeftoverLeases(Vec<LeftoverLease>);

impl LeftoverLeases {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a lease that is listed and has not ended.
    pub fn add(&mut self, lease: &NodeLease, now: Instant) {
        if self.0.iter().all(|known| !known.lease.is_same_node(lease)) {
            self.0.push(LeftoverLease {
                lease: lease.clone(),
                since: now,
            });
        }
    }

    /// Removes a lease of one node of this shape, for a request.
    pub fn take(&mut self, shape: &str) -> Option<NodeLease> {
        let is_single = |lease: &NodeLease| lease.set.is_none() && lease.shape == shape;
        let index = self.0.iter().position(|known| is_single(&known.lease))?;
        Some(self.0.remove(index).lease)
    }

    /// Removes all nodes of a lease of this many nodes of this shape, none of which has joined, for the requests of a set.
    pub fn take_set(&mut self, shape: &str, nodes: usize) -> Option<Vec<NodeLease>> {
        let of_lease = |id: &LeaseId| {
            let leases = self.0.iter().map(|known| &known.lease);
            leases.filter(|lease| lease.id == *id).count()
        };
        let fits = |lease: &&NodeLease| {
            let size = lease.set.map(|set| set.nodes as usize);
            lease.shape == shape && size == Some(nodes) && of_lease(&lease.id) == nodes
        };
        let mut leases = self.0.iter().map(|known| &known.lease);
        let id = leases.find(fits)?.id.clone();
        let taken = self.0.extract_if(.., |known| known.lease.id == id);
        Some(taken.map(|known| known.lease).collect())
    }

    /// Forgets the lease of a node that has joined.
    pub fn joined(&mut self, node: &str) {
        self.0.retain(|known| !is_node_of(&known.lease.node, node));
    }

    /// Updates the leases and returns those to give back. A running lease's node may be about to join; the pool gives such a node
    /// back once it is idle.
    pub fn look(
        &mut self,
        leases: &[NodeLease],
        joined: &BTreeSet<String>,
        join_within: Duration,
    ) -> BTreeSet<LeaseId> {
        let mut spent = BTreeSet::new();
        for old in std::mem::take(&mut self.0) {
            let listed = leases.iter().find(|lease| lease.is_same_node(&old.lease));
            let Some(lease) =
                listed.filter(|lease| !lease.has_ended() && !joined.contains(&lease.node))
            else {
                continue;
            };
            let is_pending = matches!(lease.state, LeaseState::Pending { .. });
            let is_late = old.since.elapsed() > KEPT_FOR;
            let never_joins = old.since.elapsed() > KEPT_FOR + join_within;
            if (is_late && is_pending) || never_joins {
                spent.insert(lease.id.clone());
            } else {
                self.0.push(LeftoverLease {
                    lease: lease.clone(),
                    since: old.since,
                });
            }
        }
        spent
    }
}
