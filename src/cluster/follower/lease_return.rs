//! Leases that have to be given back and are not yet, and the search for leases that no request needs.

use super::messages::ClusterNews;
use super::silent_nodes::MISSING_MAX;
use super::{ENDING_MAX, Follower, now};
use crate::{Cluster, ClusterError, LeaseId, NodeLease, Release};

/// Selects the lease that has to end.
pub(super) enum LeaseSelector {
    Lease(LeaseId),
    Demand(u64),
    Node(String),
}

pub(super) struct LeaseReturn {
    pub which: LeaseSelector,
    pub how: Release,
    /// The request was cancelled. If its node has joined already, the pool decides about the node.
    pub is_cancel: bool,
    /// Number of consecutive responses without such a lease.
    pub missing: u32,
    /// The last error, which is logged once.
    pub complained: String,
}

impl LeaseSelector {
    pub fn is(&self, lease: &NodeLease) -> bool {
        match self {
            LeaseSelector::Lease(id) => lease.id == *id,
            LeaseSelector::Demand(demand) => lease.demand == Some(*demand),
            LeaseSelector::Node(node) => lease.node == *node,
        }
    }
}

impl LeaseReturn {
    pub fn new(which: LeaseSelector, how: Release) -> LeaseReturn {
        LeaseReturn {
            which,
            how,
            is_cancel: false,
            missing: 0,
            complained: String::new(),
        }
    }
}

impl<C: Cluster, N: Fn(ClusterNews)> Follower<C, N> {
    /// Records the lease to give back, and gives back immediately what the cluster lists.
    pub(super) async fn end(&mut self, ending: LeaseReturn) {
        if self.ending.len() < ENDING_MAX {
            self.ending.push(ending);
        }
        match self.leases().await {
            Ok(leases) => self.end_leases(&leases).await,
            Err(error) => tracing::warn!("cannot list the leases to give one back: {error}"),
        }
    }

    pub(super) async fn end_leases(&mut self, leases: &[NodeLease]) {
        for mut ending in std::mem::take(&mut self.ending) {
            let found = leases.iter().filter(|lease| ending.which.is(lease));
            let found: Vec<&NodeLease> = found.filter(|lease| !lease.has_ended()).collect();
            let Some(lease) = found.first() else {
                ending.missing += 1;
                if ending.missing < MISSING_MAX {
                    self.ending.push(ending);
                }
                continue;
            };
            let mut nodes = found.iter().map(|lease| &lease.node);
            if ending.is_cancel && nodes.all(|node| self.joined.contains(node)) {
                continue;
            }
            // A second signal would end the nodes immediately.
            if ending.how == Release::Drain && self.drained.contains(&lease.id) {
                continue;
            }
            match self.cluster.release(&lease.id, ending.how).await {
                Ok(()) => {
                    tracing::info!("lease {} is given back", lease.id);
                    if lease.set.is_some() && ending.how == Release::Drain {
                        self.drained.insert(lease.id.clone());
                    }
                }
                Err(ClusterError::WrongId { .. }) => {}
                Err(error) => {
                    let text = error.to_string();
                    if text != ending.complained {
                        tracing::warn!("lease {} cannot be given back yet: {text}", lease.id);
                        ending.complained = text;
                    }
                    self.ending.push(ending);
                }
            }
        }
    }

    /// Finds leases of requests that are not open and whose nodes have not joined.
    pub(super) fn find_left_over(&mut self, leases: &[NodeLease]) {
        let now = now();
        for lease in leases.iter().filter(|lease| lease.demand.is_some()) {
            let is_open = self.open.iter().any(|open| open.is_of(lease));
            // A lease whose node has just left ends on its own.
            let has_node = self.joined.contains(&lease.node) || self.left.contains(&lease.node);
            let is_ending = self.ending.iter().any(|ending| ending.which.is(lease));
            if !(lease.has_ended() || is_open || has_node || is_ending) {
                self.left_over.add(lease, now);
            }
        }
    }
}
