//! Decides whether a machine may join as a node, and registers the devices of an accepted node.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering;

use crate::control::nodes::node_id;
use crate::control::{Control, FIRST_NUMBER, NODES_MAX, Node};
use crate::journal::Job;
use crate::messages::node_messages::{never, not_now};
use crate::messages::{AdmittedNode, JoiningNode, NodePeer};
use config::Network;
use engine::{RelayAddress, RelaySecret};
use node_link::{NodeAcceptance, NodeDevice, NodeRefusal, NodeRefusalKind, RelayForm};
use pool::{DemandId, DeviceId, NodeId, Span};

/// Enough for 256 machines of eight GPUs behind one address.
pub const DEVICES_PER_ADDRESS_MAX: usize = 2_048;

impl Control {
    /// Accepts or refuses a node. Registers its devices; the pool hears of them after the node has listed its engines.
    pub(crate) fn admit(&mut self, joining: JoiningNode) -> Result<AdmittedNode, NodeRefusal> {
        let id = node_id(joining.numbers.node);
        let now = self.clock.now();
        if self.nodes.is_fenced(joining.epoch) {
            return Err(NodeRefusal {
                message: format!(
                    "node {} was given up after it had been silent for too long, and its work went to others; its engines end, and it may be started again",
                    joining.name
                ),
                kind: NodeRefusalKind::Fenced,
            });
        }
        if let Some(known) = self.nodes.get(id)
            && known.epoch != joining.epoch
        {
            if known.place == joining.place {
                // The node's data folder admits one process at a time, and a process that adopts engines keeps the epoch.
                self.node_gone(id, "was restarted");
            } else if known.silent_since.is_none() {
                return Err(never(format!(
                    "a node called {} has joined from {} already: start this one with another --name, or end that one",
                    joining.name, known.peer
                )));
            } else {
                let left = known.silent_since.unwrap_or(now) + self.gone_after();
                return Err(not_now(format!(
                    "a node called {} from {} has fallen silent and may still have its engines; it counts as gone in {}: start this one with another --name, or later",
                    joining.name,
                    known.peer,
                    left.since(now)
                )));
            }
        }
        if !self.nodes.is_remote(id) && self.nodes.is_full() {
            return Err(not_now(format!("there are {NODES_MAX} nodes already")));
        }
        let others = self.nodes.iter().filter(|(known, _)| *known != id);
        let counted = others.map(|(_, node)| (node.peer.ip(), node.devices.len()));
        check_device_count(counted, joining.peer.address.ip(), joining.devices.len())?;
        if let Some(own) = self.devices.own_machine()
            && own.eq_ignore_ascii_case(&joining.name)
        {
            return Err(never(format!(
                "{own} is the controller's own machine: start this node with another --name"
            )));
        }
        if let Some(known) = self.nodes.get(id) {
            check_same_devices(known, &joining)?;
        }
        let relay = relay_of(
            &joining.name,
            joining.relay,
            joining.peer,
            &self.config.node.listen_networks,
        )?;
        let numbers = joining.numbers.devices.iter();
        let devices: BTreeMap<String, DeviceId> = joining
            .devices
            .iter()
            .map(|device| device.name.clone())
            .zip(numbers.map(|number| DeviceId(FIRST_NUMBER.saturating_add(*number))))
            .collect();
        let generation = self.nodes.next_generation();
        let before = self.nodes.remove(id);
        if let Some(link) = before.as_ref().and_then(|node| node.link.as_ref()) {
            link.closed.cancel();
        }
        let taken = before.as_ref().map_or(0, |node| node.taken);
        joining.link.taken.store(taken, Ordering::Release);
        let is_replaced = before
            .as_ref()
            .is_some_and(|node| node.process != joining.process);
        for (replica, process) in self.engines.iter() {
            // Only the leader's output reaches the controller.
            if process.node == id {
                joining.link.logs.know(replica, &process.log);
                if is_replaced && let Some(gate) = self.engines.gate(replica) {
                    gate.retire_connections();
                }
            }
        }
        let is_new = before.is_none();
        self.nodes.add(
            id,
            Node {
                name: joining.name.clone(),
                epoch: joining.epoch,
                place: joining.place,
                version: joining.version,
                peer: joining.peer.address,
                relay,
                provider: joining.provider,
                devices,
                demand: joining.demand.map(DemandId),
                generation,
                link: Some(joining.link),
                has_joined: false,
                counts_as_joined: before.as_ref().is_some_and(|node| node.counts_as_joined),
                joined_at: before.as_ref().map_or(now, |node| node.joined_at),
                silent_since: before
                    .as_ref()
                    .map_or(Some(now), |node| node.silent_since.or(Some(now))),
                taken,
                is_leaving: before.as_ref().is_some_and(|node| node.is_leaving),
                drains: before.as_ref().is_some_and(|node| node.drains),
                // Set by its next reading.
                weights: None,
                runs_members: joining.runs_members,
                process: joining.process,
            },
        );
        self.take_devices(id, &joining.name, &joining.devices);
        if is_new {
            tracing::info!("node {} joins from {}", joining.name, joining.peer.address);
        }
        let milliseconds = |span: Span| span.0;
        Ok(AdmittedNode {
            node: id,
            generation,
            accepted: NodeAcceptance {
                controller: self.nodes.epoch(),
                received: taken,
                credential: None,
                silent_after_ms: milliseconds(self.config.node.silent_after.0),
                orphan_after_ms: milliseconds(self.config.node.orphan_after.0),
                drain_ms: milliseconds(self.config.unload_drain()),
                // The connection adds it, like the credential.
                generation: None,
            },
        })
    }

