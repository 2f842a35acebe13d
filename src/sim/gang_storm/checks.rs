//! The checks of a storm of gangs: launches, memory, seats, and the agreement of the pool with the running processes at the end.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use super::{Play, TOTAL};
use pool::{
    Bytes, DeviceId, GangReach, ModelId, NodeId, NodeSpan, ReplicaId, ReplicaState, Share, Ticket,
};

impl Play {
    pub(super) fn breaks(&mut self, text: String) {
        self.report.broken.push(text);
    }

    /// A launch takes the same number of devices on as many nodes as the model's file sets, all of them within reach.
    pub(super) fn check_launch(&mut self, replica: ReplicaId, model: ModelId, placement: &[Share]) {
        let spec = &self.specs[&model];
        let mut on: BTreeMap<NodeId, BTreeSet<DeviceId>> = BTreeMap::new();
        for share in placement {
            let node = self.devices[&share.device].node;
            on.entry(node).or_default().insert(share.device);
        }
        let wanted = match spec.nodes {
            NodeSpan::Exactly(nodes) => nodes,
            NodeSpan::One | NodeSpan::AsNeeded => 1,
        };
        let each = (spec.devices_per_replica / wanted) as usize;
        if on.len() != wanted as usize || on.values().any(|devices| devices.len() != each) {
            let text = format!("M8: {replica} of {wanted} nodes with {each} devices is on {on:?}");
            self.breaks(text);
        }
        if wanted > 1 {
            let reach = |node: &NodeId| &self.links[node].reach;
            let reaches: BTreeSet<&GangReach> = on.keys().map(reach).collect();
            let is_old = |reach: &&&GangReach| matches!(reach, GangReach::Alone { .. });
            if reaches.len() != 1 || reaches.iter().any(|reach| is_old(&reach)) {
                let text = format!("M8: {replica} is on nodes that reach {reaches:?}");
                self.breaks(text);
            }
        }
        let away = |node: &&NodeId| self.links[*node].is_known_cut;
        if let Some(node) = on.keys().find(away) {
            let text = format!("N2: {replica} is placed on {node}, which is not in reach");
            self.breaks(text);
        }
    }

    /// No device has two owners.
    pub(super) fn check_memory(&mut self, replica: ReplicaId) {
        let mut held: BTreeMap<DeviceId, u64> = BTreeMap::new();
        for share in self.processes.values().flat_map(|process| &process.shares) {
            *held.entry(share.device).or_default() += share.bytes.0;
        }
        if let Some((device, held)) = held.iter().find(|(_, held)| **held > TOTAL.0) {
            let text = format!(
                "N4: {device} has two owners: {} with {replica}",
                Bytes(*held)
            );
            self.breaks(text);
        }
    }

    /// A request gets a seat only on a replica whose processes all run, as far as the pool knows.
    pub(super) fn check_grant(&mut self, ticket: Ticket, replica: ReplicaId) {
        if self.known_ended.contains(&replica) {
            self.breaks(format!(
                "M8: {ticket} gets a seat on {replica}, which has ended in part"
            ));
        }
    }

    pub(super) fn ends(&mut self) {
        for ticket in self.waiting.clone().into_keys() {
            self.breaks(format!("Q4: {ticket} was never answered"));
        }
        self.check_leases();
        let view = self.world.pool.view(self.world.now);
        let replicas = view.models.iter().flat_map(|model| &model.replicas);
        let replicas = replicas.filter(|replica| replica.state != ReplicaState::Planned);
        let mut believed: BTreeSet<(ReplicaId, NodeId)> = BTreeSet::new();
        for replica in replicas {
            if replica.state == ReplicaState::Stopping {
                let text = format!("M8: {} has been ending for an hour", replica.replica);
                self.report.broken.push(text);
            }
            let nodes = replica
                .shares
                .iter()
                .map(|share| self.devices[&share.device].node);
            believed.extend(nodes.map(|node| (replica.replica, node)));
        }
        let real: BTreeSet<(ReplicaId, NodeId)> = self.processes.keys().copied().collect();
        for (replica, node) in real.symmetric_difference(&believed) {
            let text = if real.contains(&(*replica, *node)) {
                format!("N1: {replica} runs on {node}, and the pool has forgotten it")
            } else {
                format!("N1: the pool believes in {replica} on {node}, where it does not run")
            };
            self.report.broken.push(text);
        }
    }
}
