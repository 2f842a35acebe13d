//! Nodes that join, fall silent, return and leave (N1–N4), and their drains (N5). Facts only.
//!
//! ```text
//!              ┌──────────── joined ◀───────────┐
//!   joined ──▶ Joined ── nothing heard ──▶ Silent
//!                └───────── gone ──▶ Gone ◀─┘ (joins again, with engines that the pool has given up)
//! ```
//!
//! A device never has two owners: a silent node keeps its reservations, and nothing is placed there. Only when a node is certain to
//! be gone do its replicas end and its devices leave. If it returns with engines from before, nothing is placed on it until all of
//! them have ended, because the memory they hold is unknown.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::commit::actions::Actions;
use crate::facts::state::Pool;
use crate::types::action::RecordKind;
use crate::types::gang::GangReach;
use crate::types::ids::{DemandId, DeviceId, ModelId, NodeId, ReplicaId, Span};
use crate::types::node::{Node, Presence};
use crate::types::node_demand::PendingNode;
use crate::types::reason::plural;

/// A node's own facts when it joins.
pub(crate) struct JoiningNode {
    pub name: String,
    pub demand: Option<DemandId>,
    pub reach: GangReach,
}

impl Pool {
    pub(crate) fn node_joined(
        &mut self,
        id: NodeId,
        joining: JoiningNode,
        running: Vec<ReplicaId>,
        actions: &mut Actions,
    ) {
        let JoiningNode {
            name,
            demand,
            reach,
        } = joining;
        let running: BTreeSet<ReplicaId> = running.into_iter().collect();
        let silent_for = self.nodes.is_silent(id).then(|| self.silent_for(id));
        self.node_demand.no_longer_releases(id);
        let shape = self.demand_is_met(id, demand);
        let shape = shape.or_else(|| self.nodes.known(id)?.shape);
        let lease = self.nodes.known(id).and_then(|known| known.lease);
        let before = self.nodes.joins(
            id,
            Node {
                name: name.clone(),
                presence: Presence::Joined,
                since: self.now,
                demand,
                shape,
                lease,
                reach,
            },
        );
        let known = self.replicas_on(id);
        let lost: Vec<ReplicaId> = known
            .iter()
            .filter(|id| !running.contains(id))
            .copied()
            .collect();
        let text = match (&before, silent_for) {
            (_, Some(silent)) => format!("node {name} is back after {silent}"),
            (Some(known), _) if known.presence == Presence::Joined => {
                format!("node {name} has reconnected")
            }
            (Some(_), _) => format!("node {name} has joined again"),
            (None, _) => format!("node {name} has joined"),
        };
        let text = match lost.len() {
            0 => format!("{text} (N1)"),
            count => format!("{text}; it has lost {} (N1)", replicas(count)),
        };
        let record = self.record(RecordKind::NodeJoined, None, text);
        actions.record(record);
        for &replica in &lost {
            self.vanishes(replica, id, "came back without it", actions);
        }
        for &replica in known.iter().filter(|id| running.contains(id)) {
            self.orders_again(replica, silent_for.unwrap_or(Span::ZERO), actions);
            let model = self.replicas[&replica].model;
            self.models
                .get_mut(&model)
                .expect("a replica's model stays")
                .has_returned = true;
        }
        if self.nodes.any_drains() {
            self.drains_change();
        }
        self.nodes.has_ended_others(id);
        for replica in running {
            let known = self.replicas.get(&replica);
            if known.is_some_and(|known| self.is_on(known, id)) {
                continue;
            }
            self.nodes.gives_up(replica, id);
            let is_known = known.is_some();
            // The shell adopts or ends an engine of an earlier controller.
            let is_own = is_known || self.has_given(replica);
            self.replicas.takes_id(replica);
            if is_own {
                self.disown(id, replica, actions);
            }
        }
        self.node_changes(id);
    }

