//! Determines whether nodes are reachable, and what keeps the pool from placing replicas on them. Read-only.

use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::types::gang::Gang;
use crate::types::ids::{DeviceId, ModelId, NodeId, ReplicaId, Span};
use crate::types::model::Cordon;
use crate::types::node::{Away, Presence};
use crate::types::obstacle::NodeAway;
use crate::types::replica::Replica;
use crate::types::share::Share;

impl Pool {
    pub(crate) fn node_name(&self, id: NodeId) -> String {
        match self.nodes.known(id) {
            Some(node) => node.name.clone(),
            None if id == NodeId(0) => "local".into(),
            None => id.to_string(),
        }
    }

    /// Returns true if the replica's node is silent.
    pub(crate) fn is_silent(&self, replica: &Replica) -> bool {
        !self.nodes.silent().is_empty()
            && self
                .nodes_of(replica)
                .any(|node| self.nodes.is_silent(node))
    }

    /// Returns true if the node has been silent for so long that demand may load the model on another node.
    pub(crate) fn is_written_off(&self, replica: &Replica) -> bool {
        if self.nodes.silent().is_empty() {
            return false;
        }
        let silent = |node: NodeId| self.nodes.silent().get(&node);
        let since = self.nodes_of(replica).filter_map(silent).min();
        since.is_some_and(|since| *since + self.limits.silent_grace <= self.now)
    }

    pub(crate) fn is_gone(&self, node: NodeId) -> bool {
        let known = self.nodes.known(node);
        known.is_some_and(|node| node.presence == Presence::Gone)
    }

    /// The number of given-up engines that still run on a node.
    pub(crate) fn engines_given_up(&self, node: NodeId) -> u32 {
        u32::try_from(self.nodes.given_up_on(node)).unwrap_or(u32::MAX)
    }

    pub(crate) fn away(&self, node: NodeId) -> Option<Away> {
        if self.nodes.is_silent(node) {
            return Some(Away::Silent);
        }
        if self.node_demand.is_releasing(node) || self.batches.left_for(node).is_some() {
            return Some(Away::Released);
        }
        if self.node_demand.set_of(node).is_some() {
            return Some(Away::Gathers);
        }
        if self.consolidation.empties(node) {
            return Some(Away::Emptied);
        }
        if self.nodes.moves(node) {
            return Some(Away::Ends);
        }
        (self.engines_given_up(node) > 0).then_some(Away::EndsOthers)
    }

    /// The same for a device, as text.
    pub(crate) fn node_away(&self, device: DeviceId) -> Option<NodeAway> {
        let ledger = &self.devices[&device];
        // Plans visit every device and most are present, so node names are composed only when needed.
        let away = ledger.away?;
        let node = self.node_name(ledger.node);
        Some(match away {
            Away::Silent => NodeAway::Silent {
                node,
                for_: self.silent_for(ledger.node),
            },
            Away::Released => NodeAway::Released { node },
            Away::Gathers => {
                let set = self.node_demand.set_of(ledger.node);
                let requested = set.map_or(1, |set| set.requests);
                NodeAway::Gathers { node, requested }
            }
            Away::Emptied => NodeAway::Emptied { node },
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
        let since = self.nodes.silent().get(&node);
        since.map_or(Span::ZERO, |since| self.now.since(*since))
    }

    /// Returns true if more devices may come. What does not fit today may then fit later.
    pub(crate) fn nodes_may_join(&self) -> bool {
        let has_shapes = !self.node_demand.shapes().is_empty();
        self.limits.nodes_may_join || has_shapes || !self.nodes.all_known().is_empty()
    }

    /// Returns true if a node whose devices are unknown may come back. Nothing can be called too large for it.
    pub(crate) fn unknown_node_may_return(&self) -> bool {
        self.nodes
            .silent()
            .keys()
            .any(|node| !self.nodes.has_devices(*node))
    }

    /// Returns true if the node has reported its weights and the model's are missing (N6).
    pub(crate) fn lacks_weights(&self, node: NodeId, model: ModelId) -> bool {
        self.nodes.lacks_weights(node, model)
    }

    /// The name of a device, including devices that have left with their node.
    pub(crate) fn device_name(&self, id: DeviceId) -> String {
        match self.devices.get(&id) {
            Some(device) => device.name.clone(),
            None => match self.devices.departed(id) {
                Some(departed) => departed.name.clone(),
                None => id.to_string(),
            },
        }
    }

    pub(crate) fn replicas_on(&self, node: NodeId) -> Vec<ReplicaId> {
        let all = self.replicas.iter();
        let all = all.filter(|(_, replica)| self.is_on(replica, node));
        all.map(|(&id, _)| id).collect()
    }

    /// The node of a replica; of its leader if it spans several.
    pub(crate) fn node_of(&self, replica: &Replica) -> NodeId {
        self.devices[&replica.shares[0].device].node
    }

    /// The nodes on which the replica holds memory, in the order of its members' ranks.
    pub(crate) fn nodes_of(&self, replica: &Replica) -> impl Iterator<Item = NodeId> {
        let single = replica.gang.is_none().then(|| self.node_of(replica));
        let members = replica.gang.iter().flat_map(|gang| gang.members.clone());
        let members = members.filter(|member| !member.ended);
        single.into_iter().chain(members.map(|member| member.node))
    }

    /// Returns true if the replica holds memory on the node.
    pub(crate) fn is_on(&self, replica: &Replica, node: NodeId) -> bool {
        match &replica.gang {
            None => self.node_of(replica) == node,
            Some(gang) => gang.rank_on(node).is_some(),
        }
    }

    /// The members of a replica with these shares; `None` if they are on one node.
    pub(crate) fn gang_of(&self, shares: &[Share]) -> Option<Box<Gang>> {
        let mut nodes: Vec<NodeId> = Vec::new();
        for share in shares {
            let node = self.devices[&share.device].node;
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        Gang::new(nodes, shares.len()).map(Box::new)
    }

    /// The replicas and planned loads on several nodes, with the nodes of their leaders.
    pub(crate) fn gangs(&self) -> impl Iterator<Item = (ReplicaId, NodeId)> {
        let running = self.replicas.iter();
        let running =
            running.filter_map(|(&id, replica)| Some((id, replica.gang.as_ref()?.leader())));
        let planned = self.planned.iter();
        let planned = planned
            .filter_map(|(&id, planned)| Some((id, self.gang_of(&planned.shares)?.leader())));
        running.chain(planned)
    }

    /// The drain of a node, as a cordon of its devices.
    pub(crate) fn drain_of(&self, node: NodeId) -> Option<Cordon> {
        if !self.nodes.any_drains() {
            return None;
        }
        let name = self.node_name(node);
        let drain = self.nodes.drain(&name)?;
        Some(Cordon {
            reason: format!("node {name} drains: {} (N5)", drain.reason),
            ..drain.clone()
        })
    }
}
