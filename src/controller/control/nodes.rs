//! The nodes that have joined, as the loop knows them: their connections, the replicas that the pool keeps on them, and their
//! presence. Replicas on nodes differ from local ones only in the route of orders and reports.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::returning_gangs::ReturningGangs;
use crate::messages::NodeLink;
use crate::view::NodeFacts;
use config::Provider;
use engine::{Endpoint, NodePlace, RelayAddress, ReplicaLog};
use node_link::{Order, WeightsReport};
use pool::{Cordon, DemandId, DeviceId, NodeId, OrderId, ReplicaId, Span, Time};

/// Smaller numbers belong to nodes and devices of this machine.
pub(crate) const FIRST_NUMBER: u32 = 1 << 16;
/// Margin added to the longest time a node needs before it counts as gone.
pub(crate) const MARGIN: Span = Span::from_secs(60);
/// Interval at which nodes are checked for silence.
const LOOK_EVERY: Span = Span(250);
/// Nodes that were given up and must not return with their engines.
const FENCED_MAX: usize = 1024;
/// Maximum number of nodes at a time.
pub const NODES_MAX: u32 = 1024;

/// The pool's number for the node with this number in the store.
pub(crate) fn node_id(number: u32) -> NodeId {
    NodeId(FIRST_NUMBER.saturating_add(number))
}

#[derive(Debug)]
pub(crate) struct Nodes {
    /// Identifies this start of the controller.
    epoch: u64,
    known: BTreeMap<NodeId, Node>,
    /// Nodes of the last controller that have not returned.
    expected: BTreeMap<NodeId, ExpectedNode>,
    /// Number of the last connection.
    generation: u64,
    fenced: VecDeque<u64>,
    looked: Time,
    /// Numbers of orders, shared with the handle. The loop gives orders too.
    numbers: Arc<AtomicU64>,
    /// New devices have come, and models have not been computed for them yet.
    has_new_devices: bool,
    /// Cordons of devices that are absent.
    cordons: Vec<(String, Cordon)>,
    /// Replicas of the last controller on several nodes, of which not all have returned.
    pub returning: ReturningGangs,
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
    /// The node's version can run a process of a replica that spans several nodes.
    pub runs_members: bool,
    /// Changes when another process continues the node's work.
    pub process: u64,
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
            returning: ReturningGangs::default(),
        }
    }

    /// Identifies this start of the controller.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn get(&self, node: NodeId) -> Option<&Node> {
        self.known.get(&node)
    }

    pub fn get_mut(&mut self, node: NodeId) -> Option<&mut Node> {
        self.known.get_mut(&node)
    }

    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.known.iter().map(|(&id, node)| (id, node))
    }

    /// The first node for which this holds.
    pub fn find(&self, is_it: impl Fn(&Node) -> bool) -> Option<NodeId> {
        self.iter().find(|(_, node)| is_it(node)).map(|(id, _)| id)
    }

    /// Returns true if no node has joined.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Returns true if no further node can join.
    pub fn is_full(&self) -> bool {
        self.known.len() >= NODES_MAX as usize
    }

    /// Adds an accepted node, in place of an earlier connection of it. It is no longer expected.
    pub fn add(&mut self, id: NodeId, node: Node) {
        self.expected.remove(&id);
        self.known.insert(id, node);
    }

    pub fn remove(&mut self, node: NodeId) -> Option<Node> {
        self.known.remove(&node)
    }

    /// The number of a new connection.
    pub fn next_generation(&mut self) -> u64 {
        self.generation += 1;
        self.generation
    }

    /// The number of an order that the loop gives.
    pub fn next_order(&self) -> OrderId {
        OrderId(self.numbers.fetch_add(1, Ordering::Relaxed))
    }

    /// Nodes of the last controller that have not returned.
    pub fn expected(&self) -> impl Iterator<Item = (NodeId, &ExpectedNode)> {
        self.expected.iter().map(|(&id, node)| (id, node))
    }

    pub fn find_expected(&self, name: &str) -> Option<NodeId> {
        let mut named = self.expected().filter(|(_, node)| node.name == name);
        named.next().map(|(id, _)| id)
    }

    /// Returns true if the node of this name has not listed its engines to this controller yet, and may still do so.
    pub fn may_list(&self, name: &str) -> bool {
        let is_it = |node: &Node| node.name == name && !node.counts_as_joined;
        self.find_expected(name).is_some() || self.find(is_it).is_some()
    }

    pub fn expects_any(&self) -> bool {
        !self.expected.is_empty()
    }

    pub fn expect(&mut self, node: NodeId, expected: ExpectedNode) {
        self.expected.insert(node, expected);
    }

    pub fn no_longer_expect(&mut self, node: NodeId) -> Option<ExpectedNode> {
        self.expected.remove(&node)
    }

    /// Refuses this start of a node from here on.
    pub fn fence(&mut self, epoch: u64) {
        self.fenced.push_back(epoch);
        if self.fenced.len() > FENCED_MAX {
            self.fenced.pop_front();
        }
    }

    pub fn is_fenced(&self, epoch: u64) -> bool {
        self.fenced.contains(&epoch)
    }

    /// Notes that models must be computed for devices that have come.
    pub fn note_new_devices(&mut self) {
        self.has_new_devices = true;
    }

    /// Returns true once after new devices have come.
    pub fn take_new_devices(&mut self) -> bool {
        std::mem::take(&mut self.has_new_devices)
    }

    /// Keeps the cordon of a device that is absent.
    pub fn keep_cordon(&mut self, key: String, cordon: Cordon) {
        self.cordons.push((key, cordon));
    }

    /// The kept cordon of a device that has come.
    pub fn take_cordon(&mut self, key: &str) -> Option<Cordon> {
        let at = self.cordons.iter().position(|(of, _)| of == key)?;
        Some(self.cordons.swap_remove(at).1)
    }

    /// Notes the time of a check for silent nodes.
    pub fn looked_at(&mut self, now: Time) {
        self.looked = now;
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
        self.find(|node| node.has_joined && node.name == name)
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

    /// Returns true for messages of the node's present connection.
    pub fn is_current(&self, node: NodeId, generation: u64) -> bool {
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
