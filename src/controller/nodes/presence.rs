//! Decides when a node counts as silent and when as gone. The engines of a silent node stay counted until they must have ended.

use std::sync::atomic::Ordering;

use crate::control::nodes::node_id;
use crate::control::{Control, ExpectedNode, MARGIN, Node};
use crate::gates::CutReason;
use pool::{Command, Event, NodeId, ReplicaId, Span, StopReason, Time};

impl Control {
    /// Treats nodes that had joined when the last controller ended as silent until they join again.
    pub(crate) fn nodes_of(&mut self, nodes: Vec<(u32, String)>) -> Vec<Event> {
        let since = self.clock.now();
        let mut events = Vec::with_capacity(nodes.len());
        for (number, name) in nodes {
            let node = node_id(number);
            tracing::info!("node {name} is expected to return");
            self.cluster.silent(&name);
            let expected = ExpectedNode {
                name: name.clone(),
                since,
            };
            self.nodes.expect(node, expected);
            events.push(Event::NodeExpected { node, name });
        }
        events
    }

    /// Finds nodes that have fallen silent, and silent nodes that are certainly gone.
    pub(crate) fn look_at_nodes(&mut self, now: Time) {
        if self.nodes.next_look().is_none_or(|at| at > now) {
            return;
        }
        self.nodes.looked_at(now);
        let silent_after = self.config.node.silent_after.0;
        let gone_after = self.gone_after();
        let mut silent = Vec::new();
        let mut gone = Vec::new();
        for (id, node) in self.nodes.iter() {
            let heard = node
                .link
                .as_ref()
                .map(|link| Time(link.heard.load(Ordering::Relaxed)));
            let is_mute = heard.is_some_and(|heard| now.since(heard) > silent_after);
            // Includes a node that has reconnected without listing its engines yet.
            if is_mute && (node.counts_as_joined || node.silent_since.is_none()) {
                silent.push(id);
            } else if node
                .silent_since
                .is_some_and(|since| now.since(since) > gone_after)
            {
                gone.push(id);
            }
        }
        let waited = |expected: &ExpectedNode| now.since(expected.since) > gone_after;
        let absent: Vec<NodeId> = self
            .nodes
            .expected()
            .filter(|(_, expected)| waited(expected))
            .map(|(id, _)| id)
            .collect();
        for id in absent {
            self.node_did_not_return(
                id,
                &format!("did not come back within {gone_after} of the controller's start"),
            );
        }
        // A failing switch takes many nodes with it: reports them in one turn, which decides and reads once.
        let why = format!("it has sent nothing for {silent_after}");
        let silent: Vec<Event> = silent
            .into_iter()
            .filter_map(|id| self.falls_silent(id, &why))
            .collect();
        let mut has_news = !silent.is_empty();
        if has_news {
            self.turn_all(silent);
        }
        let why = format!("has been silent for {gone_after} and must have ended on its own");
        for id in gone {
            has_news |= self.is_gone_now(id, &why);
        }
        if has_news {
            self.publish();
        }
    }

    /// Time after which a silent node has ended its engines on its own: `orphan_after`, its drain and a margin.
    pub(super) fn gone_after(&self) -> Span {
        self.config.node.orphan_after.0 + self.config.unload_drain() + MARGIN
    }

    pub(crate) fn node_silent(&mut self, node: NodeId, why: &str) {
        if let Some(event) = self.falls_silent(node, why) {
            self.turn(event);
            self.publish();
        }
    }

    /// Marks the node as silent. Returns the event for the core, if the core took the node for joined.
    fn falls_silent(&mut self, node: NodeId, why: &str) -> Option<Event> {
        let now = self.clock.now();
        let known = self.nodes.get_mut(node)?;
        // Later messages on this connection must not count.
        if let Some(link) = known.link.take() {
            link.closed.cancel();
        }
        known.generation = 0;
        known.has_joined = false;
        let counted = std::mem::replace(&mut known.counts_as_joined, false);
        if known.silent_since.is_none() {
            known.silent_since = Some(now);
        }
        if !counted {
            return None;
        }
        tracing::warn!("node {} is silent: {why}", known.name);
        self.cluster.silent(&known.name);
        self.engines.mark_away(node, true);
        Some(Event::NodeSilent { node })
    }

    /// Handles a node that was ordered to end. Without a lease it drains immediately. With one, replicas in use move first, as far
    /// as the remaining time allows (N7): the cluster may have shortened it.
    pub(crate) fn node_leaves(&mut self, node: NodeId, why: &str) {
        let Some(known) = self.nodes.get_mut(node) else {
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

    /// Handles the end of a silent node's lease, as the cluster reports it: its engines have ended with it. A node that has returned
    /// in the meantime is not affected.
    pub(super) fn lease_ended(&mut self, name: &str, why: &str) {
        let is_silent = |node: &Node| node.name == name && node.link.is_none();
        let silent = self.nodes.find(is_silent);
        let expected = self.nodes.find_expected(name);
        let why = format!("has ended ({why})");
        if let Some(id) = silent {
            self.node_gone(id, &why);
        } else if let Some(id) = expected {
            self.node_did_not_return(id, &why);
        }
    }

    /// The reason for the end of an engine whose node leaves. A cluster that ends a job signals the engines too, which is not a crash.
    pub(crate) fn ends_with_its_node(&self, replica: ReplicaId) -> Option<CutReason> {
        self.ends_with_node(self.node_of(replica)?)
    }

    /// The same for the process of a replica on this node.
    pub(crate) fn ends_with_node(&self, node: NodeId) -> Option<CutReason> {
        let known = self.nodes.get(node)?;
        known.is_leaving.then(|| {
            CutReason::Stopped(StopReason::NodeEnds {
                node: known.name.clone(),
                has_moved: false,
            })
        })
    }

    fn node_did_not_return(&mut self, node: NodeId, why: &str) {
        let Some(expected) = self.nodes.no_longer_expect(node) else {
            return;
        };
        tracing::info!("node {} {why}", expected.name);
        self.cluster.gone(&expected.name);
        self.turn(Event::NodeGone {
            node,
            why: why.to_owned(),
        });
        self.end_incomplete_gangs();
        self.publish();
        self.void_credential(expected.name);
    }

    /// Voids the node's credential: it needs a token to join again.
    fn void_credential(&mut self, name: String) {
        let store = self.journal.store();
        self.background.spawn(async move {
            if let Err(error) = store.save_node_credential(&name, None).await {
                tracing::warn!(%error, "the credential of a node that is gone could not be removed");
            }
        });
    }

    pub(crate) fn node_gone(&mut self, node: NodeId, why: &str) {
        if self.is_gone_now(node, why) {
            self.publish();
        }
    }

    /// Removes a node without publishing. Returns `false` if the node is not known.
    fn is_gone_now(&mut self, node: NodeId, why: &str) -> bool {
        let Some(known) = self.nodes.remove(node) else {
            return false;
        };
        tracing::info!("node {} {why}", known.name);
        self.cluster.gone(&known.name);
        self.nodes.fence(known.epoch);
        if known.drains {
            self.node_order(Command::UndrainNode { node });
        }
        for replica in self.engines.on_node(node) {
            self.forget_replica(node, replica, &format!("node {} {why}", known.name));
        }
        self.nodes.returning.node_goes(node);
        self.turn(Event::NodeGone {
            node,
            why: why.to_owned(),
        });
        if let Some(link) = known.link {
            link.closed.cancel();
        }
        self.devices
            .remove(&known.devices.values().copied().collect());
        self.void_credential(known.name);
        self.end_incomplete_gangs();
        true
    }
}
