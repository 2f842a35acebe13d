//! The node sizes that a cluster can bring, the open requests for nodes, and the requested nodes that are idle or given back (S2).
//! Makes no choices.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::types::ids::{Bytes, DemandId, ModelId, NodeId, Priority, ShapeId, Span, Time};
use crate::types::node_demand::{
    NodeOutlook, NodeRoom, NodeSet, NodeShape, NodesSpent, PendingNode,
};

/// A size, and the number of its nodes that the cluster did not bring together.
pub(crate) type FailedNodes = (ShapeId, u32);

#[derive(Clone, Debug, Default)]
pub(crate) struct NodeDemand {
    shapes: BTreeMap<ShapeId, NodeShape>,
    /// Open requests, including requests whose node has joined without its devices.
    pending: BTreeMap<DemandId, PendingNode>,
    /// Figures of sizes, as found on the last node of each.
    measured: BTreeMap<ShapeId, MeasuredShape>,
    /// Sizes of which the cluster can bring only some nodes at present.
    closed: BTreeMap<ShapeId, NodeRoom>,
    /// Requests that failed, and the time until which as many nodes of this size are not requested again.
    failed: BTreeMap<FailedNodes, Time>,
    /// The reason why each failed last.
    reasons: BTreeMap<FailedNodes, String>,
    spent: NodesSpent,
    /// The last id given to a request, without the mark for batches.
    last: DemandId,
    /// Requested nodes with nothing loaded or planned, and the time since which they are idle.
    idle: BTreeMap<NodeId, Time>,
    /// Nodes whose sets have failed or were withdrawn, until they are used or gone, and the time at which that happened.
    left_alone: BTreeMap<NodeId, Time>,
    /// The time the cluster took to bring a node of each size.
    brought_in: BTreeMap<ShapeId, Span>,
    /// Nodes that are being given back.
    releasing: BTreeSet<NodeId>,
    /// The models that have to move, and the replicas that each lacks on other nodes (N7).
    movers: BTreeMap<ModelId, usize>,
}

/// The configured figures of a size, and the figures of a node of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MeasuredShape {
    configured: (u32, Bytes),
    found: (u32, Bytes),
}

impl NodeDemand {
    pub fn shapes(&self) -> &BTreeMap<ShapeId, NodeShape> {
        &self.shapes
    }

    /// Open requests, the oldest first.
    pub fn pending(&self) -> impl Iterator<Item = &PendingNode> + Clone {
        self.pending.values()
    }

    pub fn request_of(&self, demand: DemandId) -> Option<&PendingNode> {
        self.pending.get(&demand)
    }

    /// The reason why the cluster cannot bring this number of nodes of this size at present, if it reports one.
    pub fn closed(&self, shape: ShapeId, nodes: u32) -> Option<&str> {
        let room = self.closed.get(&shape);
        let room = room.filter(|room| room.nodes < nodes);
        room.map(|room| room.why.as_str())
    }

    /// Requests that failed, and the time until which as many nodes of this size are not requested again.
    pub fn failed(&self) -> &BTreeMap<FailedNodes, Time> {
        &self.failed
    }

    /// The reason why as many nodes of the size failed last.
    pub fn reason(&self, failed: FailedNodes) -> &str {
        self.reasons.get(&failed).map_or("", String::as_str)
    }

    /// The use by requested nodes.
    pub fn spent(&self) -> NodesSpent {
        self.spent
    }

    pub fn spend(&mut self, spent: NodesSpent) {
        self.spent = spent;
    }

    /// Idle nodes, and the time since which they are idle.
    pub fn idle(&self) -> &BTreeMap<NodeId, Time> {
        &self.idle
    }

    /// The time the cluster takes to bring a node of this size, or of any size; `None` if it never brought one.
    pub fn brings_in(&self, shape: Option<ShapeId>) -> Option<Span> {
        let own = shape.and_then(|shape| self.brought_in.get(&shape));
        own.or(self.brought_in.values().max()).copied()
    }

    /// The time at which the set of a node failed or was withdrawn, if the node has not been used since.
    pub fn is_left_since(&self, node: NodeId) -> Option<Time> {
        self.left_alone.get(&node).copied()
    }

    pub fn is_releasing(&self, node: NodeId) -> bool {
        self.releasing.contains(&node)
    }

    pub fn shape_name(&self, shape: ShapeId) -> String {
        let known = self.shapes.get(&shape);
        known.map_or_else(|| format!("{shape}"), |shape| shape.name.clone())
    }
}

