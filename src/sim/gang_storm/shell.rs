//! The shell of a storm of gangs: one process for each node of a replica. Everything sent to or by a node that is cut off is lost.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::super::world::World;
use super::{Due, GangFault, LENGTH, Play, Process, reach};
use pool::{
    Event, Exit, GangReach, ModelId, NodeId, Pool, Remedy, ReplicaId, Share, Span, Ticket, Time,
};

/// The longest time after which a node returns to the next controller.
const RETURN: u64 = 30_000;

impl Play {
    /// A controller starts: it knows the models, and every reachable node joins.
    pub(super) fn starts(&mut self, at: Time) {
        for (model, spec) in self.specs.clone() {
            self.feed(at, Event::ModelSet { model, spec });
        }
        if !self.leases.shapes.is_empty() {
            let shapes = self.leases.shapes.clone();
            self.feed(at, Event::ShapesSet { shapes });
        }
        for node in self.links.keys().copied().collect::<Vec<_>>() {
            if !self.links[&node].is_cut {
                self.joins(at, node);
            }
        }
    }

    pub(super) fn is_cut(&self, node: NodeId, nth: u64) -> bool {
        let link = &self.links[&node];
        link.is_cut && link.cuts == nth && !link.has_ended
    }

    pub(super) fn is_away(&mut self, node: NodeId) {
        self.links.get_mut(&node).expect("ours").is_known_cut = true;
    }

    pub(super) fn on(&self, node: NodeId) -> Vec<ReplicaId> {
        let on = self.processes.keys().filter(|(_, at)| *at == node);
        on.map(|(replica, _)| *replica).collect()
    }

    fn is_of_this_run(&self, replica: ReplicaId) -> bool {
        replica.0 >= self.first
    }

    pub(super) fn joins(&mut self, at: Time, node: NodeId) {
        let link = self.links.get_mut(&node).expect("ours");
        (link.is_cut, link.is_known_cut) = (false, false);
        link.joined = at;
        let running = self.on(node);
        let name = format!("node-{}", node.0);
        let reach = match self.fault {
            Some(GangFault::ReachHidden) => GangReach::Network,
            _ => self.links[&node].reach.clone(),
        };
        let demand = self.leases.demands.get(&node).map(|(demand, _)| *demand);
        self.feed(
            at,
            Event::NodeJoined {
                node,
                name,
                running: running.clone(),
                demand: demand.filter(|_| self.fault != Some(GangFault::DemandHidden)),
                reach,
            },
        );
        let devices: Vec<_> = self.devices.clone().into_iter().collect();
        for (device, reading) in devices {
            if reading.node == node {
                self.feed(at, Event::DeviceRead { device, reading });
            }
        }
        if let Some((_, shape)) = self.leases.demands.get(&node) {
            let shape = *shape;
            let lease = self.leases.lease_of(node);
            self.feed(at, Event::NodeSized { node, shape, lease });
        }
        for replica in running {
            if self.is_of_this_run(replica) {
                self.reports_readiness(at, replica);
            } else if self.ready.contains_key(&replica)
                && !self.processes[&(replica, node)].is_ordered_to_end
            {
                self.returned.insert((replica, node));
            } else {
                self.ends_soon(at, replica, node);
            }
        }
        self.adopt_the_complete(at);
    }

    /// Adopts the replicas whose processes have all returned, and ends the replicas with a process that will not return.
    pub(super) fn adopt_the_complete(&mut self, at: Time) {
        let mut by_replica: BTreeMap<ReplicaId, Vec<NodeId>> = BTreeMap::new();
        for (replica, node) in &self.returned {
            by_replica.entry(*replica).or_default().push(*node);
        }
        for (replica, back) in by_replica {
            let nodes = self.nodes_of[&replica].clone();
            if nodes.iter().all(|node| back.contains(node)) {
                self.forget_returned(replica);
                let process = |node: &NodeId| &self.processes[&(replica, *node)];
                let model = process(&nodes[0]).model;
                let placement = nodes.iter().flat_map(|node| process(node).shares.clone());
                let event = Event::ReplicaAdopted {
                    replica,
                    model,
                    placement: placement.collect(),
                    ready_for: at.since(self.ready[&replica]),
                    in_flight: 0,
                    last_end: None,
                };
                self.report.adopted += u64::from(nodes.len() > 1);
                self.feed(at, event);
                continue;
            }
            let is_lost = |node: &&NodeId| {
                let link = &self.links[*node];
                !back.contains(node) && (!link.is_cut || link.has_ended)
            };
            if nodes.iter().any(|node| is_lost(&node)) {
                self.report.incomplete += 1;
                self.forget_returned(replica);
                for node in back {
                    self.ends_soon(at, replica, node);
                }
            }
        }
    }

