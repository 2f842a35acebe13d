//! Carries out what concerns nodes: requests for them, their drains and moves, and repeated orders after a silence.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::commit::actions::Actions;
use crate::commit::order_start::leave;
use crate::facts::state::Pool;
use crate::types::action::{Action, RecordKind, Wish};
use crate::types::ids::{DemandId, ModelId, NodeId, OrderId, ReplicaId, ShapeId, Span};
use crate::types::model::Cordon;
use crate::types::node::{Node, Presence};
use crate::types::reason::plural;
use crate::types::replica::Phase;

impl Pool {
    pub(crate) fn nodes_requested(
        &mut self,
        demands: Vec<DemandId>,
        shape: ShapeId,
        (model, for_batches): (ModelId, bool),
        actions: &mut Actions,
    ) {
        let size = self.node_demand.shape_name(shape);
        let text = match demands.len() {
            1 if for_batches => {
                format!("one more node of size {size} is requested for batches (B8)")
            }
            1 => format!("one more node of size {size} is requested (S2)"),
            count => format!("{count} more nodes of size {size} are requested together (S2, M8)"),
        };
        let record = self.record(RecordKind::NodeRequested, Some(model), text);
        actions.record(record);
        actions.push(Action::RequestNodes { demands, shape });
        self.grows_everywhere();
    }

    /// Withdraws a request and the other requests of its set. Nodes that have joined for the set stay until they are released.
    pub(crate) fn cancel_node(&mut self, demand: DemandId, actions: &mut Actions) {
        let Some(pending) = self.node_demand.request_of(demand) else {
            return;
        };
        let all = self.node_demand.made_with(pending);
        self.set_dissolves(pending.set);
        for demand in all {
            if self.node_demand.end(demand).is_some() {
                actions.push(Action::CancelNode { demand });
            }
        }
        self.grows_everywhere();
    }

    /// Gives back a request that does not start. Its size counts as refused.
    pub(crate) fn give_up_node(&mut self, demand: DemandId, why: &str, actions: &mut Actions) {
        let Some(pending) = self.node_demand.request_of(demand) else {
            return;
        };
        let has_joined = pending.joined.is_some();
        self.node_refused(demand, why, actions);
        if !has_joined {
            actions.push(Action::CancelNode { demand });
        }
    }

    pub(crate) fn release_node(&mut self, node: NodeId, actions: &mut Actions) {
        self.node_demand.release(node);
        let why = if self.consolidation.empties(node) {
            "its models have a cheaper place (S3)".to_owned()
        } else if let Some(why) = self.batches.left_for(node) {
            format!("{why} (B8)")
        } else if self.nodes.moves(node) {
            "it is empty before its time ends (N7)".to_owned()
        } else {
            "it is idle (S2)".to_owned()
        };
        let text = format!("node {} is given back: {why}", self.node_name(node));
        let record = self.record(RecordKind::NodeReleased, None, text);
        actions.record(record);
        actions.push(Action::ReleaseNode { node });
        self.node_changes(node);
    }

    /// Begins to give a node back that was requested for batches. Loads for batches that were planned there are planned again.
    pub(crate) fn leave_node(&mut self, node: NodeId, why: String) {
        let on = self.nodes.devices_of(node);
        let holders = on.flat_map(|device| self.devices[device].holders.iter().copied());
        let planned: BTreeSet<ReplicaId> =
            holders.filter(|id| self.planned.contains_key(id)).collect();
        self.batches.leave(node, why);
        for load in planned {
            self.abandon(load);
        }
        self.node_changes(node);
    }

    pub(crate) fn move_from(&mut self, id: NodeId, actions: &mut Actions) {
        let now = self.now;
        if !self.nodes.starts_moving(id, now) {
            return;
        }
        self.consolidation.end(id);
        let (name, left) = (self.node_name(id), self.node_lasts(id));
        let count = u32::try_from(self.replicas_on(id).len()).unwrap_or(u32::MAX);
        let text = format!(
            "node {name} ends in {left}: nothing is placed on it, and what is in use of its {count} replica{} moves (N7)",
            plural(count)
        );
        let record = self.record(RecordKind::NodeEnds, None, text);
        actions.record(record);
        self.node_changes(id);
    }