    /// A node from before the restart counts as silent until it joins: nothing is too large for a machine that is not back yet.
    pub(crate) fn node_expected(&mut self, id: NodeId, name: String, actions: &mut Actions) {
        if id == NodeId(0) || self.nodes.known(id).is_some() {
            return;
        }
        let text = format!(
            "node {name} had joined before the controller started, and is expected back (N2)"
        );
        self.nodes.expects(id, name, self.now);
        let record = self.record(RecordKind::NodeSilent, None, text);
        actions.record(record);
        self.node_changes(id);
    }

    pub(crate) fn node_silent(&mut self, id: NodeId, actions: &mut Actions) {
        let now = self.now;
        let Some(name) = self.nodes.falls_silent(id, now) else {
            return;
        };
        let held = self.replicas_on(id);
        let grace_ends = now + self.limits.silent_grace;
        let models: BTreeSet<ModelId> = held.iter().map(|id| self.replicas[id].model).collect();
        for model in models {
            self.look_again(grace_ends, model);
        }
        let text = match held.len() {
            0 => format!("node {name} does not respond; nothing is placed on it (N2)"),
            count => format!(
                "node {name} does not respond; {} memory, and nothing is placed on it (N2)",
                keep(count)
            ),
        };
        let record = self.record(RecordKind::NodeSilent, None, text);
        actions.record(record);
        self.node_changes(id);
    }

    /// Ends the node's replicas and removes its devices from the pool.
    pub(crate) fn node_gone(&mut self, id: NodeId, why: String, actions: &mut Actions) {
        let now = self.now;
        let Some(name) = self.nodes.goes(id, now) else {
            return;
        };
        self.consolidation.node_goes(id);
        let is_its = |pending: &&PendingNode| pending.joined.is_some_and(|(node, _)| node == id);
        let of_demand = self.node_demand.pending().find(is_its);
        if let Some(demand) = of_demand.map(|pending| pending.demand) {
            self.node_refused(demand, &why, actions);
        }
        self.node_demand.node_goes(id);
        self.batches.node_goes(id);
        let held = self.replicas_on(id);
        let text = match held.len() {
            0 => format!("node {name} {why} (N3)"),
            count => format!("node {name} {why}; it had {} (N3)", replicas(count)),
        };
        let record = self.record(RecordKind::NodeGone, None, text);
        actions.record(record);
        for replica in held {
            self.vanishes(replica, id, &why, actions);
        }
        let devices = self.nodes.take_devices(id, name, why);
        let on = |device: &DeviceId| devices.contains(device);
        let mut planned: Vec<ReplicaId> = self.planned.keys().copied().collect();
        planned.retain(|id| {
            self.planned[id]
                .shares
                .iter()
                .any(|share| on(&share.device))
        });
        for load in planned {
            self.abandon(load);
        }
        for device in &devices {
            self.devices.depart(device);
        }
        self.shadows.is_current = false;
        self.disks.node_goes(id);
        self.touch_everything();
    }

    /// An engine that the pool had given up has ended or was adopted.
    pub(crate) fn is_off_the_node(&mut self, replica: ReplicaId) {
        for node in self.nodes.has_ended(replica) {
            self.node_changes(node);
        }
    }

    /// The same for the replica's process on a single node.
    pub(crate) fn is_off_this_node(&mut self, replica: ReplicaId, node: NodeId) {
        if self.nodes.has_ended_on(replica, node) {
            self.node_changes(node);
        }
    }

    /// The node's devices may be usable again, or no longer.
    pub(crate) fn node_changes(&mut self, id: NodeId) {
        let away = self.away(id);
        for device in self.nodes.devices_of(id) {
            let device = self.devices.get_mut(device).expect("of a node");
            device.away = away;
        }
        self.touch_everything();
    }

    pub(crate) fn weights_are_on(&mut self, id: NodeId, models: Vec<ModelId>) {
        if self.is_gone(id) {
            return;
        }
        self.nodes.set_weights(id, models);
    }
}

fn replicas(count: usize) -> String {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    format!("{count} replica{}", plural(count))
}

fn keep(count: usize) -> String {
    match count {
        1 => "1 replica keeps its".into(),
        _ => format!("{count} replicas keep their"),
    }
}