    fn take_devices(&mut self, node: NodeId, name: &str, devices: &[NodeDevice]) {
        let known = self.nodes.get(node);
        let ids = known.map_or_else(BTreeMap::new, |node| node.devices.clone());
        let infos: Vec<_> = devices
            .iter()
            .filter_map(|device| {
                let id_of = |name: &str| ids.get(name).copied();
                Some(device.info(id_of(&device.name)?, (node, name), id_of))
            })
            .collect();
        let new = self.devices.add(infos);
        if new.is_empty() {
            return;
        }
        self.nodes.note_new_devices();
        let names = new.iter().map(|info| (info.id, info.name.clone()));
        self.journal.write(Job::DeviceNames(names.collect()));
    }
}

/// Refuses a node if the nodes at its address would have too many devices together, which one holder of a token could fill alone.
fn check_device_count(
    nodes: impl Iterator<Item = (IpAddr, usize)>,
    address: IpAddr,
    more: usize,
) -> Result<(), NodeRefusal> {
    let address = address.to_canonical();
    let is_there = |(at, _): &(IpAddr, usize)| at.to_canonical() == address;
    let count: usize = nodes.filter(is_there).map(|(_, devices)| devices).sum();
    if count + more <= DEVICES_PER_ADDRESS_MAX {
        return Ok(());
    }
    Err(not_now(format!(
        "the nodes at {address} have {count} devices already, and at most {DEVICES_PER_ADDRESS_MAX} may come from one address: end some of them, or start this one elsewhere"
    )))
}

/// Refuses a node process that returns with other devices: they cannot change while it runs.
fn check_same_devices(known: &Node, joining: &JoiningNode) -> Result<(), NodeRefusal> {
    let is_known = |device: &NodeDevice| known.devices.contains_key(&device.name);
    let is_same =
        known.devices.len() == joining.devices.len() && joining.devices.iter().all(is_known);
    if is_same {
        return Ok(());
    }
    Err(never(format!(
        "node {} reconnects with {} devices, which are not the {} it joined with: restart the node",
        joining.name,
        joining.devices.len(),
        known.devices.len()
    )))
}