    /// Begins to empty a node whose models have a cheaper place (S3).
    pub(crate) fn consolidate(&mut self, node: Option<NodeId>, actions: &mut Actions) {
        self.consolidation.has_looked(self.now);
        let Some(node) = node else {
            return;
        };
        self.consolidation.begin(node, self.now);
        self.nodes.empties(node);
        let count = u32::try_from(self.replicas_on(node).len()).unwrap_or(u32::MAX);
        let text = format!(
            "node {} is emptied: a cheaper place is free for its {count} replica{} (S3)",
            self.node_name(node),
            plural(count)
        );
        let record = self.record(RecordKind::NodeEmptied, None, text);
        actions.record(record);
        self.node_changes(node);
    }

    pub(crate) fn keep_node(&mut self, node: NodeId, why: &str, actions: &mut Actions) {
        self.consolidation.end(node);
        self.no_longer_moves(node);
        let text = format!("node {} serves again: {why} (S3)", self.node_name(node));
        let record = self.record(RecordKind::NodeEmptied, None, text);
        actions.record(record);
        self.node_changes(node);
    }

    pub(crate) fn node_drain_begins(
        &mut self,
        order: OrderId,
        node: NodeId,
        name: String,
        drain: Cordon,
        now: bool,
        actions: &mut Actions,
    ) {
        if self.is_gone(node) {
            // The node left while the store was writing. The drain would otherwise apply to the next machine of that name.
            let wish = Wish::DrainNode { name, drain: None };
            actions.push(Action::Keep { wish });
            self.set_targets(order, Vec::new(), Span::ZERO);
            return;
        }
        let reason = drain.reason.clone();
        self.nodes.set_drain(name.clone(), drain);
        self.drains_change();
        let targets = self.replicas_on(node);
        let count = targets.len();
        let wait = if now {
            Span::ZERO
        } else {
            self.limits.unload_drain
        };
        self.set_targets(order, targets, wait);
        let text = format!(
            "node {name} takes nothing new: {reason}; {} (N5)",
            leave(count)
        );
        let mut record = self.record(RecordKind::NodeDrain, None, text);
        record.order = Some(order);
        actions.record(record);
    }

    pub(crate) fn node_drain_ends(&mut self, order: OrderId, name: &str, actions: &mut Actions) {
        self.nodes.end_drain(name);
        self.drains_change();
        let is_here = |node: &Node| node.name == name && node.presence != Presence::Gone;
        // A node that leaves on its own is drained first, and may be gone before the drain is ordered to end.
        let text = if self.nodes.all_known().values().any(is_here) {
            format!("node {name} serves again (N5)")
        } else {
            format!("the drain of node {name} ends: it is gone (N5)")
        };
        let mut record = self.record(RecordKind::NodeUndrain, None, text);
        record.order = Some(order);
        actions.record(record);
    }

    /// Repeats orders that a lost connection may not have delivered. Carrying them out twice does no harm.
    pub(crate) fn orders_again(&mut self, id: ReplicaId, silent_for: Span, actions: &mut Actions) {
        let replica = self.replicas.get_mut(&id).expect("on the node");
        let wakes = replica.parked.is_some();
        match &mut replica.phase {
            // The time of silence does not count towards the deadline.
            Phase::Launching { deadline, .. } => {
                *deadline = *deadline + silent_for;
                let deadline = deadline.since(self.now);
                if wakes {
                    let replica = id;
                    actions.push(Action::Wake { replica, deadline });
                }
            }
            Phase::Parking {
                deadline, reason, ..
            } => {
                *deadline = *deadline + silent_for;
                actions.push(Action::Park {
                    replica: id,
                    reason: reason.clone(),
                });
            }
            Phase::Stopping { reason, .. } => {
                let grace = self.models[&replica.model].spec.stop_grace;
                let reason = reason.clone();
                actions.push(Action::Stop {
                    replica: id,
                    grace,
                    reason,
                });
            }
            Phase::Ready { .. } | Phase::Draining { .. } | Phase::Asleep { .. } => {}
        }
    }

    /// Has the node end an engine that the pool has given up.
    pub(crate) fn disown(&self, node: NodeId, replica: ReplicaId, actions: &mut Actions) {
        actions.push(Action::Disown { node, replica });
    }
}
