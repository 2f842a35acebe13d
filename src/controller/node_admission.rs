//! Whether a machine that asks to join may take part, and its devices, once it may.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use super::control::Control;
use super::node_messages::{Admitted, Joining, never, not_now};
use super::nodes::{FIRST_NUMBER, NODES_MAX, Node, node_id};
use engine::{RelayAddress, RelaySecret};
use node_link::{Accepted, NodeDevice, Refused, RefusedKind, RelayForm};
use pool::{DemandId, DeviceId, NodeId, Span};

impl Control {
    /// Whether the node may take part. Its devices are known from here on; the pool hears of them when it has listed
    /// its engines.
    pub(super) fn admit(&mut self, joining: Joining) -> Result<Admitted, Refused> {
        let id = node_id(joining.numbers.node);
        let now = self.clock.now();
        if self.nodes.fenced.contains(&joining.epoch) {
            return Err(Refused {
                message: format!(
                    "node {} was given up after it had been silent for too long, and its work went to others; its engines end, and it may be started again",
                    joining.name
                ),
                kind: RefusedKind::Fenced,
            });
        }
        if let Some(known) = self.nodes.known.get(&id)
            && known.epoch != joining.epoch
        {
            if known.place == joining.place {
                // Its data folder has one process at a time, and engines end with their node.
                self.node_gone(id, "was started anew");
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
        if !self.nodes.known.contains_key(&id) && self.nodes.known.len() >= NODES_MAX as usize {
            return Err(not_now(format!("there are {NODES_MAX} nodes already")));
        }
        let relay = relay_of(&joining.name, joining.relay)?;
        let numbers = joining.numbers.devices.iter();
        let devices: BTreeMap<String, DeviceId> = joining
            .devices
            .iter()
            .map(|it| it.name.clone())
            .zip(numbers.map(|it| DeviceId(FIRST_NUMBER.saturating_add(*it))))
            .collect();
        self.nodes.generation += 1;
        let generation = self.nodes.generation;
        let before = self.nodes.known.remove(&id);
        if let Some(link) = before.as_ref().and_then(|it| it.link.as_ref()) {
            link.closed.cancel();
        }
        let taken = before.as_ref().map_or(0, |it| it.taken);
        joining.link.taken.store(taken, Ordering::Release);
        for (&replica, process) in &self.engines.processes {
            if process.node == id {
                joining.link.logs.know(replica, &process.log);
            }
        }
        let is_new = before.is_none();
        self.nodes.expected.remove(&id);
        self.nodes.known.insert(
            id,
            Node {
                name: joining.name.clone(),
                epoch: joining.epoch,
                place: joining.place,
                version: joining.version,
                peer: joining.peer,
                relay,
                provider: joining.provider,
                devices,
                demand: joining.demand.map(DemandId),
                generation,
                link: Some(joining.link),
                has_joined: false,
                counts_as_joined: before.as_ref().is_some_and(|it| it.counts_as_joined),
                joined_at: before.as_ref().map_or(now, |it| it.joined_at),
                silent_since: before
                    .as_ref()
                    .map_or(Some(now), |it| it.silent_since.or(Some(now))),
                taken,
                is_leaving: before.as_ref().is_some_and(|it| it.is_leaving),
                drains: before.as_ref().is_some_and(|it| it.drains),
                // Its next reading says it.
                weights: None,
            },
        );
        self.take_devices(id, &joining.name, &joining.devices);
        if is_new {
            tracing::info!("node {} joins from {}", joining.name, joining.peer);
        }
        let milliseconds = |span: Span| span.0;
        Ok(Admitted {
            node: id,
            generation,
            accepted: Accepted {
                controller: self.nodes.epoch,
                received: taken,
                credential: None,
                silent_after_ms: milliseconds(self.config.node.silent_after.0),
                orphan_after_ms: milliseconds(self.config.node.orphan_after.0),
                drain_ms: milliseconds(self.config.unload_drain()),
                // The connection says it, as it does the credential.
                generation: None,
            },
        })
    }

    fn take_devices(&mut self, node: NodeId, name: &str, devices: &[NodeDevice]) {
        let ids = self.nodes.known[&node].devices.clone();
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
        self.nodes.has_new_devices = true;
        let names = new.iter().map(|info| (info.id, info.name.clone()));
        let _ = self
            .jobs
            .send(super::keeper::Job::DeviceNames(names.collect()));
    }
}

fn relay_of(node: &str, form: RelayForm) -> Result<RelayAddress, Refused> {
    let fingerprint = form.fingerprint.map(|it| it.parse()).transpose();
    let fingerprint = fingerprint.map_err(|error| never(format!("its listener: {error}")))?;
    Ok(RelayAddress {
        node: node.to_owned(),
        address: form.address,
        secret: RelaySecret(form.secret),
        fingerprint,
    })
}
