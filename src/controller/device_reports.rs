//! Turns readings of the devices into events for the pool, and into what readers see of a device that cannot be read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::control::Control;
use super::message::Readings;
use super::snapshot::Stale;
use config::Provider;
use inventory::{DeviceEvent, DeviceKind, DeviceTrouble, Link, MachineMemory, Reach};
use pool::{Bytes, DeviceReading, Event, HostReading, NodeId, ReplicaId};

impl Control {
    pub(super) fn readings(&mut self, readings: Readings) {
        let Readings {
            began,
            devices: read,
            faults,
            fault,
            lost,
            owners,
            own: by_node,
            machine,
            node,
        } = readings;
        // On the host and on fixed devices memory is the pool's own count, and free when a process ends.
        let provider = node.map_or(Some(self.devices.provider), |node| {
            self.nodes.provider(node)
        });
        let is_measured = provider == Some(Provider::Nvml);
        let mut devices = self.devices.known.as_ref().clone();
        let mut events = Vec::new();
        let mut read_before = BTreeSet::new();
        for used in read {
            let Some(device) = devices.get_mut(&used.id) else {
                continue;
            };
            read_before.insert(used.id);
            let mut own: BTreeMap<ReplicaId, Bytes> =
                by_node.get(&used.id).cloned().unwrap_or_default();
            for (pid, bytes) in &used.processes {
                if let Some(&replica) = owners.get(pid) {
                    let held = own.entry(replica).or_default();
                    *held = *held + *bytes;
                }
            }
            let reading = DeviceReading {
                taken: is_measured.then_some(began),
                total: used.total,
                foreign: used.foreign,
                own: own
                    .iter()
                    .map(|(&replica, &bytes)| (replica, bytes))
                    .collect(),
                ..self.devices.reading_of(&device.info)
            };
            events.push(Event::DeviceRead {
                device: used.id,
                reading,
            });
            if device.stale.take().is_some() {
                tracing::info!(device = device.info.name, "the device can be read again");
            }
            device.own = own;
            device.used = Some(used);
            device.read_at = Some(began);
        }
        for (_, device) in devices
            .iter_mut()
            .filter(|(id, _)| !read_before.contains(id))
            .filter(|(_, it)| match node {
                Some(node) => it.info.node == node,
                None => !self.nodes.is_remote(it.info.node),
            })
        {
            let why = faults
                .get(&device.info.id)
                .or(fault.as_ref())
                .cloned()
                .unwrap_or_else(|| "the driver leaves it out".to_owned());
            match &mut device.stale {
                Some(stale) => stale.why = why,
                None => {
                    tracing::warn!(
                        device = device.info.name,
                        why,
                        "the device cannot be read; its last known figures stand"
                    );
                    let since = device.read_at.unwrap_or(began);
                    device.stale = Some(Stale { since, why });
                }
            }
        }
        events.extend(
            machine
                .into_iter()
                .flat_map(|machine| self.hosts(machine, node)),
        );
        self.devices.known = Arc::new(devices);
        self.turn_all(events);
        self.take_peaks();
        for event in lost {
            self.device_trouble(event);
        }
    }

    /// What may sleep on each node. A device that is the machine's memory itself has nowhere else to
    /// put its models: only engines that need no memory outside of their device sleep there.
    fn hosts(&self, machine: MachineMemory, node: Option<NodeId>) -> Vec<Event> {
        let all = || {
            let all = self.devices.known.values();
            all.filter(move |it| match node {
                Some(node) => it.info.node == node,
                None => !self.nodes.is_remote(it.info.node),
            })
        };
        let mut kinds = all().map(|device| device.info.kind);
        let provider = node.map_or(Some(self.devices.provider), |node| {
            self.nodes.provider(node)
        });
        let has_room =
            provider == Some(Provider::Fixed) || kinds.any(|kind| kind == DeviceKind::Nvidia);
        let has_sleepers = || {
            self.models
                .facts
                .values()
                .any(|it| it.entry.parking.is_some())
        };
        if !has_room && !has_sleepers() {
            return Vec::new();
        }
        let nodes: BTreeSet<NodeId> = all().map(|device| device.info.node).collect();
        let parking = &self.config.parking;
        let each = |bytes: Bytes| Bytes(bytes.0 / (nodes.len().max(1) as u64));
        let reading = HostReading {
            capacity: match has_room {
                true => each(parking.host_memory.of(machine.total)),
                false => Bytes::ZERO,
            },
            reserve: each(parking.reserve.of(machine.total)),
            available: each(machine.available),
        };
        nodes
            .iter()
            .map(|&node| Event::HostRead { node, reading })
            .collect()
    }

    /// What a GPU reports of itself: some of it concerns one process, some the whole device (M7).
    pub(super) fn device_trouble(&mut self, event: DeviceEvent) {
        let DeviceEvent { device, what } = event;
        let name = self
            .devices
            .known
            .get(&device)
            .map_or_else(|| device.to_string(), |it| it.info.name.clone());
        match what.reach() {
            Reach::Process => tracing::info!(device = name, trouble = %what, "an engine's error"),
            Reach::Watch => tracing::warn!(device = name, trouble = %what, "a GPU to be watched"),
            Reach::Device => {
                // A memory error and most others end the process they struck; others may finish.
                let lost = matches!(what, DeviceTrouble::Lost | DeviceTrouble::Xid { code: 79 });
                self.turn(Event::DeviceFailed {
                    device,
                    trouble: what.to_string(),
                    lost,
                });
            }
        }
    }

    /// How devices reach each other (M5).
    pub(super) fn links(&self) -> Event {
        let mut links = Vec::new();
        for device in self.devices.known.values() {
            for &(other, link) in &device.info.links {
                let link = match link {
                    Link::NvLink => pool::Link::NvLink,
                    Link::SameRoot => pool::Link::SameRoot,
                    Link::Node => pool::Link::Node,
                };
                links.push((device.info.id, other, link));
            }
        }
        Event::LinksRead { links }
    }
}
