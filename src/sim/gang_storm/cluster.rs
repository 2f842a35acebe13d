//! The cluster of a storm of gangs: few machines of each size, given to requests in their order. Requests are refused, wait for machines
//! or never start; machines come late, small, old, or after the request was cancelled, and end. `sets` checks the requests.

use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::super::random::Random;
use super::sets::SeenSet;
use super::specs::reach;
use super::{Due, GangFault, LENGTH, Link, Play, TOTAL};
use pool::{
    DemandId, DeviceId, DeviceReading, Event, KindId, Limits, NodeBudget, NodeId, NodeOutlook,
    NodeShape, ShapeId, Span, Time,
};

/// Nodes and devices of the cluster have larger ids than the others.
const FIRST_NODE: u32 = 100;
const FIRST_DEVICE: u32 = 1000;

/// A request that the pool has made and that is neither met nor withdrawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenRequest {
    pub shape: ShapeId,
    /// The cluster has reported that its machine starts.
    pub starts: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    pub shapes: Vec<NodeShape>,
    pub limits: Limits,
    /// The free machines of each size.
    free: BTreeMap<ShapeId, u32>,
    queue: VecDeque<DemandId>,
    pub open: BTreeMap<DemandId, OpenRequest>,
    /// The requests for which nodes have joined, and their sizes.
    pub demands: BTreeMap<NodeId, (DemandId, ShapeId)>,
    /// The first request of the lease, for each request of a set that the cluster serves with one lease.
    of_lease: BTreeMap<DemandId, DemandId>,
    pub releasing: BTreeSet<NodeId>,
    pub sets: Vec<SeenSet>,
    /// The time of the last refusal of this number of nodes of a size.
    pub refused: BTreeMap<(ShapeId, usize), Time>,
    nodes: u32,
    devices: u32,
}

impl Leases {
    pub fn new(random: &mut Random, has_cluster: bool) -> Leases {
        if !has_cluster {
            let limits = super::limits();
            return Leases {
                limits,
                ..Leases::default()
            };
        }
        let shape = |number: u32, most: Option<u32>| NodeShape {
            shape: ShapeId(number),
            name: format!("x{}", number + 1),
            devices: number + 1,
            bytes_per_device: TOTAL,
            kind: KindId(9),
            nodes_max: most,
            cost_per_hour_cents: Some((number + 1) * 100),
        };
        let most = |random: &mut Random| {
            let is_limited = random.chance(300);
            is_limited.then(|| random.between(1, 3) as u32)
        };
        let shapes = Vec::from([shape(0, most(random)), shape(1, most(random))]);
        let machines = shapes
            .iter()
            .map(|shape| (shape.shape, random.between(1, 4) as u32));
        let free: BTreeMap<ShapeId, u32> = machines.collect();
        let mut budget = NodeBudget::default();
        if random.chance(200) {
            budget.day.gpu_seconds = Some(random.between(1_000, 8_000));
        }
        Leases {
            free,
            limits: Limits {
                nodes_max: random.chance(800).then(|| random.between(1, 5) as u32),
                node_budget: budget,
                ..super::limits()
            },
            shapes,
            ..Leases::default()
        }
    }

    /// The lease of several nodes that the node belongs to.
    pub fn lease_of(&self, node: NodeId) -> Option<DemandId> {
        let (demand, _) = self.demands.get(&node)?;
        self.of_lease.get(demand).copied()
    }

    /// The nodes that have joined for the lease of several nodes that serves the request.
    pub fn leased_with(&self, demand: DemandId) -> Vec<NodeId> {
        let lease = self.of_lease.get(&demand).copied();
        let is_of_it = |node: &NodeId| lease.is_some() && self.lease_of(*node) == lease;
        let nodes = self.demands.keys().copied();
        nodes.filter(is_of_it).collect()
    }

    /// A new controller does not know the requests of its predecessor, and gives back the requests without a machine.
    pub fn forget_open(&mut self) {
        self.queue.clear();
        self.open.clear();
        self.sets.clear();
        self.refused.clear();
        self.releasing.clear();
    }
}

impl Play {
    pub(super) fn are_requested(&mut self, at: Time, demands: &[DemandId], shape: ShapeId) {
        self.check_requested(at, demands, shape);
        self.report.requested += demands.len() as u64;
        // Every other set is one lease.
        if let [first, _, ..] = demands
            && first.0.is_multiple_of(2)
        {
            let of_lease = demands.iter().map(|demand| (*demand, *first));
            self.leases.of_lease.extend(of_lease);
        }
        let accepted = match self.fault {
            Some(GangFault::RefusalHidden) => 1,
            _ => demands.len(),
        };
        let demands = &demands[..accepted];
        for &demand in demands {
            let request = OpenRequest {
                shape,
                starts: false,
            };
            self.leases.open.insert(demand, request);
            match self.random.below(100) {
                0..=9 => {
                    let soon = Span(self.random.between(500, 300_000));
                    self.timeline.push(at + soon, Due::IsRefused(demand));
                }
                10..=12 => {
                    let soon = Span(self.random.between(500, 20_000));
                    self.timeline.push(at + soon, Due::Never(demand));
                }
                _ => {}
            }
            self.leases.queue.push_back(demand);
        }
        self.gives_machines(at);
        for &demand in demands {
            if self.leases.queue.contains(&demand) && self.random.chance(700) {
                let soon = Span(self.random.between(100, 20_000));
                self.timeline.push(at + soon, Due::Waits(demand));
            }
        }
    }

