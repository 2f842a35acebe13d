//! Replicas of the last controller that span several nodes, until all of their processes have returned (N8, M8).

use std::collections::BTreeMap;

use catalog::GangMember;
use node_link::RunningEngine;
use pool::{NodeId, ReplicaId, Share};

/// A running process of the last controller, and its devices.
pub(crate) type Process = (NodeId, RunningEngine, Vec<Share>);

/// Replicas of which some processes have returned. Nothing is placed on the nodes of these processes.
#[derive(Debug, Default)]
pub(crate) struct ReturningGangs(BTreeMap<ReplicaId, Returning>);

#[derive(Debug, Default)]
struct Returning {
    /// The names of all its nodes, in the order of the ranks.
    nodes: Vec<String>,
    by_rank: BTreeMap<u32, Process>,
}

impl ReturningGangs {
    /// Adds a process. Returns all of them, in the order of their ranks, once all have returned.
    pub fn returns(
        &mut self,
        replica: ReplicaId,
        member: &GangMember,
        process: Process,
    ) -> Option<Vec<Process>> {
        let known = self.0.entry(replica).or_default();
        known.nodes.clone_from(&member.nodes);
        known.by_rank.insert(member.rank, process);
        if known.by_rank.len() < known.nodes.len() {
            return None;
        }
        Some(self.take(replica))
    }

    /// The process on this node has ended.
    pub fn ended(&mut self, replica: ReplicaId, node: NodeId) {
        if let Some(known) = self.0.get_mut(&replica) {
            known.by_rank.retain(|_, (on, ..)| *on != node);
        }
    }

    pub fn node_goes(&mut self, node: NodeId) {
        for known in self.0.values_mut() {
            known.by_rank.retain(|_, (on, ..)| *on != node);
        }
    }

    /// The replicas that lack a process whose node will not list it any more, with the node's name.
    pub fn incomplete(&self, may_list: impl Fn(&str) -> bool) -> Vec<(ReplicaId, String)> {
        let missing = |(&replica, known): (&ReplicaId, &Returning)| {
            let ranks = (0..).zip(&known.nodes);
            let mut missing = ranks.filter(|(rank, _)| !known.by_rank.contains_key(rank));
            let (_, name) = missing.find(|(_, name)| !may_list(name))?;
            Some((replica, name.clone()))
        };
        self.0.iter().filter_map(missing).collect()
    }

    /// Forgets the replica. Returns its processes that have returned, in the order of their ranks.
    pub fn take(&mut self, replica: ReplicaId) -> Vec<Process> {
        let known = self.0.remove(&replica).unwrap_or_default();
        known.by_rank.into_values().collect()
    }
}
