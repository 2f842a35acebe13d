//! Messages of nodes: their engines, readings and farewells. Replicas on nodes differ from local ones only in the route of orders
//! and reports.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use crate::control::Control;
use crate::gates::CutReason;
use crate::memory::allowed_on;
use crate::messages::NodeMessage;
use crate::view::ProcessFacts;
use node_link::{EngineReport, NodeReport, Order, RunningEngine};
use pool::{Command, Event, Exit, NodeId, ReplicaId};

impl Control {
    pub(crate) fn node_message(&mut self, message: NodeMessage) {
        match message {
            NodeMessage::Hello(mut joining) => {
                let (reply, _) = tokio::sync::oneshot::channel();
                let reply = std::mem::replace(&mut joining.reply, reply);
                let _ = reply.send(self.admit(*joining));
            }
            NodeMessage::Running {
                node,
                generation,
                running,
            } if self.nodes.is_current(node, generation) => self.node_lists(node, running),
            NodeMessage::Report {
                node,
                generation,
                number,
                report,
            } if self.nodes.is_current(node, generation) => {
                self.node_report(node, report);
                if let Some(known) = self.nodes.get_mut(node) {
                    known.taken = number;
                    if let Some(link) = &known.link {
                        link.taken.store(number, Ordering::Release);
                    }
                }
            }
            NodeMessage::Readings {
                node,
                generation,
                readings,
            } if self.nodes.is_current(node, generation) => {
                self.nodes.reading_taken(node);
                self.node_readings(node, readings);
            }
            NodeMessage::Disconnected { node, generation }
                if self.nodes.is_current(node, generation) =>
            {
                self.node_silent(node, "its connection is lost");
            }
            // A message of a connection that has been replaced.
            NodeMessage::Running { .. }
            | NodeMessage::Report { .. }
            | NodeMessage::Readings { .. }
            | NodeMessage::Disconnected { .. } => {}
        }
    }

    /// Takes the list of a node's engines. From here on the node takes part.
    fn node_lists(&mut self, node: NodeId, running: Vec<RunningEngine>) {
        let Some(known) = self.nodes.get_mut(node) else {
            return;
        };
        known.has_joined = true;
        known.counts_as_joined = true;
        known.silent_since = None;
        let (name, demand, reach) = (known.name.clone(), known.demand, known.reach());
        let demand = self.cluster.joined(&name, demand);
        let end = self.cluster.end_of(&name);
        let ids: BTreeSet<ReplicaId> = running
            .iter()
            .map(|engine| ReplicaId(engine.replica))
            .collect();
        let lost: Vec<ReplicaId> = self
            .engines
            .on_node(node)
            .into_iter()
            .filter(|replica| !ids.contains(replica))
            .collect();
        for replica in lost {
            self.forget_replica(node, replica, &format!("node {name} came back without it"));
        }
        self.engines.mark_away(node, false);
        let devices = self.nodes.devices(node);
        let mut events = self.devices.unread(&devices);
        events.push(self.devices.links(&devices));
        events.extend(allowed_on(node, &self.devices, &self.nodes, &self.models));
        events.extend(self.cordons_of_node(node));
        let mut unreported = Vec::new();
        for engine in running {
            let replica = ReplicaId(engine.replica);
            if let Some(process) = self.engines.get(replica) {
                let is_ready = engine.ready_for_ms.is_some() && !engine.ending;
                if is_ready && !process.ready && process.node == node {
                    unreported.push((replica, engine.pid));
                }
                continue;
            }
            match self.adopt_from(node, &engine) {
                Ok(event) => events.extend(event),
                Err(why) => {
                    tracing::warn!(
                        "{} ({replica}) on node {name} is stopped: {why} (D2)",
                        engine.model
                    );
                    let grace_ms = match engine.ready_for_ms {
                        Some(_) => engine.kept.stop_grace_ms,
                        None => 0,
                    };
                    let replica = engine.replica;
                    self.nodes.order(node, Order::Stop { replica, grace_ms });
                }
            }
        }
        if let Some(link) = self.nodes.get(node).and_then(|node| node.link.as_ref()) {
            link.logs.listed();
        }
        events.push(Event::NodeJoined {
            node,
            name,
            running: ids.into_iter().collect(),
            demand,
            reach,
        });
        if let Some(at) = end {
            events.push(Event::NodeEnds { node, at });
        }
        self.turn_all(events);
        for (replica, pid) in unreported {
            self.found_ready(node, replica, pid);
        }
        self.end_incomplete_gangs();
        if self.nodes.take_new_devices() {
            self.figure_for_devices();
        }
        // A thousand nodes may join simultaneously after a start of the controller.
        self.publish_if_quick();
    }

