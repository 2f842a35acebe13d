//! The nodes: who has joined, fallen silent or left, their devices, remaining times, drains, weights and host memory. The fields
//! are private, so the indices change only together with what they index. Makes no choices.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use crate::facts::host::Host;
use crate::types::gang::GangReach;
use crate::types::ids::{DemandId, DeviceId, ModelId, NodeId, ReplicaId, ShapeId, Time};
use crate::types::model::Cordon;
use crate::types::node::{Node, NodeTime, Presence};

/// The number of gone nodes that are remembered to recognise late reports of them.
const GONE_MAX: usize = 1024;

#[derive(Clone, Debug, Default)]
pub(crate) struct Nodes {
    /// The devices of each node that is not gone.
    devices: BTreeMap<NodeId, BTreeSet<DeviceId>>,
    /// Nodes that have joined, including nodes that are gone again.
    known: BTreeMap<NodeId, Node>,
    /// Silent nodes, and the time since which they are silent (N2).
    silent: BTreeMap<NodeId, Time>,
    /// The number of each model's replicas on nodes that are expected back after a restart (N8).
    expected: BTreeMap<ModelId, BTreeMap<NodeId, usize>>,
    /// Nodes whose end is known (N7).
    times: BTreeMap<NodeId, NodeTime>,
    /// The time at which the models of each node start to move. Nodes whose models already move are not listed.
    moves_due: BTreeSet<(Time, NodeId)>,
    /// Nodes whose models move.
    moving: BTreeSet<NodeId>,
    /// Engines on nodes that are not, or no longer, replicas, until they have ended or are adopted (N4).
    given_up: BTreeSet<(ReplicaId, NodeId)>,
    /// Drains by node name, including nodes that are not present (N5).
    drains: BTreeMap<String, Cordon>,
    /// The models whose weights each node reports to have (N6).
    weights: BTreeMap<NodeId, BTreeSet<ModelId>>,
    /// The ledger of each node's host memory for sleepers.
    hosts: BTreeMap<NodeId, Host>,
    /// The node that left last, and the reason.
    last_gone: Option<(String, String)>,
}

/// Reads.
impl Nodes {
    /// The devices of a node; none if it is gone.
    pub fn devices_of(&self, node: NodeId) -> impl Iterator<Item = &DeviceId> {
        self.devices.get(&node).into_iter().flatten()
    }

    /// The devices of a node that has some.
    pub fn device_set(&self, node: NodeId) -> Option<&BTreeSet<DeviceId>> {
        self.devices.get(&node)
    }

    /// The devices of each node that has some.
    pub fn device_sets(&self) -> impl Iterator<Item = &BTreeSet<DeviceId>> {
        self.devices.values()
    }

    /// The nodes that have devices.
    pub fn with_devices(&self) -> impl Iterator<Item = NodeId> {
        self.devices.keys().copied()
    }

    pub fn has_devices(&self, node: NodeId) -> bool {
        self.devices.contains_key(&node)
    }

    pub fn known(&self, node: NodeId) -> Option<&Node> {
        self.known.get(&node)
    }

    /// Returns true if the node was requested for batches (B8).
    pub fn is_for_batches(&self, node: NodeId) -> bool {
        let demand = self.known.get(&node).and_then(|node| node.demand);
        demand.is_some_and(DemandId::is_for_batches)
    }

    /// The nodes with which this one can share a replica.
    pub fn reach(&self, node: NodeId) -> &GangReach {
        let known = self.known.get(&node);
        known.map_or(&GangReach::Network, |node| &node.reach)
    }

    pub fn all_known(&self) -> &BTreeMap<NodeId, Node> {
        &self.known
    }

    /// Silent nodes, and the time since which they are silent.
    pub fn silent(&self) -> &BTreeMap<NodeId, Time> {
        &self.silent
    }

    pub fn is_silent(&self, node: NodeId) -> bool {
        self.silent.contains_key(&node)
    }

    /// The nodes from which replicas of the model are expected back, and their number.
    pub fn expected(&self, model: ModelId) -> Option<&BTreeMap<NodeId, usize>> {
        self.expected.get(&model)
    }

    pub fn time(&self, node: NodeId) -> Option<&NodeTime> {
        self.times.get(&node)
    }

    pub fn any_has_time(&self) -> bool {
        !self.times.is_empty()
    }

