//! Tracks requests for nodes (pending, refused, fulfilled) and which requested nodes are idle (S2). Facts only.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use crate::commit::actions::Actions;
use crate::facts::state::Pool;
use crate::plan::node_use::is_idle;
use crate::types::action::RecordKind;
use crate::types::ids::{DemandId, NodeId, ShapeId};
use crate::types::node::Node;
use crate::types::node_demand::{NodeOutlook, NodeSet, NodeShape, PendingNode};

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
        let times = (self.now, until);
        let Some(failed) = self.node_demand.fail(demand, times, why) else {
            return;
        };
        let name = self.node_demand.shape_name(failed.shape);
        let wanted = failed.set.map_or(1, |set| set.requests);
        let pause = if self.node_demand.closed(failed.shape, wanted).is_some() {
            "none is requested until the cluster can bring one".into()
        } else {
            format!(
                "none that large is requested for {}",
                self.limits.node_retry
            )
        };
        let set = failed.set.filter(|set| set.requests > 1);
        let set = set.map_or_else(String::new, |set| {
            format!(
                "the {} nodes requested together are given up (M8); ",
                set.requests
            )
        });
        let text = format!("no node of size {name}: {why}; {set}{pause} (S2)");
        let record = self.record(RecordKind::NodeRefused, None, text);
        actions.record(record);
        self.set_dissolves(failed.set);
        if let Some((node, _)) = failed.joined {
            self.node_changes(node);
        }
        self.touch_everything();
    }

    /// A set will not be complete. Its nodes that have joined are like all others until they are given back.
    pub(crate) fn set_dissolves(&mut self, set: Option<NodeSet>) {
        let Some(set) = set else {
            return;
        };
        for node in self.node_demand.take_joined(set, false, self.now) {
            self.node_changes(node);
        }
    }

    /// A requested node has joined. It counts as pending until its devices are known.
    pub(crate) fn demand_is_met(
        &mut self,
        node: NodeId,
        demand: Option<DemandId>,
    ) -> Option<ShapeId> {
        self.node_demand.node_joins(demand?, node, self.now)
    }

    /// A requested node has this size, and belongs to this lease of several nodes.
    pub(crate) fn node_sized(&mut self, node: NodeId, shape: ShapeId, lease: Option<DemandId>) {
        let is_known = self.node_demand.shapes().contains_key(&shape);
        if is_known && self.nodes.set_shape(node, shape, lease) {
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

    /// The nodes of a set whose devices are known hold the figures of their size, and the set ends once all of its nodes are here.
    fn devices_of_set(&mut self, set: NodeSet, actions: &mut Actions) {
        let is_here = |pending: &&PendingNode| {
            let wanted = self.node_demand.shapes().get(&pending.shape);
            let wanted = wanted.map_or(0, |shape| shape.devices as usize);
            pending.joined.is_some_and(|(node, _)| {
                let is_joined = self.nodes.known(node).is_some_and(Node::is_joined);
                is_joined && self.nodes.devices_of(node).count() >= wanted
            })
        };
        let here = self.node_demand.members(set.id).filter(is_here);
        let here: Vec<PendingNode> = here.cloned().collect();
        let Some(shape) = here.first().map(|pending| pending.shape) else {
            return;
        };
        let nodes = here.iter().filter_map(|pending| Some(pending.joined?.0));
        self.measure_shape(shape, nodes.collect(), actions);
        if here.len() < set.requests as usize {
            return;
        }
        for pending in here {
            self.node_demand
                .brought(shape, self.now.since(pending.since));
        }
        for node in self.node_demand.take_joined(set, true, self.now) {
            self.node_changes(node);
        }
        self.schedule_all_moves();
        self.touch_everything();
    }

    fn devices_of_request(&mut self, pending: &PendingNode, actions: &mut Actions) {
        let Some((node, at)) = pending.joined else {
            return;
        };
        let shape = self.node_demand.shapes().get(&pending.shape);
        let wanted = shape.map_or(0, |shape| shape.devices as usize);
        let has = self.nodes.devices_of(node).count();
        if has >= wanted
            && let Some(set) = pending.set
        {
            self.devices_of_set(set, actions);
        } else if has >= wanted {
            let (shape, took) = (pending.shape, self.now.since(pending.since));
            self.node_demand.end(pending.demand);
            self.measure_shape(shape, vec![node], actions);
            self.node_demand.brought(shape, took);
            self.schedule_all_moves();
            self.touch_everything();
        } else if at + self.limits.node_devices_within <= self.now {
            let (demand, shape, name) = (pending.demand, pending.shape, self.node_name(node));
            self.measure_shape(shape, vec![node], actions);
            let why = format!("node {name} has joined with {has} of {wanted} devices");
            self.node_refused(demand, &why, actions);
        }
    }

    /// Replaces the configured devices and memory of a size with the least figures of its nodes. Models that no longer fit do not
    /// request this size again.
    fn measure_shape(&mut self, shape: ShapeId, nodes: Vec<NodeId>, actions: &mut Actions) {
        let figures = nodes.into_iter().map(|node| {
            let devices = self.nodes.devices_of(node);
            let capacities = devices.map(|id| self.devices[id].capacity());
            let has = u32::try_from(self.nodes.devices_of(node).count()).unwrap_or(u32::MAX);
            (has, capacities.min().unwrap_or_default(), node)
        });
        let Some((has, least, node)) = figures.min() else {
            return;
        };
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
        let (nodes, devices) = (&self.nodes, &self.devices);
        self.node_demand.are_used(|node| {
            let mut on = nodes.devices_of(node);
            on.any(|device| !devices[device].holders.is_empty())
        });
    }
}
