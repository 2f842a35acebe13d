//! Weights on nodes: the weights that each node reports, the nodes that a launch may fetch them from, and the tokens for that.
//! Files never pass through the controller.

use std::sync::Arc;

use crate::control::{Control, Node};
use catalog::WeightsListing;
use node_link::{PeerForm, WeightsForm, WeightsReport, sign_peer_token};
use pool::{Bytes, Event, ModelId, NodeId, ReplicaId, Span, Time};

/// Maximum number of peers named for a launch.
const PEERS_MAX: usize = 2;
/// Lifetime of a token: the default deadline of a load (L3).
const TOKEN_FOR: Span = Span::from_secs(300);
/// Added to the lifetime for each GiB of weights.
const TOKEN_FOR_GIB: Span = Span::from_secs(20);
/// A longer list would not fit into a frame. Models have some hundred files.
const FILES_MAX: usize = 4096;
/// A node's list is cut off at this length. No disk holds more models.
const COMPLETE_MAX: usize = 10_000;

/// Sort key of peers; the lowest comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PeerRank {
    /// Peers that can serve a file immediately come first.
    is_full: bool,
    /// Engines that are loading there read the same disk.
    loading: usize,
    /// Files that the peer is sending.
    serving: u32,
    /// Requests in flight on the peer.
    in_flight: u32,
    node: NodeId,
}

impl Control {
    /// The weights of a launch, as its node needs them. `None` if the pool does not fetch them, or if some files lie outside the
    /// model's folder and must exist on the node.
    pub(super) fn weights_form(&self, node: NodeId, model: ModelId) -> Option<Box<WeightsForm>> {
        let facts = self.models.get(model)?;
        let fetch = facts.entry.fetch.as_ref()?;
        if !fetch.extra_files.is_empty() {
            return None;
        }
        let listing = facts.listing.as_ref();
        let listing = listing.filter(|listing| listing.files.len() <= FILES_MAX)?;
        Some(Box::new(WeightsForm {
            fetch: fetch.clone(),
            peers: self.peers_for(node, listing),
            listing: listing.as_ref().clone(),
        }))
    }

    /// Up to two nodes that have the weights, least busy first, each with a token.
    fn peers_for(&self, node: NodeId, listing: &WeightsListing) -> Vec<PeerForm> {
        let Some(own) = self.nodes.get(node) else {
            return Vec::new();
        };
        let id = listing.id();
        let mut peers: Vec<(PeerRank, &Node)> = self
            .nodes
            .iter()
            .filter(|(other, peer)| *other != node && may_reach(own, peer))
            .filter_map(|(other, peer)| {
                let weights = peer.weights.as_ref().filter(|_| peer.has_joined)?;
                let gives = weights.at_once > 0 && weights.complete.contains(&id);
                gives.then(|| (self.rank_of(other, weights), peer))
            })
            .collect();
        peers.sort_by_key(|(rank, _)| *rank);
        let expires = expiry(self.clock.now(), Bytes(listing.bytes()));
        let peers = peers.into_iter().take(PEERS_MAX);
        peers
            .map(|(_, peer)| PeerForm {
                node: peer.name.clone(),
                address: peer.relay.address,
                fingerprint: peer.relay.fingerprint.map(|print| print.to_string()),
                token: sign_peer_token(
                    &peer.relay.secret,
                    &listing.name,
                    expires.0,
                    rand::random(),
                ),
            })
            .collect()
    }

    fn rank_of(&self, node: NodeId, weights: &WeightsReport) -> PeerRank {
        let replicas = self.engines.on_node(node);
        let is_ready = |replica: &&ReplicaId| {
            let process = self.engines.get(**replica);
            process.is_some_and(|process| process.ready)
        };
        let busy = self.engines.busy();
        let in_flight = busy.iter().filter(|(of, _)| replicas.contains(of));
        PeerRank {
            is_full: weights.serving >= weights.at_once,
            loading: replicas.len() - replicas.iter().filter(is_ready).count(),
            serving: weights.serving,
            in_flight: in_flight.map(|(_, count)| *count).sum(),
            node,
        }
    }

    /// Takes a node's report of its weights. Returns the event for the pool, if the report has changed.
    pub(super) fn node_weights(
        &mut self,
        node: NodeId,
        report: Option<WeightsReport>,
    ) -> Option<Event> {
        let known = self.nodes.get_mut(node)?;
        let report = report.map(|mut report| {
            report.complete.truncate(COMPLETE_MAX);
            report.readable.truncate(COMPLETE_MAX);
            report
        });
        let before = std::mem::replace(&mut known.weights, report);
        let is_same = match (&before, &known.weights) {
            (Some(one), Some(other)) => {
                one.complete == other.complete && one.readable == other.readable
            }
            (one, other) => one.is_none() && other.is_none(),
        };
        if is_same {
            return None;
        }
        let count = known
            .weights
            .as_ref()
            .map_or(0, |weights| weights.complete.len());
        if count > 0 {
            let models = if count == 1 { "model" } else { "models" };
            tracing::info!("node {} has the weights of {count} {models}", known.name);
        }
        self.weights_on(node)
    }

    /// The event for every node, after a change of the catalogue.
    pub(crate) fn weights_on_nodes(&self) -> Vec<Event> {
        let nodes = self.nodes.iter();
        nodes
            .filter_map(|(node, _)| self.weights_on(node))
            .collect()
    }

    /// The models that a node does not have to fetch (N6). `None` if the node does not report its weights.
    fn weights_on(&self, node: NodeId) -> Option<Event> {
        let weights = self.nodes.get(node)?.weights.as_ref()?;
        let has = |listing: &Arc<WeightsListing>| {
            let id = listing.id();
            weights.complete.contains(&id) || weights.readable.contains(&id)
        };
        // Includes models without a listing: the pool does not fetch them for the node, and cannot know whether they are there.
        let facts = self.models.facts().iter();
        let there = facts.filter(|(_, facts)| facts.listing.as_ref().is_none_or(has));
        Some(Event::WeightsOn {
            node,
            models: there.map(|(&model, _)| model).collect(),
        })
    }
}

/// A listener on loopback serves only nodes on the same machine.
fn may_reach(from: &Node, to: &Node) -> bool {
    from.relay.address.ip().is_loopback() || !to.relay.address.ip().is_loopback()
}

fn expiry(now: Time, size: Bytes) -> Time {
    let gib = size.0.div_ceil(Bytes::GIB);
    now + TOKEN_FOR + Span(TOKEN_FOR_GIB.0.saturating_mul(gib))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_busy_peer_is_ranked_first() {
        let rank = |is_full, loading, serving, in_flight, node| PeerRank {
            is_full,
            loading,
            serving,
            in_flight,
            node: NodeId(node),
        };
        let mut ranks = [
            rank(true, 0, 2, 0, 1),
            rank(false, 1, 0, 0, 2),
            rank(false, 0, 1, 0, 3),
            rank(false, 0, 0, 9, 4),
            rank(false, 0, 0, 0, 6),
            rank(false, 0, 0, 0, 5),
        ];
        ranks.sort();
        let order: Vec<u32> = ranks.iter().map(|rank| rank.node.0).collect();
        assert_eq!(order, [5, 6, 4, 3, 2, 1]);
    }

    #[test]
    fn a_peer_token_is_valid_longer_for_larger_weights() {
        let now = Time(1000);
        assert_eq!(expiry(now, Bytes(1)), Time(1000 + 320_000));
        let large = Bytes(140 * Bytes::GIB);
        assert_eq!(expiry(now, large), Time(1000 + 300_000 + 140 * 20_000));
    }
}