/// The request.
impl NodeDemand {
    /// Opens requests for nodes of this size, for a replica that is spread over `span` nodes.
    pub fn request(
        &mut self,
        shape: ShapeId,
        (requests, span): (u32, u32),
        (model, for_batches): (ModelId, bool),
        priority: Priority,
        now: Time,
    ) -> Vec<DemandId> {
        // Ids of an earlier run are smaller; nodes may join for them.
        let first = DemandId(now.0.max(self.last.0 + 1));
        let set = (span > 1).then_some(NodeSet {
            id: first,
            requests,
            nodes: span,
        });
        let numbers = (first.0..).map(DemandId).take(requests as usize);
        self.last = numbers.clone().last().unwrap_or(self.last);
        let mark = |id: DemandId| if for_batches { id.for_batches() } else { id };
        let demands = numbers.map(mark);
        for demand in demands.clone() {
            let pending = PendingNode {
                demand,
                shape,
                shape_name: self.shape_name(shape),
                model,
                priority,
                since: now,
                reason: String::new(),
                outlook: NodeOutlook::Unknown,
                outlook_since: now,
                joined: None,
                set,
            };
            self.pending.insert(demand, pending);
        }
        demands.collect()
    }

    /// Records the cluster's report about a request. Returns true if the outlook has changed.
    pub fn report(
        &mut self,
        demand: DemandId,
        reason: String,
        outlook: NodeOutlook,
        now: Time,
    ) -> bool {
        let Some(pending) = self.pending.get_mut(&demand) else {
            return false;
        };
        pending.reason = reason;
        let before = core::mem::replace(&mut pending.outlook, outlook);
        if core::mem::discriminant(&before) != core::mem::discriminant(&outlook) {
            pending.outlook_since = now;
        }
        before != outlook
    }

    /// Replaces the sizes of which the cluster can bring only some nodes. Returns true if there is room for other numbers of nodes.
    pub fn close(&mut self, closed: BTreeMap<ShapeId, NodeRoom>) -> bool {
        let of = |(shape, room): (&ShapeId, &NodeRoom)| (*shape, room.nodes);
        let is_same = closed.iter().map(of).eq(self.closed.iter().map(of));
        self.closed = closed;
        !is_same
    }

    /// A node has joined for the request. Returns its size.
    pub fn node_joins(&mut self, demand: DemandId, node: NodeId, now: Time) -> Option<ShapeId> {
        let pending = self.pending.get_mut(&demand)?;
        pending.joined = Some((node, now));
        Some(pending.shape)
    }

    /// The request has failed; as many nodes of its size as have not joined are not requested again before `until`, or as long as the
    /// cluster cannot bring it.
    pub fn fail(
        &mut self,
        demand: DemandId,
        (now, until): (Time, Time),
        why: &str,
    ) -> Option<PendingNode> {
        let pending = self.pending.get(&demand)?;
        let lacks = |of: &&DemandId| **of == demand || self.pending[*of].joined.is_none();
        let missing = self.made_with(pending).iter().filter(lacks).count();
        let failed = (pending.shape, u32::try_from(missing).unwrap_or(u32::MAX));
        if self.closed(failed.0, failed.1).is_none() {
            self.failed.insert(failed, until);
            self.reasons.insert(failed, why.to_owned());
        }
        let failed = self.pending.remove(&demand)?;
        if let (Some(_), Some((node, _))) = (failed.set, failed.joined) {
            self.left_alone.insert(node, now);
        }
        Some(failed)
    }

    /// The request is met or no longer needed.
    pub fn end(&mut self, demand: DemandId) -> Option<PendingNode> {
        self.pending.remove(&demand)
    }
}

/// Sets of requests.
impl NodeDemand {
    /// The open requests that were made together with this one, and it.
    pub fn made_with(&self, pending: &PendingNode) -> Vec<DemandId> {
        match pending.set {
            Some(set) => self.members(set.id).map(|member| member.demand).collect(),
            None => vec![pending.demand],
        }
    }

    /// The open requests of a set.
    pub fn members(&self, set: DemandId) -> impl Iterator<Item = &PendingNode> + Clone {
        let open = self.pending.values();
        open.filter(move |pending| pending.set.is_some_and(|of| of.id == set))
    }

    /// The set for which the node has joined, while other nodes or its devices are to come.
    pub fn set_of(&self, node: NodeId) -> Option<NodeSet> {
        let joined =
            |pending: &&PendingNode| pending.joined.is_some_and(|(known, _)| known == node);
        self.pending.values().find(joined)?.set
    }

    /// Ends the requests of a set whose nodes have joined. Returns the nodes. They are left alone if the set was not complete.
    pub fn take_joined(&mut self, set: NodeSet, is_complete: bool, now: Time) -> Vec<NodeId> {
        let joined = self
            .members(set.id)
            .filter_map(|member| Some((member.demand, member.joined?.0)));
        let joined: Vec<(DemandId, NodeId)> = joined.collect();
        for (demand, node) in &joined {
            self.pending.remove(demand);
            if !is_complete {
                self.left_alone.insert(*node, now);
            }
        }
        joined.into_iter().map(|(_, node)| node).collect()
    }
}