    /// Handles a ready replica whose report was lost with an earlier process of its node. The duration of its load stays unknown.
    fn found_ready(&mut self, node: NodeId, replica: ReplicaId, pid: Option<u32>) {
        let endpoint = self.nodes.endpoint(node, replica);
        let (Some(endpoint), Some(facts)) = (endpoint, self.engines.get_mut(replica)) else {
            return;
        };
        facts.pid = pid;
        facts.stage = None;
        facts.ready = true;
        let model = facts.model;
        self.member_started(node, replica, pid);
        if self.engines.gate(replica).is_none() {
            self.make_gate(replica, model, endpoint);
        }
        self.offer(replica, model);
        self.turn(Event::ReplicaReady { replica });
    }

    fn node_report(&mut self, node: NodeId, report: NodeReport) {
        if self.nodes.name(node).is_none() {
            return;
        }
        match report {
            NodeReport::Engine { replica, report } => {
                let replica = ReplicaId(replica);
                let known = self.engines.get(replica);
                let is_known = known.is_some_and(|process| process.is_on(node));
                if is_known {
                    if known.is_some_and(|process| !process.members.is_empty()) {
                        self.member_report(node, replica, report);
                    } else if let Some(endpoint) = self.nodes.endpoint(node, replica) {
                        self.report(replica, report.report(endpoint));
                    }
                } else if matches!(report, EngineReport::Exited(_)) {
                    // The pool had given this replica up. Its memory is free now.
                    self.nodes.returning.ended(replica, node);
                    self.turn(Event::MemberExited {
                        replica,
                        node,
                        exit: Exit::Requested,
                    });
                    self.end_incomplete_gangs();
                }
            }
            NodeReport::Commanded {
                replica,
                sleep,
                outcome,
            } => self.commanded(ReplicaId(replica), sleep, outcome),
            NodeReport::Trouble { device, trouble } => {
                if let Some(device) = self.nodes.device(node, &device) {
                    let what = trouble.into();
                    self.device_trouble(inventory::DeviceEvent { device, what });
                }
            }
            NodeReport::Leaving { why } => self.node_leaves(node, &bounded(&why)),
            NodeReport::Goodbye { why } => {
                self.node_gone(node, &format!("has left: {}", bounded(&why)));
            }
        }
    }

    /// Gives an order that no caller waits for.
    pub(crate) fn node_order(&mut self, command: Command) {
        let order = self.nodes.next_order();
        self.turn(Event::OrderReceived { order, command });
    }

    /// The node of a replica; `None` for this machine.
    pub(crate) fn node_of(&self, replica: ReplicaId) -> Option<NodeId> {
        let node = self.engines.get(replica)?.node;
        self.nodes.is_remote(node).then_some(node)
    }

    /// The nodes other than this machine on which the replica has a process.
    pub(crate) fn nodes_with(&self, replica: ReplicaId) -> Vec<NodeId> {
        let process = self.engines.get(replica).into_iter();
        let nodes = process.flat_map(ProcessFacts::nodes);
        nodes.filter(|node| self.nodes.is_remote(*node)).collect()
    }

    /// Forgets the process of a replica on a node that ended without a report. The pool learns of it from the node's event.
    pub(crate) fn forget_replica(&mut self, node: NodeId, replica: ReplicaId, why: &str) {
        if self.forgets_member(node, replica, why) {
            return;
        }
        let Some(process) = self.engines.remove(replica) else {
            return;
        };
        if let Some(gate) = self.engines.drop_gate(replica) {
            gate.cut(CutReason::Crashed(why.to_owned()));
        }
        self.publishing.withdraw(replica, process.model);
    }
}

/// Bounds a text of a node, for records and logs.
fn bounded(text: &str) -> String {
    let plain = text.chars().filter(|char| !char.is_control());
    plain.take(300).collect()
}
