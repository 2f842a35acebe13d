//! The nodes that have joined, as the loop knows them: their connections, the replicas that the pool keeps on them, and their
//! presence. Replicas on nodes differ from local ones only in the route of orders and reports.
//! One file because all messages of nodes change the same table.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::state::Control;
use crate::gates::CutReason;
use crate::messages::{NodeLink, NodeMessage};
use crate::view::NodeFacts;
use config::Provider;
use engine::{Endpoint, NodePlace, RelayAddress, ReplicaLog};
use node_link::{EngineReport, NodeReport, Order, RunningEngine, WeightsReport};
use pool::{
    Command, Cordon, DemandId, DeviceId, Event, Exit, NodeId, OrderId, ReplicaId, Span, Time,
};

/// Smaller numbers belong to nodes and devices of this machine.
pub(crate) const FIRST_NUMBER: u32 = 1 << 16;
/// Margin added to the longest time a node needs before it counts as gone.
pub(crate) const MARGIN: Span = Span::from_secs(60);
/// Interval at which nodes are checked for silence.
const LOOK_EVERY: Span = Span(250);
/// Maximum number of nodes at a time.
pub const NODES_MAX: u32 = 1024;

/// The pool's number for the node with this number in the store.
pub(crate) fn node_id(number: u32) -> NodeId {
    NodeId(FIRST_NUMBER.saturating_add(number))
}

#[derive(Debug)]
pub(crate) struct Nodes {
    /// Identifies this start of the controller.
    pub epoch: u64,
    pub known: BTreeMap<NodeId, Node>,
    /// Nodes of the last controller that have not returned.
    pub expected: BTreeMap<NodeId, ExpectedNode>,
    /// Number of the last connection.
    pub generation: u64,
    pub fenced: VecDeque<u64>,
    pub looked: Time,
    /// Numbers of orders, shared with the handle. The loop gives orders too.
    numbers: Arc<AtomicU64>,
    /// New devices have come, and models have not been computed for them yet.
    pub has_new_devices: bool,
    /// Cordons of devices that are absent.
    pub cordons: Vec<(String, Cordon)>,
}

/// A node that had joined when the last controller ended, and has not returned yet.
#[derive(Debug)]
pub(crate) struct ExpectedNode {
    pub name: String,
    pub since: Time,
}

#[derive(Debug)]
pub(crate) struct Node {
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
    /// The node has listed its engines on this connection, and takes part.
    pub has_joined: bool,
    /// The core takes the node for joined: it has listed its engines on this or an earlier connection, and has not been reported
    /// silent since.
    pub counts_as_joined: bool,
    pub joined_at: Time,
    /// Time of the last message before the node fell silent.
    pub silent_since: Option<Time>,
    /// Number of the last report taken.
    pub taken: u64,
    pub is_leaving: bool,
    /// Drains by an order, until it is gone.
    pub drains: bool,
    /// `None` if the node does not report its weights.
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

    /// Time of the next check for silent nodes.
    pub fn next_look(&self) -> Option<Time> {
        let is_any = !self.known.is_empty() || !self.expected.is_empty();
        is_any.then(|| self.looked + LOOK_EVERY)
    }

    /// The way memory is counted on the node; `None` for the controller's machine.
    pub fn provider(&self, node: NodeId) -> Option<Provider> {
        self.known.get(&node).map(|node| node.provider)
    }

    pub fn is_remote(&self, node: NodeId) -> bool {
        self.known.contains_key(&node)
    }

    /// The device with this name on the node.
    pub fn device(&self, node: NodeId, name: &str) -> Option<DeviceId> {
        self.known.get(&node)?.devices.get(name).copied()
    }

    pub fn devices(&self, node: NodeId) -> BTreeSet<DeviceId> {
        let known = self.known.get(&node);
        known
            .map(|node| node.devices.values().copied().collect())
            .unwrap_or_default()
    }

    /// Accepts the node's next reading after one has been processed.
    pub fn reading_taken(&self, node: NodeId) {
        if let Some(link) = self.known.get(&node).and_then(|node| node.link.as_ref()) {
            link.reading_waits.store(false, Ordering::Release);
        }
    }

    /// Sends an order to a node. An order to a disconnected node is lost: after the node has returned, the pool sees its engines
    /// and orders again.
    pub fn order(&self, node: NodeId, order: Order) {
        if let Some(link) = self.known.get(&node).and_then(|node| node.link.as_ref()) {
            let _ = link.orders.send(order);
        }
    }

    /// Routes log lines of this replica from the connection of its node, unless it runs on this machine.
    pub fn know_log(&self, node: NodeId, replica: ReplicaId, log: &Arc<ReplicaLog>) {
        if let Some(link) = self.known.get(&node).and_then(|node| node.link.as_ref()) {
            link.logs.know(replica, log);
        }
    }

