//! The memory ledger of one device. It counts what replicas reserve and what loads have been
//! promised, and cannot be brought to give more than there is (M2, M3). It decides nothing.

use std::collections::BTreeSet;

use super::event::DeviceReading;
use super::ids::{Bytes, NodeId, ReplicaId};

/// One GPU, or the host's memory.
///
/// ```text
/// total = headroom + foreign + reserved + free now
/// free later = free now + what is leaving − what is promised
/// ```
#[derive(Clone, Debug)]
pub struct Device {
    pub(super) name: String,
    pub(super) node: NodeId,
    pub(super) total: Bytes,
    pub(super) headroom: Bytes,
    pub(super) foreign: Bytes,
    /// Sum over every replica that holds a part of it, leaving ones included.
    pub(super) reserved: Bytes,
    /// The part of `reserved` that drains or stops.
    pub(super) leaving: Bytes,
    /// Loads that have been decided and wait for their room.
    pub(super) promised: Bytes,
    /// Replicas with a share of it, and planned loads.
    pub(super) holders: BTreeSet<ReplicaId>,
}

impl Device {
    pub(super) fn new(reading: &DeviceReading) -> Device {
        Device {
            name: reading.name.clone(),
            node: reading.node,
            total: reading.total,
            headroom: reading.headroom,
            foreign: reading.foreign,
            reserved: Bytes::ZERO,
            leaving: Bytes::ZERO,
            promised: Bytes::ZERO,
            holders: BTreeSet::new(),
        }
    }

    /// What replicas may hold of it when nobody else does: the M6 measure.
    pub fn capacity(&self) -> Bytes {
        self.total.saturating_sub(self.headroom)
    }

    /// What a launch may take at this moment.
    pub fn free_now(&self) -> Bytes {
        self.capacity()
            .saturating_sub(self.foreign)
            .saturating_sub(self.reserved)
    }

    /// What a plan may count on once everything that leaves has left and every promise is kept.
    pub fn free_later(&self) -> Bytes {
        let staying = self.reserved.saturating_sub(self.leaving);
        self.capacity()
            .saturating_sub(self.foreign)
            .saturating_sub(staying)
            .saturating_sub(self.promised)
    }

    /// What replicas that stay hold, and what is promised.
    pub(super) fn spoken_for(&self) -> Bytes {
        self.reserved.saturating_sub(self.leaving) + self.promised
    }

    pub(super) fn promise(&mut self, load: ReplicaId, bytes: Bytes) {
        self.promised = self.promised + bytes;
        self.holders.insert(load);
    }

    pub(super) fn unpromise(&mut self, load: ReplicaId, bytes: Bytes) {
        self.promised = Bytes(self.promised.0 - bytes.0);
        self.holders.remove(&load);
    }

    pub(super) fn reserve(&mut self, replica: ReplicaId, bytes: Bytes) {
        assert!(
            self.free_now() >= bytes,
            "M3: {replica} would over-commit a device"
        );
        self.reserved = self.reserved + bytes;
        self.holders.insert(replica);
    }

    pub(super) fn release(&mut self, replica: ReplicaId, bytes: Bytes, was_leaving: bool) {
        self.reserved = Bytes(self.reserved.0 - bytes.0);
        if was_leaving {
            self.leaving = Bytes(self.leaving.0 - bytes.0);
        }
        self.holders.remove(&replica);
    }

    pub(super) fn starts_leaving(&mut self, bytes: Bytes) {
        self.leaving = self.leaving + bytes;
    }

    pub(super) fn stays(&mut self, bytes: Bytes) {
        self.leaving = Bytes(self.leaving.0 - bytes.0);
    }
}
