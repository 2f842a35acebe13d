//! The node sizes that a cluster can bring, the open request for a node, and the requested nodes that are idle or given back (S2).
//! Makes no choices.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use crate::types::ids::{Bytes, DemandId, ModelId, NodeId, Priority, ShapeId, Span, Time};
use crate::types::node_demand::{NodeShape, NodesSpent, PendingNode};

#[derive(Clone, Debug, Default)]
pub(crate) struct NodeDemand {
    shapes: BTreeMap<ShapeId, NodeShape>,
    pending: Option<PendingNode>,
    /// Sizes that failed, and the time until which they are not requested again.
    failed: BTreeMap<ShapeId, Time>,
    /// The reason why each size failed last.
    reasons: BTreeMap<ShapeId, String>,
    spent: NodesSpent,
    /// The last id given to a request.
    last: DemandId,
    /// Requested nodes with nothing loaded or planned, and the time since which they are idle.
    idle: BTreeMap<NodeId, Time>,
    /// The time the cluster took to bring a node of each size.
    brought_in: BTreeMap<ShapeId, Span>,
    /// Nodes that are being given back.
    releasing: BTreeSet<NodeId>,
}

impl NodeDemand {
    pub fn shapes(&self) -> &BTreeMap<ShapeId, NodeShape> {
        &self.shapes
    }

    pub fn pending(&self) -> Option<&PendingNode> {
        self.pending.as_ref()
    }

    /// Sizes that failed, and the time until which they are not requested again.
    pub fn failed(&self) -> &BTreeMap<ShapeId, Time> {
        &self.failed
    }

    /// The reason why the size failed last.
    pub fn reason(&self, shape: ShapeId) -> &str {
        self.reasons.get(&shape).map_or("", String::as_str)
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
    pub fn request(
        &mut self,
        shape: ShapeId,
        model: ModelId,
        priority: Priority,
        now: Time,
    ) -> DemandId {
        // Ids of an earlier run are smaller; nodes may join for them.
        let demand = DemandId(now.0.max(self.last.0 + 1));
        self.last = demand;
        self.pending = Some(PendingNode {
            demand,
            shape,
            shape_name: self.shape_name(shape),
            model,
            priority,
            since: now,
            reason: String::new(),
            joined: None,
        });
        demand
    }

    pub fn set_reason(&mut self, demand: DemandId, reason: String) {
        if let Some(pending) = self.open(demand) {
            pending.reason = reason;
        }
    }

    /// A node has joined for the request. Returns its size.
    pub fn node_joins(&mut self, demand: DemandId, node: NodeId, now: Time) -> Option<ShapeId> {
        let pending = self.open(demand)?;
        pending.joined = Some((node, now));
        Some(pending.shape)
    }

    /// The request has failed; its size is not requested again before `until`. Returns the size.
    pub fn fail(&mut self, demand: DemandId, until: Time, why: &str) -> Option<ShapeId> {
        let pending = self.pending.take_if(|pending| pending.demand == demand)?;
        self.failed.insert(pending.shape, until);
        self.reasons.insert(pending.shape, why.to_owned());
        Some(pending.shape)
    }

    /// The request is met or no longer needed.
    pub fn end(&mut self) -> Option<PendingNode> {
        self.pending.take()
    }

    fn open(&mut self, demand: DemandId) -> Option<&mut PendingNode> {
        let pending = self.pending.as_mut();
        pending.filter(|pending| pending.demand == demand)
    }
}

/// Sizes and nodes.
impl NodeDemand {
    pub fn set_shapes(&mut self, shapes: impl IntoIterator<Item = NodeShape>) {
        let shapes = shapes.into_iter().map(|shape| (shape.shape, shape));
        self.shapes = shapes.collect();
        let known = &self.shapes;
        self.failed.retain(|id, _| known.contains_key(id));
    }

    /// Lowers the figures of a size to what a node of it has. Returns its name and the figures before if they were higher.
    pub fn lower(
        &mut self,
        shape: ShapeId,
        devices: u32,
        bytes_per_device: Bytes,
    ) -> Option<(String, u32, Bytes)> {
        let known = self.shapes.get_mut(&shape)?;
        let before = (known.devices, known.bytes_per_device);
        known.devices = known.devices.min(devices);
        known.bytes_per_device = known.bytes_per_device.min(bytes_per_device);
        let is_lower = (known.devices, known.bytes_per_device) != before;
        is_lower.then(|| (known.name.clone(), before.0, before.1))
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

    /// Forgets all failures.
    pub fn reset(&mut self) {
        self.failed.clear();
    }

    /// Sets the nodes that are idle now. Nodes that were idle before keep their time.
    pub fn set_idle(&mut self, nodes: &[NodeId], now: Time) {
        self.idle.retain(|node, _| nodes.contains(node));
        for &node in nodes {
            self.idle.entry(node).or_insert(now);
        }
    }

    pub fn release(&mut self, node: NodeId) {
        self.releasing.insert(node);
        self.idle.remove(&node);
    }

    pub fn no_longer_releases(&mut self, node: NodeId) {
        self.releasing.remove(&node);
    }

    pub fn node_goes(&mut self, node: NodeId) {
        self.idle.remove(&node);
        self.releasing.remove(&node);
    }
}
