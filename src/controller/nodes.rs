//! The nodes that have joined, as the loop knows them: who is connected, which of its engines the pool keeps, and when
//! a node counts as silent and as gone. Their engines are replicas like those of this machine; what differs is where an
//! order goes and where a report comes from.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::control::Control;
use super::gate::Cut;
use super::node_messages::{NodeLink, NodeMessage};
use super::node_presence::Expected;
use super::snapshot::NodeFacts;
use config::Provider;
use engine::{Endpoint, NodePlace, RelayAddress, ReplicaLog};
use node_link::{EngineReport, NodeReport, Order, Running, WeightsReport};
use pool::{
    Command, Cordon, DemandId, DeviceId, Event, Exit, NodeId, OrderId, ReplicaId, Span, Time,
};

/// Numbers of nodes and devices of this machine are below.
pub(super) const FIRST_NUMBER: u32 = 1 << 16;
/// How much longer than it may take a node is waited for before it counts as gone.
pub(super) const MARGIN: Span = Span::from_secs(60);
/// How often it is looked whether nodes have fallen silent.
const LOOK_EVERY: Span = Span(250);
/// Nodes at the same time.
pub const NODES_MAX: u32 = 1024;

/// The pool's number of a node that has this number in the store.
pub(super) fn node_id(number: u32) -> NodeId {
    NodeId(FIRST_NUMBER.saturating_add(number))
}

#[derive(Debug)]
pub(super) struct Nodes {
    /// Of this start of the controller.
    pub epoch: u64,
    pub known: BTreeMap<NodeId, Node>,
    /// Those of before that have not come back.
    pub expected: BTreeMap<NodeId, Expected>,
    /// The last connection's number.
    pub generation: u64,
    pub fenced: VecDeque<u64>,
    pub looked: Time,
    /// Numbers of orders, also for those that the loop gives by itself.
    numbers: Arc<AtomicU64>,
    /// Devices have come that models were not figured for yet.
    pub has_new_devices: bool,
    /// Cordons of devices that are not there.
    pub cordons: Vec<(String, Cordon)>,
}

#[derive(Debug)]
pub(super) struct Node {
    pub name: String,
    pub epoch: u64,
    pub place: String,
    pub version: String,
    pub peer: SocketAddr,
    pub relay: RelayAddress,
    pub provider: Provider,
    pub devices: BTreeMap<String, DeviceId>,
    pub demand: Option<DemandId>,
    pub generation: u64,
    pub link: Option<Arc<NodeLink>>,
    /// It has listed its engines on this connection: it takes part.
    pub has_joined: bool,
    /// The core takes it for joined: it has listed what it has on this connection or an earlier one, and has not been called
    /// silent since.
    pub counts_as_joined: bool,
    pub joined_at: Time,
    /// Since when nothing is heard of it.
    pub silent_since: Option<Time>,
    /// The last report that was taken.
    pub taken: u64,
    pub is_leaving: bool,
    /// It drains by an order, until it is gone.
    pub drains: bool,
    /// `None`: it does not say what weights it has.
    pub weights: Option<WeightsReport>,
}

impl Nodes {
    pub fn new(epoch: u64, numbers: Arc<AtomicU64>) -> Nodes {
        Nodes {
            epoch,
            known: BTreeMap::new(),
            expected: BTreeMap::new(),
            generation: 0,
            fenced: VecDeque::new(),
            looked: Time(0),
            numbers,
            has_new_devices: false,
            cordons: Vec::new(),
        }
    }

    /// When to look again.
    pub fn next_look(&self) -> Option<Time> {
        let is_any = !self.known.is_empty() || !self.expected.is_empty();
        is_any.then(|| self.looked + LOOK_EVERY)
    }

    /// How memory counts on the node; `None` for the machine of the controller.
    pub fn provider(&self, node: NodeId) -> Option<Provider> {
        self.known.get(&node).map(|it| it.provider)
    }

    pub fn is_remote(&self, node: NodeId) -> bool {
        self.known.contains_key(&node)
    }

