//! Leases that are to be given back, until the cluster has done it.

use super::super::{LeaseId, NodeLease, Release};

/// What has to end.
pub(super) enum Which {
    Lease(LeaseId),
    Demand(u64),
    Node(String),
}

pub(super) struct Ending {
    pub which: Which,
    pub how: Release,
    /// A request that is taken back: once its node has joined, the pool decides about the node.
    pub is_cancel: bool,
    /// In so many answers in a row there was no such lease.
    pub missing: u32,
    /// The last trouble, which is logged once.
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
