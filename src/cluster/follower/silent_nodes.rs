//! Nodes that do not respond. If the cluster reports that the lease of such a node has ended, the node is gone; a node without a
//! lease, as a person starts it, stays unknown.

use std::collections::BTreeMap;

use super::super::{LeaseState, NodeLease, is_node_of};

/// A lease missing from this many consecutive responses has ended. A single response may be older than the request.
pub(super) const MISSING_MAX: u32 = 2;
/// Limit of tracked nodes.
const NODES_MAX: usize = 4096;

#[derive(Default)]
struct SilentNode {
    /// The cluster names its nodes like this one, or has listed its lease. A missing lease then means that it has ended.
    is_ours: bool,
    /// Number of consecutive responses without its lease.
    missing: u32,
}

#[derive(Default)]
pub(super) struct SilentNodes(BTreeMap<String, SilentNode>);

impl SilentNodes {
    /// Returns true if no tracked node can have a lease.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn add(&mut self, node: String, is_ours: bool) {
        if self.0.len() < NODES_MAX {
            self.0.entry(node).or_default().is_ours |= is_ours;
        }
    }

    pub fn remove(&mut self, node: &str) {
        self.0.remove(node);
    }

    /// Compares the nodes with the leases of one response. Returns the nodes whose leases have ended, with the reasons. Stops
    /// tracking nodes that have no lease.
    pub fn look(&mut self, leases: &[NodeLease]) -> Vec<(String, String)> {
        let mut ended = Vec::new();
        self.0.retain(|name, node| {
            let mut own = leases
                .iter()
                .filter(|lease| is_node_of(&lease.node, name))
                .peekable();
            if own.peek().is_some() {
                (node.is_ours, node.missing) = (true, 0);
                // A requeued job keeps the name of its node.
                let why = own.try_fold(String::new(), |_, lease| match &lease.state {
                    LeaseState::Ended { why } => Some(format!("lease {}: {why}", lease.id)),
                    _ => None,
                });
                let Some(why) = why else {
                    return true;
                };
                ended.push((name.clone(), why));
                return false;
            }
            node.missing += 1;
            if node.missing < MISSING_MAX {
                return true;
            }
            if node.is_ours {
                let why = "the cluster no longer lists its lease".to_owned();
                ended.push((name.clone(), why));
            }
            false
        });
        ended
    }
}
