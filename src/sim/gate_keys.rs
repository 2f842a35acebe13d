//! The seats of each key at the gates of a simulation, as the gates of the controller count them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use pool::{KeyId, KeySeats, ReplicaId, ReplicaKeys, Time};

#[derive(Clone, Debug, Default)]
pub(crate) struct GateKeys {
    seats: BTreeMap<ReplicaId, Vec<KeySeats>>,
    changed: BTreeSet<ReplicaId>,
}

impl GateKeys {
    pub fn enters(&mut self, replica: ReplicaId, key: KeyId, now: Time) {
        let seats = self.seats.entry(replica).or_default();
        match seats.iter_mut().find(|seats| seats.key == key) {
            Some(seats) => seats.enters(now),
            None => {
                let mut first = KeySeats::new(key);
                first.enters(now);
                seats.push(first);
            }
        }
        self.changed.insert(replica);
    }

    pub fn leaves(&mut self, replica: ReplicaId, key: KeyId, entered: Time, now: Time) {
        let seats = self.seats.get_mut(&replica);
        if let Some(seats) = seats.and_then(|all| all.iter_mut().find(|seats| seats.key == key)) {
            seats.leaves(entered, now);
            self.changed.insert(replica);
        }
    }

    /// The replica's process has ended.
    pub fn ends(&mut self, replica: ReplicaId) {
        self.seats.remove(&replica);
        self.changed.remove(&replica);
    }

    /// The changes since the last call.
    pub fn read(&mut self) -> Vec<ReplicaKeys> {
        let mut gates = Vec::new();
        for replica in core::mem::take(&mut self.changed) {
            let Some(seats) = self.seats.get_mut(&replica) else {
                continue;
            };
            let keys = seats.clone();
            seats.retain(|seats| seats.in_flight > 0);
            seats.iter_mut().for_each(|seats| seats.ended_ms = 0);
            gates.push(ReplicaKeys { replica, keys });
        }
        gates
    }
}