    /// The device of a node's own name.
    pub fn device(&self, node: NodeId, name: &str) -> Option<DeviceId> {
        self.known.get(&node)?.devices.get(name).copied()
    }

    pub fn devices(&self, node: NodeId) -> BTreeSet<DeviceId> {
        let known = self.known.get(&node);
        known
            .map(|it| it.devices.values().copied().collect())
            .unwrap_or_default()
    }

    /// A reading was looked at: the next one may come.
    pub fn reading_taken(&self, node: NodeId) {
        if let Some(link) = self.known.get(&node).and_then(|it| it.link.as_ref()) {
            link.reading_waits.store(false, Ordering::Release);
        }
    }

    /// Gives an order to a node. While it is not connected the order is lost; when it is back the pool sees what the
    /// node has, and orders again.
    pub fn order(&self, node: NodeId, order: Order) {
        if let Some(link) = self.known.get(&node).and_then(|it| it.link.as_ref()) {
            let _ = link.orders.send(order);
        }
    }

    /// Lines of this replica come over the connection of its node, if it is not on this machine.
    pub fn know_log(&self, node: NodeId, replica: ReplicaId, log: &Arc<ReplicaLog>) {
        if let Some(link) = self.known.get(&node).and_then(|it| it.link.as_ref()) {
            link.logs.know(replica, log);
        }
    }

    pub fn endpoint(&self, node: NodeId, replica: ReplicaId) -> Option<Endpoint> {
        let relay = self.known.get(&node)?.relay.clone();
        Some(Endpoint::Node(Arc::new(NodePlace { relay, replica })))
    }

    pub fn name(&self, node: NodeId) -> Option<&str> {
        self.known.get(&node).map(|it| it.name.as_str())
    }

    /// The node of this name, if it takes part.
    pub fn joined_as(&self, name: &str) -> Option<NodeId> {
        let mut known = self.known.iter();
        let found = known.find(|(_, it)| it.has_joined && it.name == name);
        found.map(|(&id, _)| id)
    }

    /// What readers see.
    pub fn facts(&self) -> BTreeMap<NodeId, NodeFacts> {
        let facts = |it: &Node| NodeFacts {
            name: it.name.clone(),
            version: it.version.clone(),
            address: it.peer,
            relay: it.relay.address,
            is_encrypted: it.relay.fingerprint.is_some(),
            joined_at: it.joined_at,
            is_leaving: it.is_leaving,
        };
        self.known.iter().map(|(&id, it)| (id, facts(it))).collect()
    }

    fn is_current(&self, node: NodeId, generation: u64) -> bool {
        self.known
            .get(&node)
            .is_some_and(|it| it.generation == generation)
    }
}

/// The loop has ended: nodes look for the next controller.
impl Drop for Nodes {
    fn drop(&mut self) {
        for link in self.known.values().filter_map(|it| it.link.as_ref()) {
            link.closed.cancel();
        }
    }
}

impl Control {
    pub(super) fn node_message(&mut self, message: NodeMessage) {
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
                if let Some(known) = self.nodes.known.get_mut(&node) {
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
            // Of a connection that another one has replaced.
            NodeMessage::Running { .. }
            | NodeMessage::Report { .. }
            | NodeMessage::Readings { .. }
            | NodeMessage::Disconnected { .. } => {}
        }
    }

