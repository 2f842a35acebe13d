//! Leases that have to be given back and are not yet.

use super::super::{LeaseId, NodeLease, Release};

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