    pub fn first_move(&self) -> Option<(Time, NodeId)> {
        self.moves_due.first().copied()
    }

    pub fn any_moves(&self) -> bool {
        !self.moving.is_empty()
    }

    /// The nodes whose models move.
    pub fn moving(&self) -> &BTreeSet<NodeId> {
        &self.moving
    }

    pub fn moves(&self, node: NodeId) -> bool {
        self.moving.contains(&node)
    }

    pub fn has_given_up(&self, engine: ReplicaId) -> bool {
        let on_any = (engine, NodeId(0))..=(engine, NodeId(u32::MAX));
        self.given_up.range(on_any).next().is_some()
    }

    pub fn given_up_on(&self, node: NodeId) -> usize {
        self.given_up.iter().filter(|(_, on)| *on == node).count()
    }

    pub fn any_drains(&self) -> bool {
        !self.drains.is_empty()
    }

    pub fn drain(&self, name: &str) -> Option<&Cordon> {
        self.drains.get(name)
    }

    pub fn any_reports_weights(&self) -> bool {
        !self.weights.is_empty()
    }

    /// Returns true if the node has reported its weights and the model's are missing (N6).
    pub fn lacks_weights(&self, node: NodeId, model: ModelId) -> bool {
        let known = self.weights.get(&node);
        known.is_some_and(|models| !models.contains(&model))
    }

    pub fn host(&self, node: NodeId) -> Option<&Host> {
        self.hosts.get(&node)
    }

    pub fn hosts(&self) -> &BTreeMap<NodeId, Host> {
        &self.hosts
    }

    /// The node that left last, and the reason.
    pub fn last_gone(&self) -> Option<&(String, String)> {
        self.last_gone.as_ref()
    }
}

/// Presence.
impl Nodes {
    /// Returns what was known of the node before.
    pub fn joins(&mut self, id: NodeId, node: Node) -> Option<Node> {
        self.silent.remove(&id);
        self.no_longer_expects(id);
        self.known.insert(id, node)
    }

    /// A node from before the restart counts as silent until it joins.
    pub fn expects(&mut self, id: NodeId, name: String, now: Time) {
        let node = Node {
            name,
            presence: Presence::Silent,
            since: now,
            demand: None,
            shape: None,
            lease: None,
            reach: GangReach::default(),
        };
        self.known.insert(id, node);
        self.silent.insert(id, now);
    }

    /// Returns true if the size of the requested node was unknown, or its lease.
    pub fn set_shape(&mut self, id: NodeId, shape: ShapeId, lease: Option<DemandId>) -> bool {
        let known = self.known.get_mut(&id);
        let Some(node) = known.filter(|node| node.demand.is_some()) else {
            return false;
        };
        let before = (node.shape, node.lease);
        node.shape = node.shape.or(Some(shape));
        node.lease = lease.or(node.lease);
        before != (node.shape, node.lease)
    }

    /// The nodes that end when this one is given back, and it. Nodes that are gone are left out.
    pub fn leased_with(&self, id: NodeId) -> Vec<NodeId> {
        let lease = self.known.get(&id).and_then(|node| node.lease);
        let Some(lease) = lease else {
            return vec![id];
        };
        let is_there = |node: &Node| node.presence != Presence::Gone && node.lease == Some(lease);
        let nodes = self.known.iter().filter(|(_, node)| is_there(node));
        nodes.map(|(id, _)| *id).collect()
    }

    /// Returns the node's name; `None` if it had not joined or is silent already.
    pub fn falls_silent(&mut self, id: NodeId, now: Time) -> Option<String> {
        let node = self.known.get_mut(&id)?;
        if id == NodeId(0) || node.presence != Presence::Joined {
            return None;
        }
        (node.presence, node.since) = (Presence::Silent, now);
        self.silent.insert(id, now);
        Some(node.name.clone())
    }

    /// Forgets everything about a node that is gone, except its devices. Returns its name; `None` if it is unknown or gone already.
    pub fn goes(&mut self, id: NodeId, now: Time) -> Option<String> {
        let node = self.known.get_mut(&id)?;
        if id == NodeId(0) || node.presence == Presence::Gone {
            return None;
        }
        (node.presence, node.since) = (Presence::Gone, now);
        let name = node.name.clone();
        self.silent.remove(&id);
        self.no_longer_expects(id);
        if let Some(time) = self.times.remove(&id) {
            self.moves_due.remove(&(time.moves, id));
        }
        self.moving.remove(&id);
        self.has_ended_others(id);
        self.weights.remove(&id);
        Some(name)
    }

