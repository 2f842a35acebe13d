//! Leases that have to be given back and are not yet.

use super::super::{LeaseId, NodeLease, Release};

/// Selects the lease that has to end.
pub(super) enum Which {
    Lease(LeaseId),
    Demand(u64),
    Node(String),
}

pub(super) struct Ending {
    pub which: Which,
    pub how: Release,
    /// The request was cancelled. If its node has joined already, the pool decides about the node.
    pub is_cancel: bool,
    /// Number of consecutive responses without such a lease.
    pub missing: u32,
    /// The last error, which is logged once.
    pub complained: String,
}

impl Which {
    pub fn is(&self, lease: &NodeLease) -> bool {
        match self {
            Which::Lease(id) => lease.id == *id,
            Which::Demand(demand) => lease.demand == Some(*demand),
            Which::Node(node) => lease.node == *node,
        }
    }
}

impl Ending {
    pub fn new(which: Which, how: Release) -> Ending {
        Ending {
            which,
            how,
            is_cancel: false,
            missing: 0,
            complained: String::new(),
        }
    }
}
