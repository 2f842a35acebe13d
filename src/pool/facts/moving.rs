//! Finds replicas on nodes whose time ends and counts the replicas that their models need on other nodes (N7). Read-only.

use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::types::ids::{DeviceId, ModelId, NodeId, ReplicaId, Span, Time};
use crate::types::node::NodeTime;
use crate::types::replica::{Phase, Replica};

/// Allows for a cluster that takes longer than last time.
const BRINGS_MARGIN: u64 = 2;

impl Pool {
    /// Returns true if the models of the replica's node move.
    pub(crate) fn is_moving(&self, replica: &Replica) -> bool {
        self.moving_node_of(replica).is_some()
    }

    /// The first of the replica's nodes to end, if its models move.
    pub(crate) fn moving_node_of(&self, replica: &Replica) -> Option<NodeId> {
        if !self.nodes.any_moves() {
            return None;
        }
        let moving = self
            .nodes_of(replica)
            .filter(|node| self.nodes.moves(*node));
        moving.min_by_key(|node| self.nodes.time(*node).map(NodeTime::ends))
    }

    /// Returns true if the replica's node is emptied because a cheaper place is free (S3).
    pub(crate) fn is_emptied(&self, replica: &Replica) -> bool {
        let current = self.consolidation.current();
        current.is_some_and(|(node, _)| self.node_of(replica) == node)
    }

    /// The remaining time of the replica's node, if its models move because it ends.
    pub(crate) fn time_of(&self, replica: &Replica) -> Option<&NodeTime> {
        if self.is_emptied(replica) {
            return None;
        }
        self.nodes.time(self.moving_node_of(replica)?)
    }

    pub(crate) fn node_lasts(&self, node: NodeId) -> Span {
        let time = self.nodes.time(node);
        time.map_or(Span::ZERO, |time| time.ends().since(self.now))
    }

    /// Like `live`, restricted to nodes whose models do not move.
    pub(crate) fn staying(&self, model: &Model) -> usize {
        let all = model.replicas.iter().map(|id| &self.replicas[id]);
        let counted = all.filter(|replica| self.counts_as_live(replica));
        counted.filter(|replica| !self.is_moving(replica)).count()
    }

    /// The replicas counted by `staying` that are ready and reachable.
    pub(crate) fn staying_ready(&self, model: &Model) -> usize {
        let all = model.replicas.iter().map(|id| &self.replicas[id]);
        all.filter(|replica| self.stays_ready(replica)).count()
    }

    /// Returns true if the replica is ready and reachable, on a node whose models do not move.
    pub(crate) fn stays_ready(&self, replica: &Replica) -> bool {
        let is_ready = matches!(replica.phase, Phase::Ready { .. });
        is_ready && !self.is_silent(replica) && !self.is_moving(replica)
    }

    /// The live replicas of the model that have to move or to end.
    pub(crate) fn moving_of<'a>(&'a self, model: &'a Model) -> impl Iterator<Item = &'a Replica> {
        let all = model.replicas.iter().map(|id| &self.replicas[id]);
        all.filter(|replica| replica.is_live() && self.is_moving(replica))
    }

    /// The number of replicas that should be on other nodes before those on nodes whose time ends may leave. Counts models that are
    /// always-hot, in use, or wished for by an administrator.
    pub(crate) fn moves_wanted(&self, id: ModelId) -> usize {
        if !self.nodes.any_moves() || self.service.is_closing() {
            return 0;
        }
        let Some(model) = self.models.get(&id).filter(|model| !model.removed) else {
            return 0;
        };
        let mut moving = self.moving_of(model).peekable();
        if moving.peek().is_none() {
            return 0;
        }
        let is_emptied = self
            .moving_of(model)
            .any(|replica| self.is_emptied(replica));
        let is_busy = !model.queue.is_empty() || moving.any(|replica| replica.in_flight > 0);
        let wished = model.wish.as_ref().map_or(0, |wish| wish.replicas as usize);
        let needed =
            usize::from(is_emptied || is_busy || (self.is_protected(id) && !model.kept_away()));
        needed.max(wished).min(self.live(model))
    }

    /// The number of these replicas that are not on their way yet, not counting planned loads.
    pub(crate) fn moves_lacking(&self, id: ModelId) -> usize {
        match self.moves_wanted(id) {
            0 => 0,
            wanted => wanted.saturating_sub(self.staying(&self.models[&id])),
        }
    }

    /// The node that the model moves from, and the remaining time.
    pub(crate) fn moves_from(&self, id: ModelId) -> Option<(NodeId, Span)> {
        let replica = self.moving_of(self.models.get(&id)?).next()?;
        let node = self.moving_node_of(replica)?;
        Some((node, self.node_lasts(node)))
    }

    /// The models of the node stay there. Copies that were loaded on other nodes leave as surplus (N8).
    pub(crate) fn no_longer_moves(&mut self, node: NodeId) {
        self.nodes.stops_moving(node);
        for replica in self.replicas_on(node) {
            let model = self.replicas[&replica].model;
            let model = self
                .models
                .get_mut(&model)
                .expect("a replica's model stays");
            model.has_returned |= model.replicas.len() > 1;
        }
    }

    /// The time at which the models of the node start to move. It leaves time for a successor node to join and load all of them.
    pub(crate) fn moves_at(&self, node: NodeId, time: &NodeTime) -> Time {
        match self.limits.node_renew_before {
            Some(before) => time.moves_before(before),
            None => {
                let brings = self.brings(node).0.saturating_mul(BRINGS_MARGIN);
                let takes = Span(brings) + self.loads_of(node);
                time.moves(takes, self.limits.unload_drain)
            }
        }
    }

    /// The time that the cluster takes to bring another node of this size. Until it has been measured, the patience for a node.
    fn brings(&self, node: NodeId) -> Span {
        let demand = &self.node_demand;
        if demand.shapes().is_empty() {
            return Span::ZERO;
        }
        let shape = self.nodes.known(node).and_then(|node| node.shape);
        demand.brings_in(shape).unwrap_or(self.limits.node_patience)
    }

    /// The time to load all models of the node one after another.
    fn loads_of(&self, node: NodeId) -> Span {
        let devices = self.nodes.devices_of(node);
        let holders = devices.flat_map(|id: &DeviceId| self.devices[id].holders.iter());
        let holders: alloc::collections::BTreeSet<ReplicaId> = holders.copied().collect();
        let replicas = holders.iter().filter_map(|id| self.replicas.get(id));
        let loads = replicas.map(|replica| self.models[&replica.model].reload());
        loads.fold(Span::ZERO, |all, one| all + one)
    }
}
