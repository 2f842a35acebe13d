//! Turns device readings into events for the pool, and into the state that readers see for a device that cannot be read.

use std::collections::{BTreeMap, BTreeSet};

use crate::control::Control;
use crate::messages::Readings;
use config::Provider;
use inventory::{DeviceEvent, DeviceKind, DeviceTrouble, ErrorScope, MachineMemory};
use pool::{Bytes, DeviceId, Event, HostReading, NodeId, ReplicaId};

impl Control {
    pub(crate) fn readings(&mut self, readings: Readings) {
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
        // For host memory and fixed devices, the pool counts memory itself: it is free as soon as a process ends.
        let provider = node.map_or(Some(self.devices.provider()), |node| {
            self.nodes.provider(node)
        });
        let is_measured = provider.is_some_and(Provider::measures_devices);
        let there = self.devices_on(node);
        let mut events = Vec::new();
        let mut read_before = BTreeSet::new();
        for used in read {
            let device = used.id;
            let mut own: BTreeMap<ReplicaId, Bytes> =
                by_node.get(&device).cloned().unwrap_or_default();
            for (pid, bytes) in &used.processes {
                if let Some(&replica) = owners.get(pid) {
                    let held = own.entry(replica).or_default();
                    *held = *held + *bytes;
                }
            }
            if let Some(reading) = self.devices.read(used, own, (began, is_measured)) {
                read_before.insert(device);
                events.push(Event::DeviceRead { device, reading });
            }
        }
        for &device in there.difference(&read_before) {
            let why = faults.get(&device).or(fault.as_ref()).cloned();
            let why = why.unwrap_or_else(|| "the driver leaves it out".to_owned());
            self.devices.not_read(device, why, began);
        }
        events.extend(
            machine
                .into_iter()
                .flat_map(|machine| self.hosts(machine, node, &there)),
        );
        self.turn_all(events);
        self.account_for_readings(&read_before, is_measured);
        for (replica, model) in self.engines.take_peaks(&self.devices, &read_before) {
            self.measure(replica, model);
        }
        for event in lost {
            self.device_trouble(event);
        }
    }

    /// The devices of a node, or of this machine for `None`.
    pub(crate) fn devices_on(&self, node: Option<NodeId>) -> BTreeSet<DeviceId> {
        let Some(node) = node else {
            let known = self.devices.iter();
            let here = known.filter(|device| !self.nodes.is_remote(device.info.node));
            return here.map(|device| device.info.id).collect();
        };
        self.nodes.devices(node)
    }

    /// Host memory available for parked weights, per node of these devices. A device that is host memory itself has no other place
    /// to park weights: only engines that need no memory outside their device can sleep there.
    fn hosts(
        &self,
        machine: MachineMemory,
        node: Option<NodeId>,
        devices: &BTreeSet<DeviceId>,
    ) -> Vec<Event> {
        let all = || {
            let known = devices.iter();
            known.filter_map(move |&id| self.devices.get(id))
        };
        let mut kinds = all().map(|device| device.info.kind);
        let provider = node.map_or(Some(self.devices.provider()), |node| {
            self.nodes.provider(node)
        });
        let has_room = provider == Some(Provider::Fixed) || kinds.any(DeviceKind::is_gpu);
        let has_sleepers = || {
            self.models
                .facts()
                .values()
                .any(|facts| facts.entry.parking.is_some())
        };
        if !has_room && !has_sleepers() {
            return Vec::new();
        }
        let nodes: BTreeSet<NodeId> = all().map(|device| device.info.node).collect();
        let parking = &self.config.parking;
        let MachineMemory { total, available } = machine;
        let reading = parking.host_reading(total, available, nodes.len(), has_room);
        let on_node = |node: NodeId| {
            let mapped = self.engines.mapped_parts(&self.models, node);
            let available = reading.available.saturating_sub(mapped);
            HostReading {
                available,
                ..reading
            }
        };
        nodes
            .iter()
            .map(|&node| Event::HostRead {
                node,
                reading: on_node(node),
            })
            .collect()
    }

    /// Handles a problem that a GPU reports. Some concern one process, others the entire device (M7).
    pub(crate) fn device_trouble(&mut self, event: DeviceEvent) {
        let DeviceEvent { device, what } = event;
        let name = self.devices.name(device);
        match what.reach() {
            ErrorScope::Process => {
                tracing::info!(device = name, trouble = %what, "an engine's error")
            }
            ErrorScope::Watch => {
                tracing::warn!(device = name, trouble = %what, "a GPU to be watched")
            }
            ErrorScope::Device => {
                // A memory error, like most others, ends only the affected process; the others may finish.
                let lost = matches!(what, DeviceTrouble::Lost | DeviceTrouble::Xid { code: 79 });
                self.turn(Event::DeviceFailed {
                    device,
                    trouble: what.to_string(),
                    lost,
                });
            }
        }
    }
}
