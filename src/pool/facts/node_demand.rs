//! The node sizes that a cluster can bring, the open requests for nodes, and the requested nodes that are idle or given back (S2).
//! Makes no choices.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;

use crate::types::ids::{Bytes, DemandId, ModelId, NodeId, Priority, ShapeId, Span, Time};
use crate::types::node_demand::{NodeOutlook, NodeShape, NodesSpent, PendingNode};

#[derive(Clone, Debug, Default)]
pub(crate) struct NodeDemand {
    shapes: BTreeMap<ShapeId, NodeShape>,
    /// Open requests, including requests whose node has joined without its devices.
    pending: BTreeMap<DemandId, PendingNode>,
    /// Figures of sizes, as found on the last node of each.
    measured: BTreeMap<ShapeId, MeasuredShape>,
    /// Sizes that the cluster cannot bring at present, with the reason.
    closed: BTreeMap<ShapeId, String>,
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

    /// The reason why the cluster cannot bring a node of this size at present, if it reports one.
    pub fn closed(&self, shape: ShapeId) -> Option<&str> {
        self.closed.get(&shape).map(String::as_str)
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
        };
        self.pending.insert(demand, pending);
        demand
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

    /// Replaces the sizes that the cluster cannot bring at present. Returns true if they differ from the earlier ones.
    pub fn close(&mut self, closed: BTreeMap<ShapeId, String>) -> bool {
        let is_same = closed.keys().eq(self.closed.keys());
        self.closed = closed;
        !is_same
    }

    /// A node has joined for the request. Returns its size.
    pub fn node_joins(&mut self, demand: DemandId, node: NodeId, now: Time) -> Option<ShapeId> {
        let pending = self.pending.get_mut(&demand)?;
        pending.joined = Some((node, now));
        Some(pending.shape)
    }

    /// The request has failed; its size is not requested again before `until`, or as long as the cluster cannot bring it.
    /// Returns the size.
    pub fn fail(&mut self, demand: DemandId, until: Time, why: &str) -> Option<ShapeId> {
        let pending = self.pending.remove(&demand)?;
        if !self.closed.contains_key(&pending.shape) {
            self.failed.insert(pending.shape, until);
            self.reasons.insert(pending.shape, why.to_owned());
        }
        Some(pending.shape)
    }

    /// The request is met or no longer needed.
    pub fn end(&mut self, demand: DemandId) -> Option<PendingNode> {
        self.pending.remove(&demand)
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
        self.failed.retain(|id, _| known.contains_key(id));
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
        self.idle.remove(&node);
        self.releasing.remove(&node);
    }
}
