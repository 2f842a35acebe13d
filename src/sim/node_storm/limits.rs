//! Time limits of the nodes of a storm. Some are known from the start, some come suddenly, as when a job is preempted. The machine
//! ends at the limit. Checks the related promises (N7): an always-hot model with a place on another node never goes cold, and no
//! stream is cut before it must be, or without the pool.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Due, LENGTH, Play};
use pool::{
    DeviceId, Event, ModelId, NodeId, Priority, Record, RecordKind, ReplicaId, Span, StopReason,
    Ticket, Time,
};

/// The longest load of a storm, plus the pool's own time around it.
const LOAD_MAX: Span = Span::from_secs(65);
/// The maximum time for which a model is not loaded after failures (L3).
const COOLS_DOWN_MAX: Span = Span::from_secs(400);
/// The time before its end at which a node may cut streams (N7).
const CUT_BEFORE: Span = Span::from_secs(15);

#[derive(Clone, Copy, Debug)]
struct Limit {
    /// The time the pool was first informed.
    known: Time,
    ends: Time,
    /// The latest time at which the models have to start moving.
    moves: Time,
    /// It was ordered to end by this time.
    leaves: Option<Time>,
}

impl Limit {
    fn last(&self) -> Time {
        self.ends.min(self.leaves.unwrap_or(self.ends))
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct TimeLimits {
    of: BTreeMap<NodeId, Limit>,
    /// The time since which another node has had a place for the always-hot model.
    place_since: BTreeMap<(NodeId, ModelId), Time>,
    /// The time of the last engine failure of each model.
    failed: BTreeMap<ModelId, Time>,
}

impl TimeLimits {
    /// An engine of the model ended on its own.
    pub fn fails(&mut self, model: ModelId, at: Time) {
        self.failed.insert(model, at);
        self.disturbed();
    }

    /// Returns true if the model may be cooling down.
    fn has_failed(&self, model: ModelId, at: Time) -> bool {
        let last = self.failed.get(&model);
        last.is_some_and(|last| at.since(*last) < COOLS_DOWN_MAX)
    }

    pub fn are_known_of(&self, node: NodeId) -> bool {
        self.of.contains_key(&node)
    }

    /// A disturbance: loads that had begun may have to start again.
    pub fn disturbed(&mut self) {
        self.place_since.clear();
    }
}

impl Play {
    /// The node has joined, so its end is known again. Some nodes get their first limit now.
    pub(super) fn limit_is_known(&mut self, at: Time, node: NodeId) {
        let is_leased = self.leases.demands.contains_key(&node);
        let is_new = !self.limits.of.contains_key(&node) && !self.peace;
        if is_new && self.random.chance(if is_leased { 600 } else { 100 }) {
            let length = Span(self.random.between(120_000, LENGTH / 2));
            self.gets_limit(at, node, at + length);
        }
        if let Some(limit) = self.limits.of.get(&node).copied() {
            self.feed(
                at,
                Event::NodeEnds {
                    node,
                    at: limit.ends,
                },
            );
            if let Some(leaves) = limit.leaves {
                self.feed(at, Event::NodeLeaves { node, at: leaves });
            }
        }
    }

    fn gets_limit(&mut self, at: Time, node: NodeId, ends: Time) {
        let known = self.limits.of.get(&node).map_or(at, |limit| limit.known);
        let half = known + Span(ends.since(known).0 / 2);
        let limit = Limit {
            known,
            ends,
            moves: half.max(at),
            leaves: None,
        };
        self.limits.of.insert(node, limit);
        self.timeline.push(ends, Due::Over(node, ends));
        if self.random.chance(250) {
            let sooner = at + Span(self.random.below(ends.since(at).0.max(1)));
            self.timeline.push(sooner, Due::Preempted(node));
        }
    }

    /// The cluster takes the machine in two minutes. Some nodes are informed themselves; for the others the cluster reports it.
    pub(super) fn is_preempted(&mut self, at: Time, node: NodeId) {
        let ends = at + Span::from_secs(120);
        let link = &self.links[&node];
        let (is_cut, has_ended) = (link.is_cut, link.has_ended);
        let known = self.limits.of.get(&node).copied();
        let Some(known) = known.filter(|limit| limit.last() > ends && !has_ended) else {
            return;
        };
        if self.peace {
            return;
        }
        self.gets_limit(at, node, ends);
        let is_informed = self.random.chance(500);
        if let Some(limit) = self.limits.of.get_mut(&node) {
            limit.leaves = is_informed.then_some(ends);
            limit.moves = if is_informed {
                at
            } else {
                (known.known + Span(ends.since(known.known).0 / 2)).max(at)
            };
        }
        if is_cut {
            return;
        }
        if is_informed {
            self.feed(at, Event::NodeLeaves { node, at: ends });
        } else {
            self.feed(at, Event::NodeEnds { node, at: ends });
        }
    }

    /// The machine ends with everything on it.
    pub(super) fn is_over(&mut self, at: Time, node: NodeId, ends: Time) {
        let is_current = self
            .limits
            .of
            .get(&node)
            .is_some_and(|limit| limit.ends == ends);
        if !is_current || self.links[&node].has_ended {
            return;
        }
        let is_reached = !self.links[&node].is_cut;
        let limit = self.limits.of[&node];
        let was_known = limit.known + Span::from_secs(60) <= at && is_reached;
        // Engines ordered to end may take longer than their node.
        let mut on = self.truth.on(node);
        on.retain(|id| !self.truth.processes[id].is_ordered_to_end);
        let inside = self
            .world
            .seats
            .iter()
            .filter(|(_, on_it)| on.contains(on_it));
        let inside: Vec<(Ticket, ReplicaId)> = inside
            .map(|(&ticket, &replica)| (ticket, replica))
            .collect();
        if let Some((ticket, replica)) = inside
            .first()
            .filter(|_| was_known && !self.was_cut_lately(node, at))
        {
            self.report.broken.push(format!(
                "N7: {ticket} on {replica} was cut by the end of {node} and not by the pool"
            ));
        }
        self.report.limits_over += 1;
        self.leaves(at, node);
        self.limits.disturbed();
    }

    fn was_cut_lately(&self, node: NodeId, at: Time) -> bool {
        let back = self.links[&node].joined;
        back + Span::from_secs(60) > at
    }

    /// After each event: records where always-hot models could be instead.
    pub(super) fn look_for_places(&mut self, at: Time) {
        if self.limits.of.is_empty() {
            return;
        }
        let hot = self
            .specs
            .iter()
            .filter(|(_, spec)| spec.priority >= Priority::ALWAYS_HOT);
        let hot: Vec<ModelId> = hot.map(|(&id, _)| id).collect();
        for (&node, limit) in &self.limits.of.clone() {
            for &model in &hot {
                let key = (node, model);
                let is_due = limit.moves <= at && !self.links[&node].has_ended;
                if is_due && self.has_place(at, node, model) {
                    self.limits.place_since.entry(key).or_insert(at);
                } else {
                    self.limits.place_since.remove(&key);
                }
            }
        }
    }

    /// Returns true if another node that stays has room, both by the memory a plan may use and by the memory that is really free.
    fn has_place(&self, at: Time, than: NodeId, model: ModelId) -> bool {
        let spec = &self.specs[&model];
        let stays = |node: &NodeId| {
            let link = &self.links[node];
            let limit = self.limits.of.get(node);
            let stays = limit.is_none_or(|limit| limit.leaves.is_none() && limit.moves > at);
            *node != than && stays && !link.is_cut && !link.has_ended
        };
        let held = self.truth.held();
        let fits = |device: &DeviceId| {
            let known = self.world.pool.reserved(*device);
            let total = self.truth.devices[device].total;
            let really = held.get(device).copied().unwrap_or_default();
            let free = total.saturating_sub(really.max(known));
            let counted = self.world.pool.free_later(*device);
            free.min(counted) >= spec.bytes_per_device
        };
        let mut nodes = self.links.keys().filter(|node| stays(node));
        nodes.any(|node| {
            let all = self.truth.devices_of(*node).into_iter().map(|(id, _)| id);
            let devices = all.filter(|id| self.world.pool.has_device(*id) && fits(id));
            devices.count() >= spec.devices_per_replica as usize
        })
    }

    /// A gate closes because its node ends.
    pub(super) fn check_record(&mut self, at: Time, record: &Record) {
        let is_it = record.kind == RecordKind::Drain && record.cause == Some("node_ends");
        let Some(replica) = record.replica.filter(|_| is_it) else {
            return;
        };
        let Some(process) = self.truth.processes.get(&replica).cloned() else {
            return;
        };
        let (node, model) = (process.node, process.model);
        let mut others = self.truth.replicas_of(model).into_iter();
        let is_hot = others.any(|id| {
            let other = &self.truth.processes[&id];
            id != replica && other.ready.is_some() && !self.links[&other.node].is_cut
        });
        if is_hot {
            self.report.moved += 1;
            return;
        }
        let since = self.limits.place_since.get(&(node, model));
        let ready = process.ready.unwrap_or(at);
        if let Some(since) = since.map(|since| (*since).max(ready))
            && at.since(since) > LOAD_MAX
            && !self.limits.has_failed(model, at)
        {
            self.report.broken.push(format!(
                "N7: {model} goes cold with {replica} on {node}, and it had a place on another node for {}",
                at.since(since)
            ));
        }
    }

    /// Streams are cut.
    pub(super) fn check_cut(&mut self, at: Time, replica: ReplicaId, reason: &StopReason) {
        let inside = self.world.seats.values().any(|on| *on == replica);
        if !inside || !matches!(reason, StopReason::NodeEnds { .. }) {
            return;
        }
        let node = self.node_of.get(&replica);
        let Some(limit) = node.and_then(|node| self.limits.of.get(node)) else {
            return;
        };
        if at + CUT_BEFORE < limit.last() {
            let left = limit.last().since(at);
            self.report.broken.push(format!(
                "N7: streams of {replica} are cut {left} before its node ends"
            ));
        }
    }
}
