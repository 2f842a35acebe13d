//! The cluster of a storm over nodes. Requested nodes arrive late, smaller than promised, after cancellation, or never; nodes that
//! are given back end. Checks the pool's decisions about them (S2).

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::{Due, LENGTH, Link, Play};
use pool::{
    Bytes, DemandId, DeviceId, DeviceReading, Event, KindId, Limits, ModelId, ModelView, NodeId,
    NodeOutlook, NodeShape, NodeState, Priority, ShapeId, Span, Time,
};

/// Nodes and devices of the cluster have larger ids than the others.
const FIRST_NODE: u32 = 100;
const FIRST_DEVICE: u32 = 1000;
const BYTES_PER_DEVICE: Bytes = Bytes(80 * Bytes::GIB);
/// The time for which a size is not requested again after a refusal (S2).
const NOT_AGAIN: Span = Span::from_secs(300);

/// The limit of nodes that the pool may hold and request at a time.
const NODES_MAX: u32 = 3;

/// The cluster's last report on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Report {
    Nothing,
    Waits,
    StartsAt(Time),
    Stuck,
    Never,
    Starts,
}

#[derive(Clone, Copy, Debug)]
struct OpenRequest {
    shape: ShapeId,
    report: Report,
    /// The time of the report.
    since: Time,
}

