//! Leases without a request of this run and without a joined node: from an earlier run, or replacements for nodes that the cluster
//! has taken away. The next request for that shape takes one. Unused ones are given back.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use super::super::{LeaseId, LeaseState, NodeLease, is_node_of};
use pool::DemandId;

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

    /// Removes a lease of one node of this shape, for a request. A lease that counts for batches serves only requests for batches,
    /// and the reverse.
    pub fn take(&mut self, shape: &str, demand: DemandId) -> Option<NodeLease> {
        let is_for_batches = |lease: &NodeLease| {
            let own = lease.demand.map(DemandId);
            own.is_some_and(DemandId::is_for_batches)
        };
        let is_single = |lease: &NodeLease| {
            lease.set.is_none()
                && lease.shape == shape
                && is_for_batches(lease) == demand.is_for_batches()
        };
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

#[cfg(test)]
mod tests {
    use super::super::now;
    use super::*;
    use crate::stand_ins;

    #[test]
    fn b8_a_left_over_lease_serves_only_requests_of_its_purpose() {
        let (own, of_batches) = (DemandId(7), DemandId(8).for_batches());
        let mut left_over = LeftoverLeases::default();
        for (id, demand) in [("1", own), ("2", of_batches)] {
            let lease = NodeLease {
                id: stand_ins::id(id),
                shape: "a2".to_owned(),
                node: format!("slurm-{id}"),
                demand: Some(demand.0),
                owner: None,
                set: None,
                state: LeaseState::Pending {
                    reason: "Priority".to_owned(),
                },
                time_limit: None,
                starts_unix: None,
                ends_unix: None,
            };
            left_over.add(&lease, now());
        }
        let mut taken = |demand| left_over.take("a2", demand).map(|lease| lease.node);
        let next = DemandId(9).for_batches();
        assert_eq!(taken(next).as_deref(), Some("slurm-2"));
        assert_eq!(taken(next), None);
        assert_eq!(taken(DemandId(9)).as_deref(), Some("slurm-1"));
    }
}
