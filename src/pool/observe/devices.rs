//! Records what is reported about devices: readings, connections, failures, and the measured memory of models (M1, M2, M4, M7).
//! Facts only.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::string::ToString;
use alloc::vec::Vec;

use crate::facts::device::Device;
use crate::facts::state::{Departed, Pool};
use crate::types::action::{Action, RecordKind};
use crate::types::event::DeviceReading;
use crate::types::ids::{Bytes, DeviceId, KindId, ModelId, ReplicaId};
use crate::types::link::Link;
use crate::types::model::Cordon;

impl Pool {
    /// The memory that a plan may use once everything that is leaving has left and every promise is kept. Zero on a cordoned device
    /// (M7).
    pub fn free_later(&self, id: DeviceId) -> Bytes {
        self.devices[&id].later(self.returning(id)).0
    }

    /// Returns true if the device is part of the pool: its node has joined and is not gone.
    pub fn has_device(&self, id: DeviceId) -> bool {
        self.devices.contains_key(&id)
    }

    /// The memory still lacking then, because replicas hold more than their shares. It must be freed before anything new fits.
    pub(crate) fn overrun(&self, id: DeviceId) -> Bytes {
        self.devices[&id].later(self.returning(id)).1
    }

    /// The memory that a launch may take after everything that is leaving now has left.
    pub(crate) fn free_soon(&self, id: DeviceId) -> Bytes {
        self.devices[&id].soon(self.returning(id))
    }

    /// `free_later` and `overrun` in one call, for plans, which visit every device.
    pub(crate) fn free_and_overrun(&self, device: &Device) -> (Bytes, Bytes) {
        device.later(self.returning_on(device))
    }

    /// The memory that leaving replicas hold beyond their shares.
    fn returning(&self, id: DeviceId) -> Bytes {
        self.returning_on(&self.devices[&id])
    }

    fn returning_on(&self, device: &Device) -> Bytes {
        let leaves = |replica: &ReplicaId| {
            self.replicas
                .get(replica)
                .is_some_and(|replica| replica.is_leaving())
        };
        let more = device.excess_of.iter();
        more.filter(|(replica, _)| leaves(replica))
            .map(|(_, more)| *more)
            .sum()
    }

    /// The memory that a replica was measured to hold on a device beyond its share.
    pub(crate) fn excess(&self, replica: ReplicaId, device: DeviceId) -> Bytes {
        let of = &self.devices[&device].excess_of;
        of.get(&replica).copied().unwrap_or_default()
    }

    pub(crate) fn device_read(&mut self, id: DeviceId, reading: &DeviceReading) {
        let (now, patience) = (self.now, self.limits.release_wait);
        // A late report from a node that is gone. Nothing may be placed there.
        if self.is_gone(reading.node) {
            return;
        }
        // A reading taken before a process ended or fell asleep still lists it.
        let share_of = |replica: ReplicaId| match self.devices.get(&id) {
            Some(device) => self.reserved_by(replica, id) + device.held_at(replica, reading.taken),
            None => Bytes::ZERO,
        };
        let excess = reading
            .own
            .iter()
            .map(|(replica, held)| (*replica, held.saturating_sub(share_of(*replica))))
            .filter(|(_, more)| *more > Bytes::ZERO)
            .collect();
        let new = !self.devices.contains_key(&id);
        let (drain, away) = if new {
            (self.drain_of(reading.node), self.away(reading.node))
        } else {
            (None, None)
        };
        let device = self.devices.of_reading(id, reading);
        if new {
            (device.drain, device.away) = (drain, away);
            if let Some(departed) = self.departed.remove(&id) {
                (device.cordon, device.links) = (departed.cordon, departed.links);
            }
        }
        let size = (device.total, device.headroom);
        let taken = |device: &Device| device.foreign + device.excess;
        let (before, settling) = (taken(device), device.settling);
        let changed = device.read(reading, excess, now, patience);
        let resized = size != (device.total, device.headroom);
        // Plans already count settling memory as free, but a launch has to wait for it.
        let after = taken(device);
        let grown = after < before || after + device.settling < before + settling;
        device.name.clone_from(&reading.name);
        if device.settling_since().is_some() {
            self.settling.insert(id);
        } else {
            self.settling.remove(&id);
        }
        self.nodes.entry(reading.node).or_default().insert(id);
        if new || resized {
            self.shadows.is_current = false;
            self.touch_everything();
        } else if changed {
            self.promises_changed = true;
            if grown {
                self.grows_on(id);
            }
            self.agenda.replicas.extend(&self.devices[&id].holders);
        }
    }