impl OpenRequest {
    /// Returns true if no other size may be requested for the same model.
    fn is_promising(&self, at: Time) -> bool {
        match self.report {
            Report::Nothing | Report::Starts => true,
            Report::Waits | Report::StartsAt(_) | Report::Stuck => {
                at < self.since + Span::from_secs(10)
            }
            Report::Never => false,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    pub shapes: Vec<NodeShape>,
    /// The open requests of the pool.
    open: BTreeMap<DemandId, OpenRequest>,
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
        self.open.clear();
        self.refused.clear();
        self.releasing.clear();
    }
}

pub(super) fn limits() -> Limits {
    Limits {
        nodes_may_join: true,
        nodes_max: Some(NODES_MAX),
        ..Limits::default()
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
    pub(super) fn breaks(&mut self, text: alloc::string::String) {
        self.report.broken.push(format!("S2: {text}"));
    }

    pub(super) fn is_requested(&mut self, at: Time, demand: DemandId, shape: ShapeId) {
        self.report.requested += 1;
        let view = self.world.pool.view(at);
        let nodes = view.nodes.iter().filter(|node| node.demand.is_some());
        let held = nodes.count() + self.leases.open.len();
        if held >= NODES_MAX as usize {
            self.breaks(format!(
                "{demand} is requested with {held} nodes and requests, the limit"
            ));
        }
        let mut open = self.leases.open.iter();
        if let Some((other, _)) = open.find(|(_, open)| open.shape == shape) {
            self.breaks(format!(
                "{demand} is requested while {other} of its size is open"
            ));
        }
        let refused = self.leases.refused.get(&shape);
        if refused.is_some_and(|refused| at < *refused + NOT_AGAIN) {
            self.breaks(format!("{shape} is requested again soon after a refusal"));
        }
        // A model that a cheaper size holds waits for its request until the cluster lets it wait.
        let mut pending = view.node_demands.iter();
        let model = pending.find(|pending| pending.demand == demand);
        let is_small = model.is_some_and(|pending| self.is_small(pending.model));
        let mut cheaper = self.leases.open.iter();
        let cheaper = cheaper.find(|(_, open)| open.shape < shape && open.is_promising(at));
        if let Some((cheaper, _)) = cheaper.filter(|_| is_small && !self.any_moves(at)) {
            self.breaks(format!(
                "{demand} is requested while {cheaper}, which is cheaper, may start"
            ));
        }
        let request = OpenRequest {
            shape,
            report: Report::Nothing,
            since: at,
        };
        self.leases.open.insert(demand, request);
        let soon = Span(self.random.between(500, 300_000));
        match self.random.below(100) {
            0..=19 => self.timeline.push(at + soon, Due::IsRefused(demand)),
            // The request waits in the cluster's queue forever.
            20..=34 => {}
            _ => {
                let starts = Span(soon.0 * 3 / 4);
                self.timeline
                    .push(at + starts, Due::Reports(demand, Report::Starts));
                self.timeline.push(at + soon, Due::Comes(demand, shape));
            }
        }
        let report = match self.random.below(10) {
            0..=3 => Report::Waits,
            4 => Report::Stuck,
            5 => Report::Never,
            6 => Report::StartsAt(at + Span(self.random.below(600_000))),
            _ => Report::Nothing,
        };
        let soon = Span(self.random.between(100, 20_000));
        self.timeline.push(at + soon, Due::Reports(demand, report));
    }

    /// The cluster reports on a request that is still open.
    pub(super) fn cluster_reports(&mut self, at: Time, demand: DemandId, report: Report) {
        let Some(open) = self.leases.open.get_mut(&demand) else {
            return;
        };
        // A request that has its machine keeps it.
        if open.report == Report::Starts {
            return;
        }
        (open.report, open.since) = (report, at);
        let outlook = match report {
            Report::Nothing => NodeOutlook::Unknown,
            Report::Waits => NodeOutlook::Waits { starts: None },
            Report::StartsAt(at) => NodeOutlook::Waits { starts: Some(at) },
            Report::Stuck => NodeOutlook::Stuck,
            Report::Never => NodeOutlook::Never,
            Report::Starts => NodeOutlook::Starts,
        };
        let reason = "Resources".to_owned();
        self.feed(
            at,
            Event::NodePending {
                demand,
                reason,
                outlook,
            },
        );
    }

    /// Returns true if a node of the smallest size holds the model.
    fn is_small(&self, model: ModelId) -> bool {
        let spec = &self.specs[&model];
        spec.devices_per_replica == 1 && spec.bytes_per_device <= BYTES_PER_DEVICE
    }

    /// Returns true if a node's models may move, which may need a larger node for all of them.
    fn any_moves(&self, at: Time) -> bool {
        let view = self.world.pool.view(at);
        view.nodes
            .iter()
            .any(|node| node.ends.is_some() && node.state != NodeState::Joined)
    }

    /// A request that never starts is given back, and so is a request whose model another node serves.
    pub(super) fn check_requests(&mut self, at: Time) {
        if self.leases.open.is_empty() {
            return;
        }
        let mut open = self.leases.open.iter();
        if let Some((never, _)) = open.find(|(_, open)| open.report == Report::Never) {
            self.breaks(format!("{never}, which never starts, stays open"));
        }
        if self.leases.open.len() < 2 {
            return;
        }
        let started = |open: &OpenRequest| open.report == Report::Starts;
        let (winners, losers): (Vec<_>, Vec<_>) =
            self.leases.open.iter().partition(|(_, open)| started(open));
        let view = self.world.pool.view(at);
        let hot = view.models.iter();
        let hot = hot.filter(|model| model.priority >= Priority(2));
        let waiting = view.waiting.iter().map(|waiting| waiting.model);
        let wanted: BTreeSet<ModelId> = hot.map(|model| model.model).chain(waiting).collect();
        let wanted: Vec<ModelId> = wanted.into_iter().collect();
        // One small model waits: any node that has started serves it.
        if let ([model], Some((winner, _)), Some((loser, _))) =
            (&wanted[..], winners.first(), losers.first())
            && self.is_small(*model)
            && !self.any_moves(at)
        {
            self.breaks(format!(
                "{loser} stays open although {winner} has its machine"
            ));
        }
    }

    pub(super) fn is_cancelled(&mut self, at: Time, demand: DemandId) {
        // Its machine may join nevertheless.
        let Some(open) = self.leases.open.remove(&demand) else {
            return self.breaks(format!("{demand} is cancelled, which is not open"));
        };
        let settled = open.since + Span::from_secs(10) <= at;
        if open.report == Report::Never || (open.report == Report::Stuck && settled) {
            self.leases.refused.insert(open.shape, at);
        }
    }

    pub(super) fn is_refused(&mut self, at: Time, demand: DemandId) {
        if let Some(open) = self.leases.open.remove(&demand) {
            self.leases.refused.insert(open.shape, at);
        }
        let why = "the quota is used up".to_owned();
        self.feed(at, Event::NodeRefused { demand, why });
    }

    /// A machine of the cluster joins, sometimes with fewer devices than promised.
    pub(super) fn comes(&mut self, at: Time, demand: DemandId, shape: ShapeId) {
        if self.peace && !self.leases.open.contains_key(&demand) {
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
        if let Some(open) = self.leases.open.remove(&demand)
            && is_short
        {
            self.leases.refused.remove(&open.shape);
        }
        if !self.peace && self.random.chance(300) {
            let later = Span(self.random.below(LENGTH / 4));
            self.timeline.push(at + later, Due::Cut(node));
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
        self.timeline.push(at + later, Due::Leaves(node));
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
        if let Some(open) = self.leases.open.keys().next().copied()
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
