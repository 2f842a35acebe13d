//! Nodes that are out of service: while a node drains, all its devices count as cordoned, including devices that it gets later
//! (N5).

use alloc::string::String;
use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::observe::order_start::leave;
use crate::types::action::{Action, RecordKind, Wish};
use crate::types::ids::{DeviceId, NodeId, OrderId, Span};
use crate::types::model::Cordon;
use crate::types::node::{Node, Presence};

impl Pool {
    pub(crate) fn node_drain_restored(&mut self, name: String, drain: Cordon) {
        self.drains.insert(name, drain);
        self.drains_change();
    }

    /// Applies each node's drain to its devices.
    pub(crate) fn drains_change(&mut self) {
        let ids: Vec<DeviceId> = self.devices.keys().copied().collect();
        for id in ids {
            let drain = self.drain_of(self.devices[&id].node);
            self.devices.get_mut(&id).expect("listed").drain = drain;
        }
        self.touch_everything();
    }

    /// The drain of a node, as a cordon of its devices.
    pub(crate) fn drain_of(&self, node: NodeId) -> Option<Cordon> {
        if self.drains.is_empty() {
            return None;
        }
        let name = self.node_name(node);
        let drain = self.drains.get(&name)?;
        Some(Cordon {
            reason: format!("node {name} drains: {} (N5)", drain.reason),
            ..drain.clone()
        })
    }

    pub(crate) fn node_drain_begins(
        &mut self,
        order: OrderId,
        node: NodeId,
        name: String,
        drain: Cordon,
        now: bool,
        actions: &mut Vec<Action>,
    ) {
        if self.is_gone(node) {
            // The node left while the store was writing. The drain would otherwise apply to the next machine of that name.
            let wish = Wish::DrainNode { name, drain: None };
            actions.push(Action::Keep { wish });
            self.set_targets(order, Vec::new(), Span::ZERO);
            return;
        }
        let reason = drain.reason.clone();
        self.drains.insert(name.clone(), drain);
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
        actions.push(Action::Record(record));
    }

    pub(crate) fn node_drain_ends(
        &mut self,
        order: OrderId,
        name: &str,
        actions: &mut Vec<Action>,
    ) {
        self.drains.remove(name);
        self.drains_change();
        let is_here = |node: &Node| node.name == name && node.presence != Presence::Gone;
        // A node that leaves on its own is drained first, and may be gone before the drain is ordered to end.
        let text = if self.known_nodes.values().any(is_here) {
            format!("node {name} serves again (N5)")
        } else {
            format!("the drain of node {name} ends: it is gone (N5)")
        };
        let mut record = self.record(RecordKind::NodeUndrain, None, text);
        record.order = Some(order);
        actions.push(Action::Record(record));
    }
}