    /// Cordons a device; if its node has not joined yet, the device is cordoned when it does.
    pub(crate) fn cordon_restored(&mut self, id: DeviceId, cordon: Cordon) {
        let cordon = Some(cordon);
        match self.devices.get_mut(&id) {
            Some(device) => device.cordon = cordon,
            None => {
                let name = id.to_string();
                let links = BTreeMap::new();
                let departed = Departed {
                    name,
                    cordon,
                    links,
                };
                self.departed.insert(id, departed);
            }
        }
        self.promises_changed = true;
    }

    /// The memory was not returned in time, so plans use the last measurement (M4).
    pub(crate) fn give_up_settling(&mut self, id: DeviceId) {
        let (now, patience) = (self.now, self.limits.release_wait);
        let device = self.devices.get_mut(&id).expect("listed");
        device.give_up(now, patience);
        if device.settling_since().is_none() {
            self.settling.remove(&id);
        }
        self.grows_on(id);
    }

    /// Replaces the links of the named devices, which are all on the same node. Links of other nodes stay. If the node counts as
    /// gone until it joins, its devices get their links when it does.
    pub(crate) fn links_read(&mut self, links: Vec<(DeviceId, DeviceId, Link)>) {
        let named = links.iter().flat_map(|(one, other, _)| [*one, *other]);
        for id in named.collect::<BTreeSet<DeviceId>>() {
            self.links_of(id).clear();
        }
        for (one, other, link) in links {
            self.links_of(one).insert(other, link);
            self.links_of(other).insert(one, link);
        }
        self.grows_everywhere();
    }

    fn links_of(&mut self, id: DeviceId) -> &mut BTreeMap<DeviceId, Link> {
        match self.devices.get_mut(&id) {
            Some(device) => &mut device.links,
            None => {
                let absent = || Departed {
                    name: id.to_string(),
                    cordon: None,
                    links: BTreeMap::new(),
                };
                &mut self.departed.entry(id).or_insert_with(absent).links
            }
        }
    }

    pub(crate) fn device_failed(
        &mut self,
        id: DeviceId,
        trouble: String,
        lost: bool,
        actions: &mut Vec<Action>,
    ) {
        let now = self.now;
        let Some(device) = self.devices.get_mut(&id) else {
            return;
        };
        // The first failure is the cause. A later failure is recorded only if it is worse.
        let ends = self.saves.uncordons(id);
        let worse = device
            .cordon
            .as_ref()
            .is_none_or(|cordon| ends || lost && !(cordon.failed && device.lost));
        if !worse {
            return;
        }
        let cordon = Some(Cordon {
            reason: trouble.clone(),
            since: now,
            until: None,
            failed: true,
        });
        device.cordon = cordon;
        if lost {
            device.lost = true;
        }
        let name = device.name.clone();
        let holders = device.holders.clone();
        self.keep_cordon(id, actions);
        self.agenda.replicas.extend(holders);
        self.promises_changed = true;
        let what = if lost {
            "its replicas are stopped"
        } else {
            "its replicas drain"
        };
        let text = format!(
            "{name} fails: {trouble}; {what}, nothing is placed on it until it is uncordoned (M7)"
        );
        let record = self.record(RecordKind::DeviceFailed, None, text);
        actions.push(Action::Record(record));
    }

    pub(crate) fn model_measured(
        &mut self,
        id: ModelId,
        devices: u32,
        kind: KindId,
        bytes_per_device: Bytes,
    ) {
        let Some(model) = self.models.get_mut(&id) else {
            return;
        };
        if model.spec.need_is_fixed {
            return;
        }
        let before = model.learned.insert((devices, kind), bytes_per_device);
        if before != Some(bytes_per_device) {
            self.touch_model(id);
            self.grows_everywhere();
        }
    }
}