/// The address under which the controller connects to the node's listener. Only addresses of the node itself, or those the
/// configuration allows, are accepted (B3).
fn relay_of(
    node: &str,
    form: RelayForm,
    peer: NodePeer,
    networks: &[Network],
) -> Result<RelayAddress, NodeRefusal> {
    let (ip, from) = (
        form.address.ip().to_canonical(),
        peer.address.ip().to_canonical(),
    );
    let is_own = !peer.is_hidden && ip == from;
    let is_here = !peer.is_hidden && ip.is_loopback() && from.is_loopback();
    let is_allowed = networks.iter().any(|network| network.contains(ip));
    if form.address.port() == 0 || !(is_own || is_here || is_allowed) {
        return Err(never(format!(
            "its listener is at {}, and it connects from {from}{}: start it with --listen at that address, or allow the listener's network on the controller in node.listen_networks",
            form.address,
            if peer.is_hidden {
                ", behind a proxy that does not name it"
            } else {
                ""
            }
        )));
    }
    let fingerprint = form
        .fingerprint
        .map(|fingerprint| fingerprint.parse())
        .transpose();
    let fingerprint = fingerprint.map_err(|error| never(format!("its listener: {error}")))?;
    Ok(RelayAddress {
        node: node.to_owned(),
        address: form.address,
        secret: RelaySecret::parse(&form.secret).map_err(never)?,
        fingerprint,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relay(listener: &str, from: &str, is_hidden: bool, networks: &[&str]) -> bool {
        let form = RelayForm {
            address: listener.parse().expect("an address"),
            secret: "s".repeat(64),
            fingerprint: None,
        };
        let peer = NodePeer {
            address: from.parse().expect("an address"),
            is_hidden,
        };
        let networks: Vec<Network> = networks
            .iter()
            .map(|network| network.parse().expect("a network"))
            .collect();
        relay_of("gpu-2", form, peer, &networks).is_ok()
    }

    #[test]
    fn b3_the_controller_connects_only_to_the_address_of_the_node() {
        for (listener, from, is_hidden, networks, is_accepted) in [
            ("10.0.0.2:7000", "10.0.0.2:51000", false, &[][..], true),
            ("[::ffff:10.0.0.2]:7000", "10.0.0.2:51000", false, &[], true),
            ("10.0.0.2:7000", "[::ffff:10.0.0.2]:51000", false, &[], true),
            ("[fd00::2]:7000", "[fd00::2]:51000", false, &[], true),
            ("127.0.0.1:7000", "127.0.0.1:51000", false, &[], true),
            ("127.0.0.1:7000", "[::1]:51000", false, &[], true),
            ("10.0.0.2:0", "10.0.0.2:51000", false, &[], false),
            ("10.0.0.3:7000", "10.0.0.2:51000", false, &[], false),
            ("127.0.0.1:6379", "10.0.0.2:51000", false, &[], false),
            ("[::1]:6379", "10.0.0.2:51000", false, &[], false),
            (
                "[::ffff:127.0.0.1]:6379",
                "10.0.0.2:51000",
                false,
                &[],
                false,
            ),
            ("169.254.169.254:80", "10.0.0.2:51000", false, &[], false),
            ("0.0.0.0:80", "10.0.0.2:51000", false, &[], false),
            // A proxy on this machine that does not pass the node's address on.
            ("127.0.0.1:6379", "127.0.0.1:51000", true, &[], false),
            ("10.0.0.7:80", "10.0.0.7:51000", true, &[], false),
            (
                "10.0.0.3:7000",
                "10.0.0.2:51000",
                false,
                &["10.0.0.0/24"],
                true,
            ),
            (
                "10.0.0.3:7000",
                "127.0.0.1:51000",
                true,
                &["10.0.0.0/24"],
                true,
            ),
            (
                "10.0.1.3:7000",
                "10.0.0.2:51000",
                false,
                &["10.0.0.0/24"],
                false,
            ),
        ] {
            let accepted = relay(listener, from, is_hidden, networks);
            assert_eq!(
                accepted, is_accepted,
                "{listener} {from} {is_hidden} {networks:?}"
            );
        }
    }

    #[test]
    fn b3_one_address_cannot_fill_the_pool_with_devices() {
        let (here, there) = (IpAddr::from([10, 0, 0, 2]), IpAddr::from([10, 0, 0, 3]));
        let full: Vec<(IpAddr, usize)> = vec![(here, 256); 8];
        let check = |address, more| check_device_count(full.iter().copied(), address, more);
        let refused = check(here, 1).expect_err("full");
        assert!(
            refused.message.contains("2048 devices already"),
            "{}",
            refused.message
        );
        assert!(matches!(refused.kind, NodeRefusalKind::NotNow));
        let mapped = IpAddr::from([0, 0, 0, 0, 0, 0xffff, 0x0a00, 2]);
        check(mapped, 1).expect_err("the same address");
        check(there, 256).expect("another address has room");
        check(here, 0).expect("a node without devices");
    }
}