    /// The node takes part from here on: what it has is what counts.
    fn node_lists(&mut self, node: NodeId, running: Vec<Running>) {
        let Some(known) = self.nodes.known.get_mut(&node) else {
            return;
        };
        known.has_joined = true;
        known.counts_as_joined = true;
        known.silent_since = None;
        let (name, demand) = (known.name.clone(), known.demand);
        let demand = self.cluster.joined(&name, demand);
        let end = self.cluster.end_of(&name);
        let ids: BTreeSet<ReplicaId> = running.iter().map(|it| ReplicaId(it.replica)).collect();
        let lost: Vec<ReplicaId> = self
            .replicas_on(node)
            .into_iter()
            .filter(|it| !ids.contains(it))
            .collect();
        for replica in lost {
            self.forget_replica(replica, &format!("node {name} came back without it"));
        }
        self.mark_away(node, false);
        let mut events = Vec::new();
        for id in self.nodes.devices(node) {
            if let Some(device) = self.devices.known.get(&id) {
                events.push(Event::DeviceRead {
                    device: id,
                    reading: self.devices.reading_of(&device.info),
                });
            }
        }
        events.push(self.links(Some(node)));
        events.extend(self.cordons_of_node(node));
        for it in running {
            let replica = ReplicaId(it.replica);
            if self.engines.processes.contains_key(&replica) {
                continue;
            }
            match self.adopt_from(node, &it) {
                Ok(event) => events.push(event),
                Err(why) => {
                    tracing::warn!(
                        "{} ({replica}) on node {name} is stopped: {why} (D2)",
                        it.model
                    );
                    let grace_ms = match it.ready_for_ms {
                        Some(_) => it.kept.stop_grace_ms,
                        None => 0,
                    };
                    let replica = it.replica;
                    self.nodes.order(node, Order::Stop { replica, grace_ms });
                }
            }
        }
        if let Some(link) = self.nodes.known.get(&node).and_then(|it| it.link.as_ref()) {
            link.logs.listed();
        }
        events.push(Event::NodeJoined {
            node,
            name,
            running: ids.into_iter().collect(),
            demand,
        });
        if let Some(at) = end {
            events.push(Event::NodeEnds { node, at });
        }
        self.turn_all(events);
        if std::mem::take(&mut self.nodes.has_new_devices) {
            self.figure_for_devices();
        }
        // A thousand of them join at once after a start of the controller.
        self.publish_if_quick();
    }

    fn node_report(&mut self, node: NodeId, report: NodeReport) {
        if self.nodes.name(node).is_none() {
            return;
        }
        match report {
            NodeReport::Engine { replica, report } => {
                let replica = ReplicaId(replica);
                let is_known = self
                    .engines
                    .processes
                    .get(&replica)
                    .is_some_and(|it| it.node == node);
                if is_known {
                    if let Some(endpoint) = self.nodes.endpoint(node, replica) {
                        self.report(replica, report.report(endpoint));
                    }
                } else if matches!(report, EngineReport::Exited(_))
                    && !self.engines.processes.contains_key(&replica)
                {
                    // One that the pool had given up: its memory is free now.
                    self.turn(Event::ReplicaExited {
                        replica,
                        exit: Exit::Requested,
                    });
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

    /// An order that no caller waits for.
    pub(super) fn node_order(&mut self, command: Command) {
        let order = OrderId(self.nodes.numbers.fetch_add(1, Ordering::Relaxed));
        self.turn(Event::OrderReceived { order, command });
    }

    pub(super) fn replicas_on(&self, node: NodeId) -> Vec<ReplicaId> {
        let on = self
            .engines
            .processes
            .iter()
            .filter(|(_, it)| it.node == node);
        on.map(|(&replica, _)| replica).collect()
    }

    /// The node of a replica, if it is not this machine.
    pub(super) fn node_of(&self, replica: ReplicaId) -> Option<NodeId> {
        let node = self.engines.processes.get(&replica)?.node;
        self.nodes.is_remote(node).then_some(node)
    }

    /// It ended without a report; the pool hears it by the node's event.
    pub(super) fn forget_replica(&mut self, replica: ReplicaId, why: &str) {
        let Some(process) = self.engines.processes.remove(&replica) else {
            return;
        };
        self.engines.stops.remove(&replica);
        if let Some(gate) = self.engines.drop_gate(replica) {
            gate.cut(Cut::Crashed(why.to_owned()));
        }
        self.withdraw(replica, process.model);
    }
}

/// A text of a node, for records and logs.
fn bounded(text: &str) -> String {
    let plain = text.chars().filter(|it| !it.is_control());
    plain.take(300).collect()
}
