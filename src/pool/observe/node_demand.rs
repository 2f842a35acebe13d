//! Tracks requests for nodes (pending, refused, fulfilled) and which requested nodes are idle (S2). Facts only.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::commit::actions::Actions;
use crate::facts::state::Pool;
use crate::plan::node_demand::is_idle;
use crate::types::action::RecordKind;
use crate::types::ids::{DemandId, NodeId, ShapeId};
use crate::types::node_demand::{NodeOutlook, NodeShape, PendingNode};

impl Pool {
    pub(crate) fn shapes_set(&mut self, shapes: Vec<NodeShape>) {
        self.node_demand.set_shapes(shapes);
        self.schedule_all_moves();
        self.touch_everything();
    }

    pub(crate) fn node_pending(&mut self, demand: DemandId, reason: String, outlook: NodeOutlook) {
        if self.node_demand.report(demand, reason, outlook, self.now) {
            self.touch_everything();
        }
    }

    pub(crate) fn node_refused(&mut self, demand: DemandId, why: &str, actions: &mut Actions) {
        let until = self.now + self.limits.node_retry;
        let Some(shape) = self.node_demand.fail(demand, until, why) else {
            return;
        };
        let name = self.node_demand.shape_name(shape);
        let pause = if self.node_demand.closed(shape).is_some() {
            "none is requested until the cluster can bring one".into()
        } else {
            format!(
                "none that large is requested for {}",
                self.limits.node_retry
            )
        };
        let text = format!("no node of size {name}: {why}; {pause} (S2)");
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
        self.node_demand.node_joins(demand?, node, self.now)
    }

    /// A requested node from before a restart has this size.
    pub(crate) fn node_sized(&mut self, node: NodeId, shape: ShapeId) {
        let is_known = self.node_demand.shapes().contains_key(&shape);
        if is_known && self.nodes.set_shape(node, shape) {
            self.touch_everything();
        }
    }

    /// Settles requests once their node's devices are known, or refuses a request if the node has too few devices after the limit.
    pub(crate) fn devices_of_demand(&mut self, actions: &mut Actions) {
        self.sizes_are_tried_again();
        let joined = self.node_demand.pending();
        let joined = joined.filter(|pending| pending.joined.is_some());
        let joined: Vec<PendingNode> = joined.cloned().collect();
        for pending in joined {
            self.devices_of_request(&pending, actions);
        }
    }

    fn devices_of_request(&mut self, pending: &PendingNode, actions: &mut Actions) {
        let Some((node, at)) = pending.joined else {
            return;
        };
        let shape = self.node_demand.shapes().get(&pending.shape);
        let wanted = shape.map_or(0, |shape| shape.devices as usize);
        let has = self.nodes.devices_of(node).count();
        if has >= wanted {
            let (shape, took) = (pending.shape, self.now.since(pending.since));
            self.node_demand.end(pending.demand);
            self.measure_shape(shape, node, actions);
            self.node_demand.brought(shape, took);
            self.schedule_all_moves();
            self.touch_everything();
        } else if at + self.limits.node_devices_within <= self.now {
            let (demand, shape, name) = (pending.demand, pending.shape, self.node_name(node));
            self.measure_shape(shape, node, actions);
            let why = format!("node {name} has joined with {has} of {wanted} devices");
            self.node_refused(demand, &why, actions);
        }
    }

    /// Replaces the configured devices and memory of a size with the figures of its node. Models that no longer fit do not request
    /// this size again.
    fn measure_shape(&mut self, shape: ShapeId, node: NodeId, actions: &mut Actions) {
        let devices = self.nodes.devices_of(node);
        let capacities = devices.map(|id| self.devices[id].capacity());
        let has = u32::try_from(self.nodes.devices_of(node).count()).unwrap_or(u32::MAX);
        let least = capacities.min().unwrap_or_default();
        let Some((size, count, bytes)) = self.node_demand.measure(shape, has, least) else {
            return;
        };
        let name = self.node_name(node);
        let text = format!(
            "node {name} has {has} x {least} for models, and its size {size} should have {count} x {bytes}: only models that fit request this size from now on (S2)"
        );
        let record = self.record(RecordKind::NodeRefused, None, text);
        actions.record(record);
        self.touch_everything();
    }

    /// After the time for a refused size has passed, every demand may be decided differently.
    fn sizes_are_tried_again(&mut self) {
        if self.node_demand.forget_failures(self.now) {
            self.touch_everything();
        }
    }

    /// Tracks the models that have to move. Their node holds all of them (N7): when they change, each may need another size.
    pub(crate) fn note_movers(&mut self) {
        let mut movers = BTreeMap::new();
        if !self.node_demand.shapes().is_empty() {
            let devices = self.nodes.moving().iter();
            let devices = devices.flat_map(|node| self.nodes.devices_of(*node));
            let holders = devices.flat_map(|id| &self.devices[id].holders);
            for replica in holders.filter_map(|id| self.replicas.get(id)) {
                let model = replica.model;
                let coming = self.models[&model].planned.len();
                let lacking = self.moves_lacking(model).saturating_sub(coming);
                if lacking > 0 {
                    movers.insert(model, lacking);
                }
            }
        }
        if self.node_demand.set_movers(movers) {
            self.grows_everywhere();
        }
    }

    /// Tracks since when each requested node has been idle; a node that is idle for long enough is given back.
    pub(crate) fn note_idle_nodes(&mut self) {
        let leased = self.nodes.all_known().iter();
        let leased = leased.filter(|(_, node)| node.demand.is_some() && node.is_joined());
        let leased: Vec<NodeId> = leased.map(|(&id, _)| id).collect();
        if leased.is_empty() && self.node_demand.idle().is_empty() {
            return;
        }
        let idle = leased.into_iter().filter(|node| is_idle(self, *node));
        let idle: Vec<NodeId> = idle.collect();
        self.node_demand.set_idle(&idle, self.now);
    }
}
