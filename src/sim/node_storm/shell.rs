//! The shell of a storm over nodes: it carries orders to connected nodes and reports from them. Everything sent to or by a
//! disconnected node is lost.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use super::super::world::World;
use super::cluster::limits;
use super::{Due, LENGTH, NodeFault, Play};
use pool::{
    Action, Command, Event, Exit, GangReach, ModelId, NodeId, Pool, Remedy, ReplicaId, Share, Span,
    StopReason, Ticket, Time,
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
        let nodes: Vec<NodeId> = self.links.keys().copied().collect();
        for node in nodes {
            if !self.links[&node].is_cut {
                self.joins(at, node);
            }
        }
    }

    pub(super) fn joins(&mut self, at: Time, node: NodeId) {
        let link = self.links.get_mut(&node).expect("a node of ours");
        (link.is_cut, link.reported_gone) = (false, false);
        link.joined = at;
        self.limits.disturbed();
        let mut running = self.truth.on(node);
        if self.fault == Some(NodeFault::EnginesHidden) {
            running.clear();
        }
        self.feed(
            at,
            Event::NodeJoined {
                node,
                name: format!("node-{}", node.0),
                running: running.clone(),
                demand: self.leases.demands.get(&node).copied(),
                reach: GangReach::Network,
            },
        );
        for (device, reading) in self.truth.devices_of(node) {
            self.feed(at, Event::DeviceRead { device, reading });
        }
        self.limit_is_known(at, node);
        let adopted = running.into_iter();
        let adopted = adopted.filter_map(|id| self.states_what_it_has(at, id));
        let adopted: BTreeSet<ModelId> = adopted.collect();
        self.have_not_begun(at, &adopted);
    }

    pub(super) fn cut(&mut self, at: Time, node: NodeId) {
        let link = self.links.get_mut(&node).expect("a node of ours");
        if self.peace || link.is_cut || link.has_ended {
            return;
        }
        link.is_cut = true;
        link.cuts += 1;
        let nth = link.cuts;
        self.limits.disturbed();
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
        self.links
            .get_mut(&node)
            .expect("a node of ours")
            .reported_gone = true;
        let all_end = self.random.chance(500);
        if all_end {
            for replica in self.truth.on(node) {
                self.truth.processes.remove(&replica);
            }
        }
        let twice = self.random.chance(100);
        for _ in 0..=u32::from(twice) {
            let why = "has not responded for too long".to_owned();
            self.feed(at, Event::NodeGone { node, why });
        }
    }

    pub(super) fn is_back(&mut self, at: Time, node: NodeId) {
        self.joins(at, node);
    }

    /// The fault: the pool is informed that the node is back, although it is not.
    pub(super) fn claims_to_be_back(&mut self, at: Time, node: NodeId) {
        let running = self.truth.on(node);
        let event = Event::NodeJoined {
            node,
            name: format!("node-{}", node.0),
            running,
            demand: None,
            reach: GangReach::Network,
        };
        let now = self.world.now.max(at);
        self.world.pool.step(now, event);
        self.truth.is_still_silent(node);
    }

    /// The machine fails. The cluster reports it soon and restarts it later.
    pub(super) fn dies(&mut self, at: Time, node: NodeId) {
        if self.peace || self.links[&node].is_cut {
            return;
        }
        for replica in self.truth.on(node) {
            self.truth.processes.remove(&replica);
        }
        self.cut(at, node);
    }

    pub(super) fn drains(&mut self, at: Time, node: NodeId) {
        self.report.drains += 1;
        self.limits.disturbed();
        let command = Command::DrainNode {
            node,
            reason: "repairs".to_owned(),
            until: None,
            now: self.random.chance(300),
        };
        self.order(at, command);
    }

    /// The controller is killed: everything it had not confirmed is lost, including its clients. The nodes continue to run, and
    /// return to the next controller in any order.
    pub(super) fn restarts(&mut self, at: Time) {
        self.report.restarts += 1;
        let newest = self.truth.processes.keys().last().map_or(0, |id| id.0);
        self.first = self.first.max(newest).max(self.newest) + 1;
        let pool = Pool::new(limits(), false, ReplicaId(self.first));
        let before = core::mem::replace(&mut self.world, World::new(pool));
        self.world.now = at;
        self.waiting.clear();
        self.not_begun.clear();
        self.limits.disturbed();
        self.leases.forget_open();
        self.emptied.forget_chosen();
        for (node, link) in self.links.clone() {
            if link.has_ended || link.reported_gone {
                continue;
            }
            let name = format!("node-{}", node.0);
            self.feed(at, Event::NodeExpected { node, name });
            if !link.is_cut {
                let returns = at + Span(self.random.below(RETURN));
                let link = self.links.get_mut(&node).expect("a node of ours");
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

    /// A report about a process, sometimes duplicated and late; lost if its node is disconnected.
    pub(super) fn reports(&mut self, at: Time, replica: ReplicaId, what: &str) {
        if self.random.chance(80) {
            let late = Span(self.random.below(120_000));
            self.timeline
                .push(at + late, Due::Again(what.to_owned(), replica));
        }
        self.reports_once(at, replica, what);
    }

    pub(super) fn reports_once(&mut self, at: Time, replica: ReplicaId, what: &str) {
        let Some(&node) = self.node_of.get(&replica) else {
            return;
        };
        if self.links[&node].is_cut {
            return;
        }
        let failed = || Exit::Failed {
            message: "CUDA error".to_owned(),
            remedy: Remedy::Time,
        };
        let event = match what {
            "ready" => Event::ReplicaReady { replica },
            "crashed" => {
                let exit = failed();
                Event::ReplicaExited { replica, exit }
            }
            _ => {
                let exit = Exit::Requested;
                Event::ReplicaExited { replica, exit }
            }
        };
        // A second "ready" of an engine that has ended since would be false; nodes do not repeat those.
        let is_false = what == "ready" && !self.truth.processes.contains_key(&replica);
        if !is_false {
            self.feed(at, event);
        }
    }

    /// The process really ends, and its memory is free.
    pub(super) fn process_ends(&mut self, at: Time, replica: ReplicaId, how: &str) {
        let Some(process) = self.truth.processes.remove(&replica) else {
            return;
        };
        if how == "crashed" {
            self.limits.fails(process.model, at);
        }
        self.cut_streams(at, replica);
        self.reports(at, replica, how);
    }

    pub(super) fn cut_streams(&mut self, at: Time, replica: ReplicaId) {
        let inside = self.world.seats.iter();
        let inside = inside.filter(|(_, on)| **on == replica);
        let inside: Vec<Ticket> = inside.map(|(&ticket, _)| ticket).collect();
        for ticket in inside {
            self.world.end(ticket, at);
        }
        self.world.gates.remove(&replica);
    }

    pub(super) fn ends_soon(&mut self, at: Time, replica: ReplicaId) {
        if let Some(process) = self.truth.processes.get_mut(&replica) {
            process.is_ordered_to_end = true;
            let slow = Span(self.random.below(12_000));
            self.timeline.push(at + slow, Due::Ended(replica));
        }
    }

    pub(super) fn carry_out(&mut self, at: Time, action: &Action) {
        match action {
            Action::Grant { ticket, .. } => {
                self.report.responded += 1;
                self.waiting.remove(ticket);
                self.is_served(at, *ticket);
            }
            Action::Refuse { ticket, .. } => {
                self.report.responded += 1;
                self.waiting.remove(ticket);
            }
            Action::Launch {
                replica,
                model,
                placement,
                ..
            } => {
                self.newest = self.newest.max(replica.0);
                self.launches(at, *replica, *model, placement);
            }
            Action::Stop {
                replica, reason, ..
            } => {
                if matches!(reason, StopReason::NodeLost { .. }) {
                    // As far as the controller knows, the replica has no engine left to stop.
                    return self.cut_streams(at, *replica);
                }
                self.check_cut(at, *replica, reason);
                if matches!(reason, StopReason::Surplus) {
                    self.check_surplus(at, *replica);
                }
                if self.reaches(*replica) {
                    self.ends_soon(at, *replica);
                    if self.fault == Some(NodeFault::EndsAtOnce) {
                        let (replica, exit) = (*replica, Exit::Requested);
                        self.world.gates.remove(&replica);
                        self.feed(at, Event::ReplicaExited { replica, exit });
                    }
                }
            }
            Action::Record(record) => {
                self.check_record(at, record);
                self.check_emptied(at, record);
            }
            Action::RequestNodes { demands, shape } => {
                for demand in demands {
                    self.is_requested(at, *demand, *shape);
                }
            }
            Action::CancelNode { demand } => self.is_cancelled(at, *demand),
            Action::ReleaseNode { node } => self.is_given_back(at, *node),
            Action::Disown { replica, .. } => {
                self.report.disowned += 1;
                self.ends_soon(at, *replica);
            }
            _ => {}
        }
    }

    pub(super) fn reaches(&self, replica: ReplicaId) -> bool {
        let node = self.node_of.get(&replica);
        node.is_some_and(|node| !self.links[node].is_cut)
    }

    fn launches(&mut self, at: Time, replica: ReplicaId, model: ModelId, placement: &[Share]) {
        self.report.launches += 1;
        let node = self.truth.devices[&placement[0].device].node;
        self.node_of.insert(replica, node);
        self.check_launch(node);
        if self.links[&node].is_cut {
            return;
        }
        let mut broken: Vec<String> = Vec::new();
        self.truth.starts(replica, model, placement, &mut broken);
        self.report.broken.append(&mut broken);
        let load = Span(self.random.between(500, 60_000));
        match self.random.below(100) {
            0..=9 => self.timeline.push(at + load, Due::Crash(replica)),
            10..=19 => {
                self.timeline.push(at + load, Due::Ready(replica));
                let later = Span(self.random.below(LENGTH / 4));
                self.timeline.push(at + load + later, Due::Crash(replica));
            }
            _ => self.timeline.push(at + load, Due::Ready(replica)),
        }
    }
}