    fn forget_returned(&mut self, replica: ReplicaId) {
        self.returned.retain(|(of, _)| *of != replica);
    }

    pub(super) fn cut(&mut self, at: Time, node: NodeId) {
        let link = self.links.get_mut(&node).expect("ours");
        if self.peace || link.is_cut {
            return;
        }
        link.is_cut = true;
        link.cuts += 1;
        let nth = link.cuts;
        if self.random.chance(300) {
            // The machine fails with everything on it.
            self.processes.retain(|(_, on), _| *on != node);
            self.returned.retain(|(_, on)| *on != node);
        }
        self.timeline
            .push(at + Span::from_secs(5), Due::Silent(node, nth));
        if self.random.chance(500) {
            let bound = self.random.between(10_000, 900_000);
            self.timeline.push(at + Span(bound), Due::Gone(node, nth));
        }
        let back = self.random.between(500, LENGTH / 3);
        self.timeline.push(at + Span(back), Due::Back(node, nth));
    }

    /// The pool gives the node up. Its engines may continue to run, although they should have ended.
    pub(super) fn is_gone(&mut self, at: Time, node: NodeId) {
        self.report.gone += 1;
        if self.random.chance(500) {
            self.processes.retain(|(_, on), _| *on != node);
            if self.report.mixed > 0 {
                // It is started again, with another version or at another address.
                let link = self.links.get_mut(&node).expect("ours");
                link.reach = reach(&mut self.random);
            }
        }
        for replica in self.world_knows_on(node) {
            self.known_ended.insert(replica);
        }
        self.returned.retain(|(_, on)| *on != node);
        if let Some((demand, _)) = self.leases.demands.get(&node) {
            self.set_breaks(at, *demand);
        }
        self.node_is_given_up(node);
        let why = "has not responded for too long".to_owned();
        self.feed(at, Event::NodeGone { node, why });
        self.adopt_the_complete(at);
    }

    /// The replicas with a part on the node that the pool believes in.
    pub(super) fn world_knows_on(&self, node: NodeId) -> Vec<ReplicaId> {
        let view = self.world.pool.view(self.world.now);
        let replicas = view.models.iter().flat_map(|model| &model.replicas);
        let on = |share: &Share| self.devices[&share.device].node == node;
        let here = replicas.filter(|replica| replica.shares.iter().any(on));
        let started = here.filter(|replica| replica.state != pool::ReplicaState::Planned);
        started.map(|replica| replica.replica).collect()
    }

    /// The controller is killed. The nodes continue to run, and return to the next controller in any order.
    pub(super) fn restarts(&mut self, at: Time) {
        self.report.restarts += 1;
        let newest = self.processes.keys().last().map_or(0, |(id, _)| id.0);
        // Numbers far apart may stand for the same meeting port.
        let gap = self.random.between(1, 500);
        self.first = self.first.max(newest).max(self.newest) + gap;
        let limits = self.leases.limits.clone();
        let pool = Pool::new(limits, false, ReplicaId(self.first));
        let before = core::mem::replace(&mut self.world, World::new(pool));
        self.world.now = at;
        self.waiting.clear();
        self.returned.clear();
        self.known_ended.clear();
        self.leases.forget_open();
        for node in self.links.keys().copied().collect::<Vec<_>>() {
            if self.links[&node].has_ended {
                continue;
            }
            let name = format!("node-{}", node.0);
            self.feed(at, Event::NodeExpected { node, name });
            let returns = at + Span(self.random.below(RETURN));
            let link = self.links.get_mut(&node).expect("ours");
            link.is_known_cut = true;
            if !link.is_cut {
                link.is_cut = true;
                link.cuts += 1;
                let nth = link.cuts;
                self.timeline.push(returns, Due::Back(node, nth));
            }
        }
        self.starts(at);
        for model in self.specs.keys().copied().collect::<Vec<_>>() {
            if let Some(numbers) = before.pool.remembered(model) {
                self.feed(at, Event::Remembered { model, numbers });
            }
        }
    }