/// Sizes and nodes.
impl NodeDemand {
    pub fn set_shapes(&mut self, shapes: impl IntoIterator<Item = NodeShape>) {
        let shapes = shapes.into_iter().map(|shape| (shape.shape, shape));
        self.shapes = shapes.collect();
        let measured = core::mem::take(&mut self.measured);
        for (shape, measured) in measured {
            self.remember(shape, measured);
        }
        let known = &self.shapes;
        self.failed.retain(|(id, _), _| known.contains_key(id));
        self.closed.retain(|id, _| known.contains_key(id));
    }

    /// Replaces the figures of a size with the figures of its node. The number of devices never exceeds the configured number.
    /// Returns the size's name and the figures before if they were higher.
    pub fn measure(
        &mut self,
        shape: ShapeId,
        devices: u32,
        bytes_per_device: Bytes,
    ) -> Option<(String, u32, Bytes)> {
        let known = self.shapes.get_mut(&shape)?;
        let before = (known.devices, known.bytes_per_device);
        let earlier = self.measured.get(&shape);
        let configured = earlier.map_or(before, |measured| measured.configured);
        let found = (configured.0.min(devices), bytes_per_device);
        (known.devices, known.bytes_per_device) = found;
        self.measured
            .insert(shape, MeasuredShape { configured, found });
        let is_lower = found.0 < before.0 || found.1 < before.1;
        is_lower.then(|| (known.name.clone(), before.0, before.1))
    }

    /// Applies the figures of an earlier node. A size whose configuration has changed since keeps its configured figures.
    fn remember(&mut self, shape: ShapeId, measured: MeasuredShape) {
        if let Some(known) = self.shapes.get_mut(&shape)
            && (known.devices, known.bytes_per_device) == measured.configured
        {
            (known.devices, known.bytes_per_device) = measured.found;
            self.measured.insert(shape, measured);
        }
    }

    /// The result of [`NodeDemand::remembered`] before a restart.
    pub fn restore(&mut self, shape: ShapeId, numbers: &[u64]) {
        let &[devices, bytes, found_devices, found_bytes] = numbers else {
            return;
        };
        let figures = |devices, bytes| Some((u32::try_from(devices).ok()?, Bytes(bytes)));
        let all = figures(devices, bytes).zip(figures(found_devices, found_bytes));
        if let Some((configured, found)) = all {
            self.remember(shape, MeasuredShape { configured, found });
        }
    }

    /// The configured and the measured figures of a size, to be kept across restarts; `None` before it was measured. A node that
    /// lacked devices may have been an exception.
    pub fn remembered(&self, shape: ShapeId) -> Option<[u64; 4]> {
        let MeasuredShape { configured, found } = self.measured.get(&shape)?;
        let (devices, bytes) = *configured;
        let is_complete = found.0 == devices && found.1 > Bytes::ZERO;
        is_complete.then_some([u64::from(devices), bytes.0, u64::from(found.0), found.1.0])
    }

    /// Remembers that a cluster was slow, with less weight each time.
    pub fn brought(&mut self, shape: ShapeId, took: Span) {
        let known = self.brought_in.entry(shape).or_insert(took);
        *known = Span(known.0.midpoint(took.0)).max(took);
    }

    /// Forgets failures that are long enough ago. Returns true if there were some.
    pub fn forget_failures(&mut self, now: Time) -> bool {
        let before = self.failed.len();
        self.failed.retain(|_, until| *until > now);
        self.failed.len() < before
    }

    /// Forgets all failures and measured figures.
    pub fn reset(&mut self) {
        self.failed.clear();
        for (shape, measured) in core::mem::take(&mut self.measured) {
            if let Some(known) = self.shapes.get_mut(&shape) {
                (known.devices, known.bytes_per_device) = measured.configured;
            }
        }
    }

    /// Sets the nodes that are idle now. Nodes that were idle before keep their time.
    pub fn set_idle(&mut self, nodes: &[NodeId], now: Time) {
        self.idle.retain(|node, _| nodes.contains(node));
        for &node in nodes {
            self.idle.entry(node).or_insert(now);
        }
    }

    /// Nodes that are in use are no longer left alone.
    pub fn are_used(&mut self, is_used: impl Fn(NodeId) -> bool) {
        self.left_alone.retain(|node, _| !is_used(*node));
    }

    /// Sets the models that have to move, and the replicas that each lacks on other nodes. Returns true if they differ from the earlier
    /// ones.
    pub fn set_movers(&mut self, movers: BTreeMap<ModelId, usize>) -> bool {
        let is_same = movers == self.movers;
        self.movers = movers;
        !is_same
    }

    pub fn release(&mut self, node: NodeId) {
        self.releasing.insert(node);
        self.idle.remove(&node);
    }

    pub fn no_longer_releases(&mut self, node: NodeId) {
        self.releasing.remove(&node);
    }

    pub fn node_goes(&mut self, node: NodeId) {
        self.left_alone.remove(&node);
        self.idle.remove(&node);
        self.releasing.remove(&node);
    }
}
