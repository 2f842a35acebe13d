//! Computes what devices have free, now and once everything that is leaving has left, and what each replica holds there. Read-only.

use crate::facts::device::Device;
use crate::facts::state::Pool;
use crate::types::ids::{Bytes, DeviceId, ReplicaId};
use crate::types::share::Share;

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

    /// The bytes that a replica has reserved on a device.
    pub(crate) fn reserved_by(&self, id: ReplicaId, device: DeviceId) -> Bytes {
        let shares = self.replicas.get(&id).map(|replica| &replica.shares);
        let on = |share: &&Share| share.device == device;
        let bytes = shares.into_iter().flatten().filter(on);
        bytes.map(|share| share.bytes).sum()
    }

    /// The bytes that a replica and a promised load of the same id hold on a device. A sleeper that is to be woken is both.
    pub(crate) fn held(&self, id: ReplicaId, device: DeviceId) -> Bytes {
        self.reserved_or_promised(id, device) + self.excess(id, device)
    }

    fn reserved_or_promised(&self, id: ReplicaId, device: DeviceId) -> Bytes {
        let now = self.replicas.get(&id).map(|replica| &replica.shares);
        let promised = self.planned.get(&id).map(|load| &load.shares);
        now.into_iter()
            .chain(promised)
            .flatten()
            .filter(|share| share.device == device)
            .map(|share| share.bytes)
            .sum()
    }

    /// The bytes that replicas reserve on a device, including replicas that are leaving.
    pub fn reserved(&self, device: DeviceId) -> Bytes {
        self.devices
            .get(&device)
            .map_or(Bytes::ZERO, |device| device.reserved)
    }
}
