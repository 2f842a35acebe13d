//! When a node counts as silent, and when as gone: what is unknown keeps what it has, until it must have ended.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::control::Control;
use super::nodes::{MARGIN, node_id};
use pool::{Command, Event, NodeId, Span, Time};

/// A node that had joined when the controller ended, and has not come back yet.
#[derive(Debug)]
pub(super) struct Expected {
    name: String,
    since: Time,
}

/// Nodes that were given up and must not come back with their engines.
const FENCED_MAX: usize = 1024;

impl Control {
    /// Nodes that had joined when the controller ended count as silent until they join again.
    pub(super) fn nodes_of(&mut self, nodes: Vec<(u32, String)>) -> Vec<Event> {
        let since = self.clock.now();
        let mut events = Vec::with_capacity(nodes.len());
        for (number, name) in nodes {
            let node = node_id(number);
            tracing::info!("node {name} is expected back");
            let expected = Expected {
                name: name.clone(),
                since,
            };
            self.nodes.expected.insert(node, expected);
            events.push(Event::NodeExpected { node, name });
        }
        events
    }

    /// Looks whether nodes have fallen silent, and whether silent ones are certainly gone.
    pub(super) fn look_at_nodes(&mut self, now: Time) {
        if self.nodes.next_look().is_none_or(|at| at > now) {
            return;
        }
        self.nodes.looked = now;
        let silent_after = self.config.node.silent_after.0;
        let gone_after = self.gone_after();
        let mut silent = Vec::new();
        let mut gone = Vec::new();
        for (&id, node) in &self.nodes.known {
            let heard = node
                .link
                .as_ref()
                .map(|it| Time(it.heard.load(Ordering::Relaxed)));
            match (node.silent_since, heard) {
                (None, Some(heard)) if now.since(heard) > silent_after => silent.push(id),
                (Some(since), _) if now.since(since) > gone_after => gone.push(id),
                _ => {}
            }
        }
        let waited = |it: &Expected| now.since(it.since) > gone_after;
        let absent: Vec<NodeId> = self
            .nodes
            .expected
            .iter()
            .filter(|(_, it)| waited(it))
            .map(|(&id, _)| id)
            .collect();
        for id in absent {
            self.node_did_not_return(
                id,
                &format!("did not come back within {gone_after} of the controller's start"),
            );
        }
        for id in silent {
            self.node_silent(id, &format!("it has said nothing for {silent_after}"));
        }
        for id in gone {
            self.node_gone(
                id,
                &format!("has been silent for {gone_after} and must have ended by itself"),
            );
        }
    }

    /// A silent node ends its engines by itself after `orphan_after` and its drain.
    pub(super) fn gone_after(&self) -> Span {
        self.config.node.orphan_after.0 + self.config.unload_drain() + MARGIN
    }

    pub(super) fn node_silent(&mut self, node: NodeId, why: &str) {
        let now = self.clock.now();
        let Some(known) = self.nodes.known.get_mut(&node) else {
            return;
        };
        // Whatever comes on this connection is late.
        if let Some(link) = known.link.take() {
            link.closed.cancel();
        }
        known.generation = 0;
        let had_joined = std::mem::replace(&mut known.has_joined, false);
        if known.silent_since.is_none() {
            known.silent_since = Some(now);
        }
        if had_joined {
            tracing::warn!("node {} is silent: {why}", known.name);
            self.mark_away(node, true);
            self.turn(Event::NodeSilent { node });
            self.publish();
        }
    }

    /// For the requests inside the engines of a node: what becomes of them if their connections end.
    pub(super) fn mark_away(&self, node: NodeId, is_away: bool) {
        for replica in self.replicas_on(node) {
            if let Some(gate) = self.engines.gates.get(&replica) {
                gate.set_away(is_away);
            }
        }
    }

    /// It was ordered to end. Without a lease it drains at once. With one, what is in use moves first, as far as its time
    /// allows (N7): the cluster may have made it shorter.
    pub(super) fn node_leaves(&mut self, node: NodeId, why: &str) {
        let Some(known) = self.nodes.known.get_mut(&node) else {
            return;
        };
        if std::mem::replace(&mut known.is_leaving, true) {
            return;
        }
        tracing::info!("node {} leaves: {why}", known.name);
        let until = self.clock.now() + self.config.unload_drain();
        if let Some(end) = self.cluster.end_of(&known.name) {
            self.cluster.leaves(&known.name);
            let at = end.min(until);
            self.turn(Event::NodeLeaves { node, at });
            return self.publish();
        }
        known.drains = true;
        self.node_order(Command::DrainNode {
            node,
            reason: format!("it leaves: {why}"),
            until: Some(until + MARGIN),
            now: false,
        });
    }

    fn node_did_not_return(&mut self, node: NodeId, why: &str) {
        let Some(expected) = self.nodes.expected.remove(&node) else {
            return;
        };
        tracing::info!("node {} {why}", expected.name);
        self.turn(Event::NodeGone {
            node,
            why: why.to_owned(),
        });
        self.publish();
        self.void_credential(expected.name);
    }

    /// It needs a token to join again.
    fn void_credential(&mut self, name: String) {
        let store = Arc::clone(&self.store);
        self.tasks.spawn(async move {
            if let Err(fault) = store.save_node_credential(&name, None).await {
                tracing::warn!(%fault, "the credential of a node that is gone stays");
            }
        });
    }

    pub(super) fn node_gone(&mut self, node: NodeId, why: &str) {
        let Some(known) = self.nodes.known.remove(&node) else {
            return;
        };
        tracing::info!("node {} {why}", known.name);
        self.cluster.gone(&known.name);
        self.nodes.fenced.push_back(known.epoch);
        if self.nodes.fenced.len() > FENCED_MAX {
            self.nodes.fenced.pop_front();
        }
        if known.drains {
            self.node_order(Command::UndrainNode { node });
        }
        for replica in self.replicas_on(node) {
            self.forget_replica(replica, &format!("node {} {why}", known.name));
        }
        self.turn(Event::NodeGone {
            node,
            why: why.to_owned(),
        });
        if let Some(link) = known.link {
            link.closed.cancel();
        }
        self.devices
            .remove(&known.devices.values().copied().collect());
        self.publish();
        self.void_credential(known.name);
    }
}