    pub fn endpoint(&self, node: NodeId, replica: ReplicaId) -> Option<Endpoint> {
        let relay = self.known.get(&node)?.relay.clone();
        Some(Endpoint::Node(Arc::new(NodePlace { relay, replica })))
    }

    pub fn name(&self, node: NodeId) -> Option<&str> {
        self.known.get(&node).map(|node| node.name.as_str())
    }

    /// The node of this name, if it takes part.
    pub fn joined_as(&self, name: &str) -> Option<NodeId> {
        let mut known = self.known.iter();
        let found = known.find(|(_, node)| node.has_joined && node.name == name);
        found.map(|(&id, _)| id)
    }

    /// The state of all nodes, for readers.
    pub fn facts(&self) -> BTreeMap<NodeId, NodeFacts> {
        let facts = |node: &Node| NodeFacts {
            name: node.name.clone(),
            version: node.version.clone(),
            address: node.peer,
            relay: node.relay.address,
            is_encrypted: node.relay.fingerprint.is_some(),
            joined_at: node.joined_at,
            is_leaving: node.is_leaving,
        };
        self.known
            .iter()
            .map(|(&id, node)| (id, facts(node)))
            .collect()
    }

    fn is_current(&self, node: NodeId, generation: u64) -> bool {
        self.known
            .get(&node)
            .is_some_and(|node| node.generation == generation)
    }
}

/// After the loop has ended, nodes look for the next controller.
impl Drop for Nodes {
    fn drop(&mut self) {
        for link in self.known.values().filter_map(|node| node.link.as_ref()) {
            link.closed.cancel();
        }
    }
}

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
            // A message of a connection that has been replaced.
            NodeMessage::Running { .. }
            | NodeMessage::Report { .. }
            | NodeMessage::Readings { .. }
            | NodeMessage::Disconnected { .. } => {}
        }
    }

    /// Takes the list of a node's engines. From here on the node takes part.
    fn node_lists(&mut self, node: NodeId, running: Vec<RunningEngine>) {
        let Some(known) = self.nodes.known.get_mut(&node) else {
            return;
        };
        known.has_joined = true;
        known.counts_as_joined = true;
        known.silent_since = None;
        let (name, demand) = (known.name.clone(), known.demand);
        let demand = self.cluster.joined(&name, demand);
        let end = self.cluster.end_of(&name);
        let ids: BTreeSet<ReplicaId> = running
            .iter()
            .map(|engine| ReplicaId(engine.replica))
            .collect();
        let lost: Vec<ReplicaId> = self
            .replicas_on(node)
            .into_iter()
            .filter(|replica| !ids.contains(replica))
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
        events.extend(self.allowed_on(node));
        events.extend(self.cordons_of_node(node));
        for engine in running {
            let replica = ReplicaId(engine.replica);
            if self.engines.processes.contains_key(&replica) {
                continue;
            }
            match self.adopt_from(node, &engine) {
                Ok(event) => events.push(event),
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
        if let Some(link) = self
            .nodes
            .known
            .get(&node)
            .and_then(|node| node.link.as_ref())
        {
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
        // A thousand nodes may join simultaneously after a start of the controller.
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
                    .is_some_and(|process| process.node == node);
                if is_known {
                    if let Some(endpoint) = self.nodes.endpoint(node, replica) {
                        self.report(replica, report.report(endpoint));
                    }
                } else if matches!(report, EngineReport::Exited(_))
                    && !self.engines.processes.contains_key(&replica)
                {
                    // The pool had given this replica up. Its memory is free now.
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

    /// Gives an order that no caller waits for.
    pub(crate) fn node_order(&mut self, command: Command) {
        let order = OrderId(self.nodes.numbers.fetch_add(1, Ordering::Relaxed));
        self.turn(Event::OrderReceived { order, command });
    }

    pub(crate) fn replicas_on(&self, node: NodeId) -> Vec<ReplicaId> {
        let on = self
            .engines
            .processes
            .iter()
            .filter(|(_, process)| process.node == node);
        on.map(|(&replica, _)| replica).collect()
    }

    /// The node of a replica; `None` for this machine.
    pub(crate) fn node_of(&self, replica: ReplicaId) -> Option<NodeId> {
        let node = self.engines.processes.get(&replica)?.node;
        self.nodes.is_remote(node).then_some(node)
    }

    /// Forgets a replica that ended without a report. The pool learns of it from the node's event.
    pub(crate) fn forget_replica(&mut self, replica: ReplicaId, why: &str) {
        let Some(process) = self.engines.processes.remove(&replica) else {
            return;
        };
        self.engines.stops.remove(&replica);
        if let Some(gate) = self.engines.drop_gate(replica) {
            gate.cut(CutReason::Crashed(why.to_owned()));
        }
        self.withdraw(replica, process.model);
    }
}

/// Bounds a text of a node, for records and logs.
fn bounded(text: &str) -> String {
    let plain = text.chars().filter(|char| !char.is_control());
    plain.take(300).collect()
}
