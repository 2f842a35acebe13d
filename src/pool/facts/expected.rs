//! Replicas that nodes held when the last controller ended. Until its node has joined, is gone or has been silent for too long,
//! such a replica counts as present (N8).

use crate::facts::state::Pool;
use crate::types::ids::{ModelId, NodeId, Time};
use crate::types::replica::Replica;

impl Pool {
    /// The number of the model's replicas that count as present although their nodes have not joined yet.
    pub(crate) fn expected_back(&self, id: ModelId) -> usize {
        let Some(on) = self.nodes.expected(id) else {
            return 0;
        };
        let waits = |node: &NodeId| {
            let since = self.nodes.silent().get(node);
            since.is_some_and(|since| *since + self.limits.silent_grace > self.now)
        };
        let counted = on.iter().filter(|(node, _)| waits(node));
        counted.map(|(_, count)| count).sum()
    }

    /// Returns true if a silent node holds a replica of the model, or held one when the last controller ended. A second copy then
    /// evicts nothing unless requests wait for it.
    pub(crate) fn is_held_away(&self, id: ModelId) -> bool {
        if self.nodes.silent().is_empty() {
            return false;
        }
        let is_silent = |replica: &Replica| replica.is_live() && self.is_silent(replica);
        let replicas = &self.models[&id].replicas;
        self.nodes.expected(id).is_some() || replicas.iter().any(|id| is_silent(&self.replicas[id]))
    }

    /// The time until which evictions and requests for nodes wait because a node with unknown devices is expected back.
    pub(crate) fn nodes_return_by(&self) -> Option<Time> {
        let unknown = self
            .nodes
            .silent()
            .iter()
            .filter(|(node, _)| !self.nodes.has_devices(**node));
        let until = unknown.map(|(_, since)| *since + self.limits.silent_grace);
        until.filter(|until| *until > self.now).max()
    }
}
