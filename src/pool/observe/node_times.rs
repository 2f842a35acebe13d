//! The remaining time of nodes, as the cluster reports it or as they are ordered to end (N7). Facts only.

use alloc::vec::Vec;

use crate::commit::actions::Actions;
use crate::facts::state::Pool;
use crate::types::action::RecordKind;
use crate::types::ids::{NodeId, ReplicaId, Time};
use crate::types::node::{NodeTime, Presence};

impl Pool {
    /// Records the end of a node. `leaves` is true if it was ordered to end.
    pub(crate) fn node_ends(&mut self, id: NodeId, at: Time, leaves: bool, actions: &mut Actions) {
        let known = self.nodes.known(id);
        let is_there = known.is_some_and(|node| node.presence != Presence::Gone);
        if id == NodeId(0) || !is_there {
            return;
        }
        let before = self.nodes.time(id).copied();
        let mut time = before.unwrap_or(NodeTime {
            known: self.now,
            limit: None,
            leaves: None,
            moves: at,
        });
        if leaves {
            // The first order counts: a second one does not extend the time.
            time.leaves = time.leaves.or(Some(at))
        } else {
            time.limit = Some(at)
        }
        if before == Some(time) {
            return;
        }
        self.nodes.set_time(id, time);
        if self.nodes.moves(id) && !self.consolidation.empties(id) {
            self.lasts_longer(id, time, actions);
        } else {
            self.schedule_moves(id);
        }
    }

    /// The end of a node whose models move has changed. If it is so late that they would not move yet, they stay.
    fn lasts_longer(&mut self, id: NodeId, time: NodeTime, actions: &mut Actions) {
        if self.moves_at(id, &time) > self.now {
            self.no_longer_moves(id);
            self.schedule_moves(id);
            let (name, left) = (self.node_name(id), self.node_lasts(id));
            let text = format!("node {name} has more time, {left}: it continues to serve (N7)");
            let record = self.record(RecordKind::NodeEnds, None, text);
            actions.record(record);
        }
        self.node_changes(id);
    }

    /// Recalculates when the node's models have to move.
    pub(crate) fn schedule_moves(&mut self, id: NodeId) {
        let Some(before) = self.nodes.time(id).copied() else {
            return;
        };
        if self.nodes.moves(id) && !self.consolidation.empties(id) {
            return;
        }
        let moves = self.moves_at(id, &before);
        self.nodes.schedule_moves(id, moves);
    }

    pub(crate) fn schedule_all_moves(&mut self) {
        for id in self.nodes.timed() {
            self.schedule_moves(id);
        }
    }

    /// The same for the node of a replica that came, left or whose figures changed.
    pub(crate) fn schedule_moves_of(&mut self, replica: ReplicaId) {
        if !self.nodes.any_has_time() {
            return;
        }
        let replica = self.replicas.get(&replica);
        let nodes: Vec<NodeId> = replica
            .into_iter()
            .flat_map(|replica| self.nodes_of(replica))
            .collect();
        for node in nodes {
            self.schedule_moves(node);
        }
    }
}
