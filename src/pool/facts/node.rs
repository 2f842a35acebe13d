//! Whether nodes are there, and what keeps the pool from placing anything on them. Reads facts, changes none.

use alloc::string::{String, ToString};

use crate::facts::state::Pool;
use crate::types::ids::{DeviceId, ModelId, NodeId, ReplicaId, Span};
use crate::types::node::{Away, Presence};
use crate::types::obstacle::NodeAway;
use crate::types::replica::Replica;

impl Pool {
    pub(crate) fn node_name(&self, id: NodeId) -> String {
        match self.known_nodes.get(&id) {
            Some(node) => node.name.clone(),
            None if id == NodeId(0) => "local".into(),
            None => id.to_string(),
        }
    }

    /// Whether nothing is heard of the replica's node.
    pub(crate) fn is_silent(&self, replica: &Replica) -> bool {
        !self.silent.is_empty() && self.silent.contains_key(&self.node_of(replica))
    }

    /// Whether that has been so for so long that the model is loaded on another node, if there is demand for it.
    pub(crate) fn is_written_off(&self, replica: &Replica) -> bool {
        if self.silent.is_empty() {
            return false;
        }
        let since = self.silent.get(&self.node_of(replica));
        since.is_some_and(|since| *since + self.limits.silent_grace <= self.now)
    }

    pub(crate) fn is_gone(&self, node: NodeId) -> bool {
        let known = self.known_nodes.get(&node);
        known.is_some_and(|it| it.presence == Presence::Gone)
    }

    /// How many engines that the pool has given up a node still has.
    pub(crate) fn engines_given_up(&self, node: NodeId) -> u32 {
        let on = self.given_up.values().filter(|it| **it == node);
        u32::try_from(on.count()).unwrap_or(u32::MAX)
    }

    pub(crate) fn away(&self, node: NodeId) -> Option<Away> {
        if self.silent.contains_key(&node) {
            return Some(Away::Silent);
        }
        if self.node_demand.releasing.contains(&node) {
            return Some(Away::Released);
        }
        if self.moving.contains(&node) {
            return Some(Away::Ends);
        }
        (self.engines_given_up(node) > 0).then_some(Away::EndsOthers)
    }

    /// The same of a device, in words.
    pub(crate) fn node_away(&self, device: DeviceId) -> Option<NodeAway> {
        let ledger = &self.devices[&device];
        // Asked of every device for each plan, and mostly none: the name is made only where it is needed.
        let away = ledger.away?;
        let node = self.node_name(ledger.node);
        Some(match away {
            Away::Silent => NodeAway::Silent {
                node,
                for_: self.silent_for(ledger.node),
            },
            Away::Released => NodeAway::Released { node },
            Away::Ends => NodeAway::Ends {
                node,
                left: self.node_lasts(ledger.node),
            },
            Away::EndsOthers => NodeAway::EndsOthers {
                node,
                engines: self.engines_given_up(ledger.node),
            },
        })
    }

    pub(crate) fn silent_for(&self, node: NodeId) -> Span {
        let since = self.silent.get(&node);
        since.map_or(Span::ZERO, |since| self.now.since(*since))
    }

    /// Whether more devices may come: what does not fit today may fit later.
    pub(crate) fn nodes_may_join(&self) -> bool {
        let has_shapes = !self.node_demand.shapes.is_empty();
        self.limits.nodes_may_join || has_shapes || !self.known_nodes.is_empty()
    }

    /// Whether a node may come back whose devices are not known: nothing can be called too large for it.
    pub(crate) fn unknown_node_may_return(&self) -> bool {
        self.silent
            .keys()
            .any(|node| !self.nodes.contains_key(node))
    }

    /// Whether the node would have to fetch the model's weights, as far as it says (N6).
    pub(crate) fn lacks_weights(&self, node: NodeId, model: ModelId) -> bool {
        let known = self.weights_on.get(&node);
        known.is_some_and(|models| !models.contains(&model))
    }

    /// The name of a device, also of one that has left with its node.
    pub(crate) fn device_name(&self, id: DeviceId) -> String {
        match self.devices.get(&id) {
            Some(device) => device.name.clone(),
            None => match self.departed.get(&id) {
                Some(departed) => departed.name.clone(),
                None => id.to_string(),
            },
        }
    }

    pub(crate) fn replicas_on(&self, node: NodeId) -> alloc::vec::Vec<ReplicaId> {
        let on = |replica: &Replica| self.node_of(replica) == node;
        let all = self.replicas.iter().filter(|(_, it)| on(it));
        all.map(|(&id, _)| id).collect()
    }
}
