//! The peace at the end of a storm over nodes, and the checks after it.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{Link, Play};
use pool::{Command, NodeId, ReplicaId, Time};

impl Play {
    /// No more faults occur: every node is connected, and no drain is left.
    pub(super) fn peace_comes(&mut self, at: Time) {
        self.peace = true;
        let nodes: Vec<(NodeId, Link)> = self.links.clone().into_iter().collect();
        for (node, link) in nodes {
            if link.has_ended {
                continue;
            }
            if link.is_cut {
                self.is_back(at, node);
            }
            self.order(at, Command::UndrainNode { node });
        }
    }

    /// After a long peace every request has been answered, and the pool's facts are true.
    pub(super) fn ends(&mut self) {
        for ticket in self.waiting.keys() {
            self.report
                .broken
                .push(format!("Q4: {ticket} was never answered"));
        }
        self.check_leases();
        let view = self.world.pool.view(self.world.now);
        let replicas = view.models.iter().flat_map(|model| &model.replicas);
        // A planned load has no process yet.
        let replicas = replicas.filter(|replica| replica.state != pool::ReplicaState::Planned);
        let believed: BTreeSet<ReplicaId> = replicas.map(|replica| replica.replica).collect();
        let (real, broken) = (self.truth.running(), &mut self.report.broken);
        for replica in real.difference(&believed) {
            broken.push(format!("N1: {replica} runs, and the pool has forgotten it"));
        }
        for replica in believed.difference(&real) {
            broken.push(format!(
                "N1: the pool believes in {replica}, which does not run"
            ));
        }
        for node in &view.nodes {
            let is_emptied = node.state == pool::NodeState::Ending && node.ends.is_none();
            if node.state != pool::NodeState::Joined && !is_emptied {
                let (name, state) = (&node.name, node.state.name());
                broken.push(format!("N1: {name} is {state} in peace"));
            }
        }
    }
}
