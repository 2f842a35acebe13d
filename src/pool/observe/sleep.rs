//! Records that engines fall asleep, fail to, or wake, and the readings of the hosts' memory that they use (L1).

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

use crate::commit::actions::Actions;
use crate::facts::state::Pool;
use crate::types::action::RecordKind;
use crate::types::event::HostReading;
use crate::types::ids::{Bytes, DeviceId, NodeId, ReplicaId};
use crate::types::replica::{Parked, Phase};

impl Pool {
    pub(crate) fn host_read(&mut self, node: NodeId, reading: &HostReading) {
        // Visits only replicas on this node, because each of a thousand nodes reports every second.
        let devices = self.nodes.devices_of(node);
        let devices = devices.filter_map(|id| self.devices.get(id));
        let holders: BTreeSet<ReplicaId> = devices
            .flat_map(|device| &device.holders)
            .copied()
            .collect();
        let falling: Bytes = holders
            .iter()
            .filter_map(|id| self.replicas.get(id))
            .filter(|replica| matches!(replica.phase, Phase::Parking { .. }))
            .filter_map(|replica| replica.parked.as_ref().map(|parked| parked.host))
            .sum();
        let now = self.now;
        let is_divided = self.models.any_divided();
        let before = is_divided.then(|| self.host_room(node));
        self.nodes.host_of_reading(node).read(reading, falling, now);
        let Some(before) = before else {
            return;
        };
        self.agenda.promises_change();
        if self.host_room(node).may_hold_more(&before) {
            let devices: Vec<DeviceId> = self.nodes.devices_of(node).copied().collect();
            devices.into_iter().for_each(|device| self.grows_on(device));
        }
    }

    /// Counts the host memory of a replica that has ended as available. Its node's last reading shows less than is available now. The
    /// replica is still recorded, because its memory would count as that of other programs otherwise.
    pub(crate) fn host_returns(&mut self, id: ReplicaId) {
        let Some(replica) = self.replicas.get(&id) else {
            return;
        };
        let has_part = self.models[&replica.model].spec.host_bytes > Bytes::ZERO;
        if !has_part || replica.parked.is_some() || replica.shares.is_empty() {
            return;
        }
        let (node, launched) = (self.node_of(replica), replica.launched);
        let bytes = self.host_held(id);
        if let Some(host) = self.nodes.host_mut(node)
            && host.shows(launched)
        {
            host.available = host.available + bytes;
        }
    }

    pub(crate) fn replica_asleep(&mut self, id: ReplicaId, actions: &mut Actions) {
        let now = self.now;
        let Some(replica) = self.replicas.get_mut(&id) else {
            return;
        };
        let Phase::Parking { since, reason, .. } = replica.phase.clone() else {
            return;
        };
        let phase = core::mem::replace(
            &mut replica.phase,
            Phase::Asleep {
                since: now,
                reason: reason.clone(),
            },
        );
        let model = replica.model;
        let keeps = replica.parked.as_ref().map(|parked| parked.keeps.clone());
        let before = core::mem::replace(&mut replica.shares, keeps.unwrap_or_default());
        for (share, kept) in before.iter().zip(&replica.shares) {
            let device = self.devices.get_mut(&share.device).expect("held");
            device.shrink(id, share.bytes, kept.bytes, now);
        }
        let shares = replica.shares.clone();
        self.replicas.falls_asleep(id);
        self.touch_model(model);
        self.grows_at(id);
        let mut record = self.record(
            RecordKind::Sleep,
            Some(model),
            format!("asleep in the host's memory: {reason}"),
        );
        record.replica = Some(id);
        record.placement = shares;
        record.took = Some(now.since(since));
        actions.record(record);
        self.forget_wish_if_gone(model, &phase, actions);
    }

    /// The replica could not be put to sleep, so it is stopped instead.
    pub(crate) fn sleep_failed(&mut self, id: ReplicaId, message: &str, actions: &mut Actions) {
        let now = self.now;
        let Some(replica) = self.replicas.get_mut(&id) else {
            return;
        };
        let Phase::Parking {
            since, deadline, ..
        } = &mut replica.phase
        else {
            return;
        };
        let took = now.since(*since);
        *deadline = now;
        let model = replica.model;
        self.touch(id);
        let text = format!("could not be put to sleep and is ended instead: {message}");
        let mut record = self.record(RecordKind::Sleep, Some(model), text);
        record.replica = Some(id);
        record.took = Some(took);
        actions.record(record);
    }

    /// The engine could not be woken; `plan` ends it.
    pub(crate) fn wake_failed(&mut self, id: ReplicaId, message: String) {
        let Some(replica) = self.replicas.get_mut(&id) else {
            return;
        };
        if let (Phase::Launching { .. }, Some(parked)) = (&replica.phase, &mut replica.parked) {
            parked.wake_failure = Some(message);
            self.touch(id);
        }
    }

    /// Returns host memory after the weights are back on the devices or the process is gone.
    pub(crate) fn leaves_host(&mut self, node: NodeId, parked: &Parked, was_returning: bool) {
        if let Some(host) = self.nodes.host_mut(node) {
            host.take_back(parked.host, was_returning);
        }
        if self.models.any_divided() {
            let devices: Vec<DeviceId> = self.nodes.devices_of(node).copied().collect();
            devices.into_iter().for_each(|device| self.grows_on(device));
        }
    }
}