    pub(super) fn launches(
        &mut self,
        at: Time,
        replica: ReplicaId,
        model: ModelId,
        placement: &[Share],
    ) {
        self.newest = self.newest.max(replica.0);
        self.check_launch(replica, model, placement);
        let mut parts: Vec<(NodeId, Vec<Share>)> = Vec::new();
        for share in placement {
            let node = self.devices[&share.device].node;
            match parts.iter_mut().find(|(known, _)| *known == node) {
                Some((_, part)) => part.push(*share),
                None => parts.push((node, [*share].to_vec())),
            }
        }
        let nodes: Vec<NodeId> = parts.iter().map(|(node, _)| *node).collect();
        for node in &nodes {
            self.check_placed_on(*node);
        }
        if nodes.len() > 1 {
            let mut nodes = nodes.iter();
            let is_requested = nodes.any(|node| self.leases.demands.contains_key(node));
            self.report.on_requested += u64::from(is_requested);
            self.report.gangs += 1;
        } else {
            self.report.others += 1;
        }
        for (node, shares) in parts {
            if self.links[&node].is_cut {
                continue;
            }
            let process = Process {
                model,
                shares,
                is_ordered_to_end: false,
            };
            if self.processes.insert((replica, node), process).is_some() {
                self.breaks(format!("N1: {replica} is started twice on {node}"));
            }
        }
        self.check_memory(replica);
        let load = Span(self.random.between(500, 60_000));
        let victim = nodes[self.random.below(nodes.len() as u64) as usize];
        match self.random.below(100) {
            0..=9 => self
                .timeline
                .push(at + Span(load.0 / 2), Due::Crash(replica, victim)),
            10..=24 => {
                let later = Span(self.random.below(LENGTH / 4));
                self.timeline
                    .push(at + load + later, Due::Crash(replica, victim));
            }
            _ => {}
        }
        self.nodes_of.insert(replica, nodes);
        self.timeline.push(at + load, Due::Ready(replica));
    }

    /// A leader is ready only while all processes run.
    pub(super) fn becomes_ready(&mut self, at: Time, replica: ReplicaId) {
        let process = |node: &NodeId| self.processes.get(&(replica, *node));
        let mut nodes = self.nodes_of[&replica].iter();
        if !nodes.all(|node| process(node).is_some_and(|process| !process.is_ordered_to_end)) {
            return;
        }
        self.ready.insert(replica, at);
        self.reports_readiness(at, replica);
    }

    fn reports_readiness(&mut self, at: Time, replica: ReplicaId) {
        let leader = self.nodes_of[&replica][0];
        let runs = self.processes.contains_key(&(replica, leader));
        if self.ready.contains_key(&replica) && runs && !self.links[&leader].is_cut {
            self.feed(at, Event::ReplicaReady { replica });
        }
    }

    /// The process really ends, and its memory is free. The node reports it if it can.
    pub(super) fn process_ends(
        &mut self,
        at: Time,
        replica: ReplicaId,
        node: NodeId,
        has_crashed: bool,
    ) {
        if self.processes.remove(&(replica, node)).is_none() {
            return;
        }
        self.cut_streams(at, replica);
        let is_returned = self.returned.remove(&(replica, node));
        if self.links[&node].is_cut {
            return;
        }
        let exit = if has_crashed {
            Exit::Failed {
                message: "NCCL error".to_owned(),
                remedy: Remedy::Time,
            }
        } else {
            Exit::Requested
        };
        let event = if self.fault == Some(GangFault::OneEndsAll) {
            Event::ReplicaExited { replica, exit }
        } else {
            Event::MemberExited {
                replica,
                node,
                exit,
            }
        };
        self.feed(at, event);
        if is_returned {
            self.adopt_the_complete(at);
        }
    }

    pub(super) fn cut_streams(&mut self, at: Time, replica: ReplicaId) {
        let inside = self.world.seats.iter().filter(|(_, on)| **on == replica);
        let inside: Vec<Ticket> = inside.map(|(&ticket, _)| ticket).collect();
        for ticket in inside {
            self.world.end(ticket, at);
        }
        self.world.gates.remove(&replica);
    }

    /// An order to end reaches the processes on connected nodes.
    pub(super) fn stops(&mut self, at: Time, replica: ReplicaId) {
        self.cut_streams(at, replica);
        let all = self.nodes_of.get(&replica).cloned().unwrap_or_default();
        let reached = match self.fault {
            Some(GangFault::OthersRunOn) => 1,
            _ => all.len(),
        };
        for node in all.into_iter().take(reached) {
            self.ends_soon(at, replica, node);
        }
    }

    pub(super) fn ends_soon(&mut self, at: Time, replica: ReplicaId, node: NodeId) {
        if self.links[&node].is_cut {
            return;
        }
        if let Some(process) = self.processes.get_mut(&(replica, node)) {
            process.is_ordered_to_end = true;
            let slow = Span(self.random.below(12_000));
            self.timeline.push(at + slow, Due::Ended(replica, node));
        }
    }
}
