//! Records what is reported about devices: readings, connections, failures, and the measured memory of models (M1, M2, M4, M7).
//! Facts only.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::commit::actions::Actions;
use crate::facts::device::Device;
use crate::facts::state::Pool;
use crate::types::action::RecordKind;
use crate::types::event::DeviceReading;
use crate::types::ids::{Bytes, DeviceId, KindId, ModelId, ReplicaId};
use crate::types::link::Link;
use crate::types::model::Cordon;

impl Pool {
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
        self.nodes.add_device(reading.node, id);
        if new || resized {
            self.shadows.is_current = false;
            self.touch_everything();
        } else if changed {
            self.agenda.promises_change();
            if grown {
                self.grows_on(id);
            }
            self.agenda.touch_replicas(&self.devices[&id].holders);
        }
    }

    /// Cordons a device; if its node has not joined yet, the device is cordoned when it does.
    pub(crate) fn cordon_restored(&mut self, id: DeviceId, cordon: Cordon) {
        self.devices.restore_cordon(id, cordon);
        self.agenda.promises_change();
    }

    /// Replaces the links of the named devices, which are all on the same node. Links of other nodes stay. If the node counts as
    /// gone until it joins, its devices get their links when it does.
    pub(crate) fn links_read(&mut self, links: Vec<(DeviceId, DeviceId, Link)>) {
        let named = links.iter().flat_map(|(one, other, _)| [*one, *other]);
        for id in named.collect::<BTreeSet<DeviceId>>() {
            self.devices.links_of(id).clear();
        }
        for (one, other, link) in links {
            self.devices.links_of(one).insert(other, link);
            self.devices.links_of(other).insert(one, link);
        }
        self.grows_everywhere();
    }

    pub(crate) fn device_failed(
        &mut self,
        id: DeviceId,
        trouble: String,
        lost: bool,
        actions: &mut Actions,
    ) {
        let now = self.now;
        let Some(device) = self.devices.get_mut(&id) else {
            return;
        };
        // The first failure is the cause. A later failure is recorded only if it is worse.
        let ends = self.orders.uncordons(id);
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
        self.agenda.touch_replicas(&holders);
        self.agenda.promises_change();
        let what = if lost {
            "its replicas are stopped"
        } else {
            "its replicas drain"
        };
        let text = format!(
            "{name} fails: {trouble}; {what}, nothing is placed on it until it is uncordoned (M7)"
        );
        let record = self.record(RecordKind::DeviceFailed, None, text);
        actions.record(record);
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