    /// Requests get free machines in their order.
    fn gives_machines(&mut self, at: Time) {
        for demand in core::mem::take(&mut self.leases.queue) {
            let Some(open) = self.leases.open.get(&demand) else {
                continue;
            };
            let free = self.leases.free.entry(open.shape).or_default();
            if *free == 0 {
                self.leases.queue.push_back(demand);
                continue;
            }
            *free -= 1;
            let shape = open.shape;
            let starts = at + Span(self.random.below(30_000));
            let comes = starts + Span(self.random.between(500, 120_000));
            self.timeline.push(starts, Due::Starts(demand));
            self.timeline.push(comes, Due::Comes(demand, shape));
        }
    }

    pub(super) fn reports_outlook(&mut self, at: Time, demand: DemandId, outlook: NodeOutlook) {
        let is_queued = self.leases.queue.contains(&demand);
        let Some(open) = self.leases.open.get_mut(&demand) else {
            return;
        };
        if open.starts || (outlook != NodeOutlook::Starts && !is_queued) {
            return;
        }
        open.starts = outlook == NodeOutlook::Starts;
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

    /// A request that has not got its machine is refused.
    pub(super) fn is_refused(&mut self, at: Time, demand: DemandId) {
        if !self.leases.queue.contains(&demand) {
            return;
        }
        self.leases.queue.retain(|queued| *queued != demand);
        self.notes_refusal(at, demand);
        self.set_breaks(at, demand);
        self.leases.open.remove(&demand);
        let why = "the quota is used up".to_owned();
        self.feed(at, Event::NodeRefused { demand, why });
    }

    /// The cluster reports that the request cannot start. The pool gives it up.
    pub(super) fn never_starts(&mut self, at: Time, demand: DemandId) {
        if self.leases.queue.contains(&demand) {
            self.notes_refusal(at, demand);
            self.reports_outlook(at, demand, NodeOutlook::Never);
        }
    }

    /// The pool withdraws the request. Its machine may come nevertheless.
    pub(super) fn is_cancelled(&mut self, at: Time, demand: DemandId) {
        self.set_breaks(at, demand);
        let is_open = self.leases.open.remove(&demand).is_some();
        self.leases.queue.retain(|queued| *queued != demand);
        if !is_open {
            self.breaks(format!("S2: {demand} is cancelled, which is not open"));
        }
    }

    /// A machine of the cluster joins, sometimes with fewer devices than promised, or unusable for gangs.
    pub(super) fn comes(&mut self, at: Time, demand: DemandId, shape: ShapeId) {
        let is_open = self.leases.open.contains_key(&demand);
        if !is_open && (self.peace || self.random.chance(500)) {
            *self.leases.free.entry(shape).or_default() += 1;
            return self.gives_machines(at);
        }
        self.leases.nodes += 1;
        let node = NodeId(FIRST_NODE + self.leases.nodes);
        let promised = self.leases.shapes[shape.0 as usize].devices;
        let is_short = !self.peace && self.random.chance(30);
        let kind = KindId(u32::from(self.random.chance(20)));
        for _ in 0..promised - u32::from(is_short) {
            self.leases.devices += 1;
            let id = DeviceId(FIRST_DEVICE + self.leases.devices);
            let reading = DeviceReading {
                name: format!("leased{}", self.leases.devices),
                node,
                kind,
                total: TOTAL,
                ..DeviceReading::default()
            };
            self.devices.insert(id, reading);
        }
        let mut link = Link::default();
        if self.random.chance(30) {
            link.reach = reach(&mut self.random);
        }
        self.links.insert(node, link);
        self.leases.demands.insert(node, (demand, shape));
        self.leases.open.remove(&demand);
        self.set_member_joins(at, demand, node, is_short);
        if !self.peace && self.random.chance(200) {
            let later = Span(self.random.below(LENGTH / 4));
            self.timeline.push(at + later, Due::Cut(node));
        }
        if !self.peace && self.random.chance(200) {
            let later = Span(self.random.below(LENGTH / 2));
            self.timeline.push(at + later, Due::Leaves(node));
        }
        self.joins(at, node);
    }

    pub(super) fn is_given_back(&mut self, at: Time, node: NodeId) {
        self.report.given_back += 1;
        if !self.leases.demands.contains_key(&node) {
            self.breaks(format!("S2: {node} is given back and was never requested"));
        }
        if self.processes.keys().any(|(_, on)| *on == node) {
            self.breaks(format!("S2: {node} is given back with engines on it"));
        }
        if let Some(lease) = self.leases.lease_of(node) {
            let with_it = self.leases.leased_with(lease);
            let mut used = self.processes.keys().map(|(_, on)| on);
            if used.any(|on| with_it.contains(on)) {
                self.breaks(format!(
                    "S2: {node} is given back while another node of its lease has engines"
                ));
            }
        }
        self.leases.releasing.insert(node);
        let later = Span(self.random.between(100, 60_000));
        self.timeline.push(at + later, Due::Leaves(node));
    }

    /// The machine returns to the cluster, with everything on it.
    pub(super) fn leaves(&mut self, at: Time, node: NodeId) {
        let link = self.links.get_mut(&node).expect("ours");
        if core::mem::replace(&mut link.has_ended, true) {
            return;
        }
        link.is_cut = true;
        link.is_known_cut = true;
        link.cuts += 1;
        for replica in self.world_knows_on(node) {
            self.known_ended.insert(replica);
        }
        for replica in self.on(node) {
            self.cut_streams(at, replica);
        }
        self.processes.retain(|(_, on), _| *on != node);
        self.returned.retain(|(_, on)| *on != node);
        self.leases.releasing.remove(&node);
        let lease = self.leases.demands.remove(&node);
        if let Some((demand, shape)) = lease {
            *self.leases.free.entry(shape).or_default() += 1;
            self.set_breaks(at, demand);
        }
        let why = "was given back".to_owned();
        self.feed(at, Event::NodeGone { node, why });
        self.adopt_the_complete(at);
        self.gives_machines(at);
    }
}
