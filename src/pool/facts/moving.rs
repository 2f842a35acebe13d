//! Which replicas are on nodes whose time ends, and how many others their models need (N7). Reads facts, changes none.

use crate::facts::state::{Model, Pool};
use crate::types::ids::{DeviceId, ModelId, NodeId, ReplicaId, Span, Time};
use crate::types::node::NodeTime;
use crate::types::replica::{Phase, Replica};

/// A cluster may take longer than last time.
const BRINGS_MARGIN: u64 = 2;

impl Pool {
    /// Whether the models of the replica's node move.
    pub(crate) fn is_moving(&self, replica: &Replica) -> bool {
        !self.moving.is_empty() && self.moving.contains(&self.node_of(replica))
    }

    /// How long its node has, if its models move.
    pub(crate) fn time_of(&self, replica: &Replica) -> Option<&NodeTime> {
        match self.is_moving(replica) {
            true => self.node_times.get(&self.node_of(replica)),
            false => None,
        }
    }

    pub(crate) fn node_lasts(&self, node: NodeId) -> Span {
        let time = self.node_times.get(&node);
        time.map_or(Span::ZERO, |it| it.ends().since(self.now))
    }

    /// As `live`, on nodes whose models do not move.
    pub(crate) fn staying(&self, model: &Model) -> usize {
        let all = model.replicas.iter().map(|id| &self.replicas[id]);
        let counted = all.filter(|it| self.counts_as_live(it));
        counted.filter(|it| !self.is_moving(it)).count()
    }

    /// Those that are ready there and reached.
    pub(crate) fn staying_ready(&self, model: &Model) -> usize {
        let all = model.replicas.iter().map(|id| &self.replicas[id]);
        all.filter(|it| self.stays_ready(it)).count()
    }

    /// Whether it is ready and reached, on a node whose models do not move.
    pub(crate) fn stays_ready(&self, replica: &Replica) -> bool {
        let is_ready = matches!(replica.phase, Phase::Ready { .. });
        is_ready && !self.is_silent(replica) && !self.is_moving(replica)
    }

    /// The live replicas of the model that have to move or to end.
    pub(crate) fn moving_of<'a>(&'a self, model: &'a Model) -> impl Iterator<Item = &'a Replica> {
        let all = model.replicas.iter().map(|id| &self.replicas[id]);
        all.filter(|it| it.is_live() && self.is_moving(it))
    }

    /// How many replicas of the model should be on other nodes before those on nodes whose time ends may go: what is
    /// always-hot, in use, or wished by an administrator.
    pub(crate) fn moves_wanted(&self, id: ModelId) -> usize {
        if self.moving.is_empty() || self.closing.is_some() {
            return 0;
        }
        let Some(model) = self.models.get(&id).filter(|it| !it.removed) else {
            return 0;
        };
        let mut moving = self.moving_of(model).peekable();
        if moving.peek().is_none() {
            return 0;
        }
        let is_busy = !model.queue.is_empty() || moving.any(|it| it.in_flight > 0);
        let wished = model.wish.as_ref().map_or(0, |it| it.replicas as usize);
        let needed = usize::from(is_busy || (self.is_protected(id) && !model.kept_away()));
        needed.max(wished).min(self.live(model))
    }

    /// How many of them are not on their way yet, planned loads apart.
    pub(crate) fn moves_lacking(&self, id: ModelId) -> usize {
        match self.moves_wanted(id) {
            0 => 0,
            wanted => wanted.saturating_sub(self.staying(&self.models[&id])),
        }
    }

    /// The node that the model moves from, with the time that is left.
    pub(crate) fn moves_from(&self, id: ModelId) -> Option<(NodeId, Span)> {
        let replica = self.moving_of(self.models.get(&id)?).next()?;
        let node = self.node_of(replica);
        Some((node, self.node_lasts(node)))
    }

    /// When the models of the node are to move: so early that a successor can come and load all of them.
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

    /// How long the cluster takes to bring one more of these nodes; before that was measured, as long as is waited for it.
    fn brings(&self, node: NodeId) -> Span {
        let demand = &self.node_demand;
        if demand.shapes.is_empty() {
            return Span::ZERO;
        }
        let shape = self.known_nodes.get(&node).and_then(|it| it.shape);
        let own = shape.and_then(|it| demand.brought_in.get(&it)).copied();
        let any = demand.brought_in.values().max().copied();
        own.or(any).unwrap_or(self.limits.node_patience)
    }

    /// How long its models take to load one after another.
    fn loads_of(&self, node: NodeId) -> Span {
        let devices = self.nodes.get(&node).into_iter().flatten();
        let holders = devices.flat_map(|id: &DeviceId| self.devices[id].holders.iter());
        let holders: alloc::collections::BTreeSet<ReplicaId> = holders.copied().collect();
        let replicas = holders.iter().filter_map(|id| self.replicas.get(id));
        let loads = replicas.map(|it| self.models[&it.model].reload());
        loads.fold(Span::ZERO, |all, one| all + one)
    }
}
