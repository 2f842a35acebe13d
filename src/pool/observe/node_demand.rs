//! Tracks requests for nodes (pending, refused, fulfilled) and which requested nodes are idle (S2). Facts only.

use alloc::string::String;
use alloc::vec::Vec;

use crate::commit::actions::Actions;
use crate::facts::state::Pool;
use crate::plan::node_demand::is_idle;
use crate::types::action::RecordKind;
use crate::types::ids::{DemandId, NodeId, ShapeId, Span};
use crate::types::node_demand::NodeShape;

impl Pool {
    pub(crate) fn shapes_set(&mut self, shapes: Vec<NodeShape>) {
        let shapes = shapes.into_iter().map(|shape| (shape.shape, shape));
        self.node_demand.shapes = shapes.collect();
        let known = &self.node_demand.shapes;
        self.node_demand
            .failed
            .retain(|id, _| known.contains_key(id));
        self.schedule_all_moves();
        self.touch_everything();
    }

    pub(crate) fn node_pending(&mut self, demand: DemandId, reason: String) {
        let pending = self.node_demand.pending.as_mut();
        if let Some(pending) = pending.filter(|pending| pending.demand == demand) {
            pending.reason = reason;
        }
    }

    pub(crate) fn node_refused(&mut self, demand: DemandId, why: &str, actions: &mut Actions) {
        let pending = self
            .node_demand
            .pending
            .take_if(|pending| pending.demand == demand);
        let Some(pending) = pending else {
            return;
        };
        let until = self.now + self.limits.node_retry;
        self.node_demand.failed.insert(pending.shape, until);
        let name = self.shape_name(pending.shape);
        let retry = self.limits.node_retry;
        let text =
            format!("no node of size {name}: {why}; none that large is requested for {retry} (S2)");
        let record = self.record(RecordKind::NodeRefused, None, text);
        actions.record(record);
        self.touch_everything();
    }

    /// A requested node has joined. It counts as pending until its devices are known.
    pub(crate) fn demand_is_met(
        &mut self,
        node: NodeId,
        demand: Option<DemandId>,
    ) -> Option<ShapeId> {
        let joined = Some((node, self.now));
        let pending = self.node_demand.pending.as_mut();
        let pending = pending.filter(|pending| Some(pending.demand) == demand)?;
        pending.joined = joined;
        Some(pending.shape)
    }

    /// Settles the request once the node's devices are known, or refuses it if the node has too few devices after the limit.
    pub(crate) fn devices_of_demand(&mut self, actions: &mut Actions) {
        self.sizes_are_tried_again();
        let Some(pending) = &self.node_demand.pending else {
            return;
        };
        let Some((node, at)) = pending.joined else {
            return;
        };
        let shape = self.node_demand.shapes.get(&pending.shape);
        let wanted = shape.map_or(0, |shape| shape.devices as usize);
        let has = self.nodes.get(&node).map_or(0, |devices| devices.len());
        if has >= wanted {
            let (shape, took) = (pending.shape, self.now.since(pending.since));
            self.node_demand.pending = None;
            self.measure_shape(shape, node, actions);
            self.brought(shape, took);
            self.touch_everything();
        } else if at + self.limits.node_devices_within <= self.now {
            let (demand, shape, name) = (pending.demand, pending.shape, self.node_name(node));
            self.measure_shape(shape, node, actions);
            let why = format!("node {name} has joined with {has} of {wanted} devices");
            self.node_refused(demand, &why, actions);
        }
    }

    /// Lowers the configured devices and memory of a size to the figures of a node that has less. Models that no longer fit
    /// do not request this size again.
    fn measure_shape(&mut self, shape: ShapeId, node: NodeId, actions: &mut Actions) {
        let devices = self.nodes.get(&node);
        let has = devices.map_or(0, |devices| {
            u32::try_from(devices.len()).unwrap_or(u32::MAX)
        });
        let capacities = devices
            .into_iter()
            .flatten()
            .map(|id| self.devices[id].capacity());
        let least = capacities.min().unwrap_or_default();
        let Some(known) = self.node_demand.shapes.get_mut(&shape) else {
            return;
        };
        let configured = (known.devices, known.bytes_per_device);
        known.devices = known.devices.min(has);
        known.bytes_per_device = known.bytes_per_device.min(least);
        if (known.devices, known.bytes_per_device) == configured {
            return;
        }
        let size = known.name.clone();
        let name = self.node_name(node);
        let (count, bytes) = configured;
        let text = format!(
            "node {name} has {has} x {least} for models, and its size {size} should have {count} x {bytes}: only models that fit request this size from now on (S2)"
        );
        let record = self.record(RecordKind::NodeRefused, None, text);
        actions.record(record);
        self.touch_everything();
    }

    /// Remembers that a cluster was slow, with less weight each time.
    fn brought(&mut self, shape: ShapeId, took: Span) {
        let known = self.node_demand.brought_in.entry(shape).or_insert(took);
        *known = Span(known.0.midpoint(took.0)).max(took);
        self.schedule_all_moves();
    }

    /// After the time for a refused size has passed, every demand may be decided differently.
    fn sizes_are_tried_again(&mut self) {
        let now = self.now;
        let failed = &mut self.node_demand.failed;
        let before = failed.len();
        failed.retain(|_, until| *until > now);
        if failed.len() < before {
            self.touch_everything();
        }
    }

    /// Tracks since when each requested node has been idle; a node that is idle for long enough is given back.
    pub(crate) fn note_idle_nodes(&mut self) {
        let leased = self.known_nodes.iter();
        let leased = leased.filter(|(_, node)| node.demand.is_some() && node.is_joined());
        let leased: Vec<NodeId> = leased.map(|(&id, _)| id).collect();
        if leased.is_empty() && self.node_demand.idle.is_empty() {
            return;
        }
        let now = self.now;
        let mut idle = core::mem::take(&mut self.node_demand.idle);
        idle.retain(|node, _| leased.contains(node));
        for node in leased {
            if is_idle(self, node) {
                idle.entry(node).or_insert(now);
            } else {
                idle.remove(&node);
            }
        }
        self.node_demand.idle = idle;
    }
}
