//! The requested node that is emptied because its models have a cheaper place, and the times at which the pool looks for one (S3).
//! Makes no choices.

use alloc::collections::BTreeMap;

use crate::types::ids::{NodeId, Span, Time};

/// The interval at which the pool looks for a node to empty.
const LOOKS_EVERY: Span = Span::from_secs(60);

#[derive(Clone, Debug, Default)]
pub(crate) struct Consolidation {
    /// The node that is emptied, and since when.
    current: Option<(NodeId, Time)>,
    /// The time at which each node was last chosen.
    chosen: BTreeMap<NodeId, Time>,
    looks_at: Time,
}

impl Consolidation {
    pub fn current(&self) -> Option<(NodeId, Time)> {
        self.current
    }

    pub fn empties(&self, node: NodeId) -> bool {
        self.current.is_some_and(|(current, _)| current == node)
    }

    /// The time at which the node was last chosen.
    pub fn chosen_at(&self, node: NodeId) -> Option<Time> {
        self.chosen.get(&node).copied()
    }

    pub fn looks_at(&self) -> Time {
        self.looks_at
    }

    pub fn has_looked(&mut self, now: Time) {
        self.looks_at = now + LOOKS_EVERY;
    }

    pub fn begin(&mut self, node: NodeId, now: Time) {
        self.current = Some((node, now));
        self.chosen.insert(node, now);
    }

    /// The node is no longer emptied for its cost.
    pub fn end(&mut self, node: NodeId) {
        if self.empties(node) {
            self.current = None;
        }
    }

    pub fn node_goes(&mut self, node: NodeId) {
        self.end(node);
        self.chosen.remove(&node);
    }
}
