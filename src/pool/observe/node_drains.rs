//! Nodes that are out of service: while a node drains every device of it is as cordoned, those that it gets later included
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

    /// Every device follows its node.
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
            // It went while the store wrote: a drain would wait for the next machine of that name.
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
        let wait = match now {
            true => Span::ZERO,
            false => self.limits.unload_drain,
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
        let is_here = |it: &Node| it.name == name && it.presence != Presence::Gone;
        // A node that leaves by itself is drained first, and may be gone before the end of that is ordered.
        let text = match self.known_nodes.values().any(is_here) {
            true => format!("node {name} serves again (N5)"),
            false => format!("the drain of node {name} ends: it is gone (N5)"),
        };
        let mut record = self.record(RecordKind::NodeUndrain, None, text);
        record.order = Some(order);
        actions.push(Action::Record(record));
    }
}