    /// Takes the devices and the host memory of a node that is gone.
    pub fn take_devices(&mut self, id: NodeId, name: String, why: String) -> BTreeSet<DeviceId> {
        self.last_gone = Some((name, why));
        self.hosts.remove(&id);
        let gone = |node: &Node| node.presence == Presence::Gone;
        let all = self.known.iter().filter(|(_, node)| gone(node));
        if all.clone().count() > GONE_MAX
            && let Some((&oldest, _)) = all.min_by_key(|(_, node)| node.since)
        {
            self.known.remove(&oldest);
        }
        self.devices.remove(&id).unwrap_or_default()
    }

    pub fn add_device(&mut self, node: NodeId, device: DeviceId) {
        self.devices.entry(node).or_default().insert(device);
    }

    /// Counts one more replica of the model that is expected back.
    pub fn expects_replica(&mut self, model: ModelId, node: NodeId) {
        let of_model = self.expected.entry(model).or_default();
        *of_model.entry(node).or_default() += 1;
    }

    fn no_longer_expects(&mut self, node: NodeId) {
        self.expected.retain(|_, on| {
            on.remove(&node);
            !on.is_empty()
        });
    }

    pub fn gives_up(&mut self, engine: ReplicaId, node: NodeId) {
        self.given_up.insert((engine, node));
    }

    /// The engine has ended or was adopted. Returns the nodes on which the pool had given it up.
    pub fn has_ended(&mut self, engine: ReplicaId) -> Vec<NodeId> {
        let on_any = (engine, NodeId(0))..=(engine, NodeId(u32::MAX));
        let found: Vec<(ReplicaId, NodeId)> = self.given_up.range(on_any).copied().collect();
        let nodes = found.into_iter().map(|known| {
            self.given_up.remove(&known);
            known.1
        });
        nodes.collect()
    }

    /// The engine has ended on this node. Returns true if the pool had given it up there.
    pub fn has_ended_on(&mut self, engine: ReplicaId, node: NodeId) -> bool {
        self.given_up.remove(&(engine, node))
    }

    /// Forgets the node's engines that the pool has given up.
    pub fn has_ended_others(&mut self, node: NodeId) {
        self.given_up.retain(|(_, on)| *on != node);
    }
}

/// Times, drains, weights and host memory.
impl Nodes {
    pub fn set_time(&mut self, node: NodeId, time: NodeTime) {
        self.times.insert(node, time);
    }

    /// Nodes whose end is known.
    pub fn timed(&self) -> Vec<NodeId> {
        self.times.keys().copied().collect()
    }

    /// Schedules the time at which the node's models start to move.
    pub fn schedule_moves(&mut self, node: NodeId, at: Time) {
        if let Some(time) = self.times.get_mut(&node) {
            self.moves_due.remove(&(time.moves, node));
            self.moves_due.insert((at, node));
            time.moves = at;
        }
    }

    /// Returns false if the node's end is unknown.
    pub fn starts_moving(&mut self, node: NodeId, now: Time) -> bool {
        let Some(time) = self.times.get_mut(&node) else {
            return false;
        };
        self.moves_due.remove(&(time.moves, node));
        time.moves = now;
        self.moving.insert(node);
        true
    }

    /// The node's models move although its end is not near (S3).
    pub fn empties(&mut self, node: NodeId) {
        self.moving.insert(node);
    }

    pub fn stops_moving(&mut self, node: NodeId) {
        self.moving.remove(&node);
    }

    pub fn set_drain(&mut self, name: String, drain: Cordon) {
        self.drains.insert(name, drain);
    }

    pub fn end_drain(&mut self, name: &str) {
        self.drains.remove(name);
    }

    pub fn set_weights(&mut self, node: NodeId, models: impl IntoIterator<Item = ModelId>) {
        self.weights.insert(node, models.into_iter().collect());
    }

    pub fn host_mut(&mut self, node: NodeId) -> Option<&mut Host> {
        self.hosts.get_mut(&node)
    }

    /// The host of a reading; it is added if it is new.
    pub fn host_of_reading(&mut self, node: NodeId) -> &mut Host {
        self.hosts.entry(node).or_default()
    }
}
