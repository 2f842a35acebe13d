//! The cluster of a storm over nodes. Requested nodes arrive late, smaller than promised, after cancellation, or never; nodes that
//! are given back end. Checks the pool's decisions about them (S2).

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{Due, LENGTH, Link, Play};
use pool::{
    Bytes, DemandId, DeviceId, DeviceReading, Event, KindId, ModelView, NodeId, NodeShape,
    Priority, ShapeId, Span, Time,
};

/// Nodes and devices of the cluster have larger ids than the others.
const FIRST_NODE: u32 = 100;
const FIRST_DEVICE: u32 = 1000;
const BYTES_PER_DEVICE: Bytes = Bytes(80 * Bytes::GIB);
/// The time for which a size is not requested again after a refusal (S2).
const NOT_AGAIN: Span = Span::from_secs(300);

/// The limit of nodes that the pool may hold and request at a time.
pub(super) const NODES_MAX: u32 = 3;

#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    pub shapes: Vec<NodeShape>,
    /// The open request of the pool.
    open: Option<(DemandId, ShapeId)>,
    refused: BTreeMap<ShapeId, Time>,
    /// The requests for which nodes have joined.
    pub demands: BTreeMap<NodeId, DemandId>,
    releasing: BTreeSet<NodeId>,
    nodes: u32,
    devices: u32,
}

impl Leases {
    /// A new controller does not know the requests of its predecessor.
    pub fn forget_open(&mut self) {
        self.open = None;
        self.refused.clear();
        self.releasing.clear();
    }
}

pub(super) fn shapes() -> Vec<NodeShape> {
    let shape = |number: u32, devices: u32| NodeShape {
        shape: ShapeId(number),
        name: format!("x{devices}"),
        devices,
        bytes_per_device: BYTES_PER_DEVICE,
        kind: KindId(9),
        nodes_max: None,
        cost_per_hour_cents: Some(devices * 100),
    };
    Vec::from([shape(0, 1), shape(1, 2)])
}

impl Play {
    fn breaks(&mut self, text: alloc::string::String) {
        self.report.broken.push(format!("S2: {text}"));
    }

    pub(super) fn is_requested(&mut self, at: Time, demand: DemandId, shape: ShapeId) {
        self.report.requested += 1;
        let nodes = self.world.pool.view(at).nodes;
        let held = nodes.iter().filter(|node| node.demand.is_some()).count();
        if held >= NODES_MAX as usize {
            self.breaks(format!(
                "{demand} is requested with {held} nodes, the limit"
            ));
        }
        if let Some((open, _)) = self.leases.open {
            self.breaks(format!("{demand} is requested while {open} is open"));
        }
        let refused = self.leases.refused.get(&shape);
        if refused.is_some_and(|refused| at < *refused + NOT_AGAIN) {
            self.breaks(format!("{shape} is requested again soon after a refusal"));
        }
        self.leases.open = Some((demand, shape));
        let soon = Span(self.random.between(500, 300_000));
        match self.random.below(100) {
            0..=19 => self.push(at + soon, Due::IsRefused(demand)),
            // The request waits in the cluster's queue forever.
            20..=34 => {}
            _ => self.push(at + soon, Due::Comes(demand, shape)),
        }
        let reason = "Resources".to_owned();
        self.feed(at, Event::NodePending { demand, reason });
    }

    pub(super) fn is_cancelled(&mut self, demand: DemandId) {
        match self.leases.open {
            // Its machine may join nevertheless.
            Some((open, _)) if open == demand => self.leases.open = None,
            _ => self.breaks(format!("{demand} is cancelled, which is not open")),
        }
    }

    pub(super) fn is_refused(&mut self, at: Time, demand: DemandId) {
        if let Some((_, shape)) = self.leases.open.take_if(|(open, _)| *open == demand) {
            self.leases.refused.insert(shape, at);
        }
        let why = "the quota is used up".to_owned();
        self.feed(at, Event::NodeRefused { demand, why });
    }

    /// A machine of the cluster joins, sometimes with fewer devices than promised.
    pub(super) fn comes(&mut self, at: Time, demand: DemandId, shape: ShapeId) {
        if self.peace && self.leases.open.is_none_or(|(open, _)| open != demand) {
            return;
        }
        self.leases.nodes += 1;
        let node = NodeId(FIRST_NODE + self.leases.nodes);
        let promised = self.leases.shapes[shape.0 as usize].devices;
        let is_short = self.random.chance(100);
        for _ in 0..promised - u32::from(is_short) {
            self.leases.devices += 1;
            let id = DeviceId(FIRST_DEVICE + self.leases.devices);
            let reading = DeviceReading {
                name: format!("leased{}", self.leases.devices),
                node,
                kind: KindId(1),
                total: BYTES_PER_DEVICE,
                ..DeviceReading::default()
            };
            self.truth.devices.insert(id, reading);
        }
        self.links.insert(node, Link::default());
        self.leases.demands.insert(node, demand);
        // A node with too few devices counts as a refusal after a while.
        if let Some((_, shape)) = self.leases.open.take_if(|(open, _)| *open == demand)
            && is_short
        {
            self.leases.refused.remove(&shape);
        }
        if !self.peace && self.random.chance(300) {
            let later = Span(self.random.below(LENGTH / 4));
            self.push(at + later, Due::Cut(node));
        }
        self.joins(at, node);
    }

    pub(super) fn is_given_back(&mut self, at: Time, node: NodeId) {
        self.report.given_back += 1;
        if !self.leases.demands.contains_key(&node) {
            self.breaks(format!("{node} is given back and was never requested"));
        }
        if !self.truth.on(node).is_empty() {
            self.breaks(format!("{node} is given back with engines on it"));
        }
        self.leases.releasing.insert(node);
        let later = Span(self.random.between(100, 60_000));
        self.push(at + later, Due::Leaves(node));
    }

    /// The machine returns to the cluster.
    pub(super) fn leaves(&mut self, at: Time, node: NodeId) {
        for replica in self.truth.on(node) {
            self.truth.processes.remove(&replica);
            self.cut_streams(at, replica);
        }
        let link = self.links.get_mut(&node).expect("a node of ours");
        if core::mem::replace(&mut link.has_ended, true) {
            return;
        }
        link.is_cut = true;
        link.cuts += 1;
        self.leases.releasing.remove(&node);
        self.leases.demands.remove(&node);
        let why = "was given back".to_owned();
        self.feed(at, Event::NodeGone { node, why });
    }

    pub(super) fn check_launch(&mut self, node: NodeId) {
        if self.leases.releasing.contains(&node) {
            self.breaks(format!(
                "something is placed on {node}, which is given back"
            ));
        }
    }

    /// After a long peace no request is open, and no machine is held without use.
    pub(super) fn check_leases(&mut self) {
        let view = self.world.pool.view(self.world.now);
        // Always-hot models wait for memory without requests.
        let waits = |model: &ModelView| model.priority >= Priority(2) && model.replicas.is_empty();
        let is_wanted = view.models.iter().any(waits);
        if let Some((open, _)) = self.leases.open
            && !is_wanted
        {
            self.breaks(format!("{open} is still open, and no model waits"));
        }
        let held: Vec<NodeId> = self.leases.demands.keys().copied().collect();
        for node in held {
            let is_free = self.truth.on(node).is_empty();
            if is_free && !self.leases.releasing.contains(&node) {
                self.breaks(format!("{node} is kept with nothing on it"));
            }
        }
    }
}
