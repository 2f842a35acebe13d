//! The referee's record of sleepers: what they keep on their devices, what they take from the hosts, and that no replica with
//! requests is put to sleep (L1).

use alloc::vec::Vec;

use super::{Referee, ReplicaRecord, Sleeper};
use pool::{Bytes, DeviceId, NodeId, ReplicaId, Share, Time};

impl ReplicaRecord {
    pub fn falls_asleep(&self) -> bool {
        let begun = self
            .sleeper
            .as_ref()
            .is_some_and(|sleeper| sleeper.since.is_none());
        begun && self.stopping.is_none() && self.ready.is_some()
    }

    /// Its share of a device at the time of a reading.
    pub fn share_when(&self, device: DeviceId, taken: Option<Time>) -> Option<Bytes> {
        let fell = self
            .sleeper
            .as_ref()
            .filter(|sleeper| sleeper.since.is_some());
        let shares = match fell {
            Some(sleeper) if taken <= sleeper.since => &sleeper.awake,
            _ => &self.shares,
        };
        let share = shares.iter().find(|share| share.device == device)?;
        Some(share.bytes)
    }

    /// The memory that a sleeper takes again when it wakes.
    pub fn to_wake(&self) -> Option<Vec<Share>> {
        let sleeper = self
            .sleeper
            .as_ref()
            .filter(|sleeper| sleeper.since.is_some())?;
        let more = |(awake, kept): (&Share, &Share)| Share {
            device: awake.device,
            bytes: awake.bytes.saturating_sub(kept.bytes),
        };
        Some(sleeper.awake.iter().zip(&self.shares).map(more).collect())
    }
}

impl Referee {
    pub(super) fn parked(&mut self, replica: ReplicaId, in_flight: u32) {
        let Some(seen) = self.replicas.get(&replica) else {
            self.broken
                .push(format!("L1: {replica} is put to sleep and does not exist"));
            return;
        };
        if in_flight > 0 || seen.closed.is_none() || seen.stopping.is_some() {
            self.broken.push(format!(
                "L1: {replica} is put to sleep with {in_flight} in flight ({seen:?})"
            ));
        }
        let spec = &self.specs[&seen.model];
        let Some(parking) = &spec.parking else {
            self.broken.push(format!("L1: {replica} cannot sleep"));
            return;
        };
        let host = parking.host;
        let node = self.devices[&seen.shares[0].device].node;
        let capacity = self.hosts.get(&node).copied().unwrap_or_default();
        let held = self.asleep_on(node) + host;
        if held > capacity {
            self.broken.push(format!(
                "M3: with {replica} sleepers take {held} of {capacity}"
            ));
        }
        let seen = self.replicas.get_mut(&replica).expect("there");
        seen.sleeper = Some(Sleeper {
            host,
            awake: seen.shares.clone(),
            since: None,
        });
        self.host_suffices(replica);
    }

    /// The host memory of all sleepers that are not being ended.
    fn asleep_on(&self, node: NodeId) -> Bytes {
        let there = |seen: &&ReplicaRecord| self.devices[&seen.shares[0].device].node == node;
        self.replicas
            .values()
            .filter(there)
            .filter(|seen| seen.stopping.is_none())
            .filter_map(|seen| seen.sleeper.as_ref().map(|sleeper| sleeper.host))
            .sum()
    }

    /// It has really fallen asleep and keeps this memory.
    pub fn asleep(&mut self, replica: ReplicaId, now: Time, kept: &[Share]) {
        let Some(seen) = self.replicas.get_mut(&replica) else {
            return;
        };
        if let Some(sleeper) = seen.sleeper.as_mut().filter(|_| seen.stopping.is_none()) {
            sleeper.since = Some(now);
            seen.shares = kept.to_vec();
            seen.idle_since = None;
        }
        for share in kept {
            self.device_memory(share.device).changed(now);
        }
    }

    pub(super) fn woken(&mut self, now: Time, replica: ReplicaId) {
        self.begins(now, replica);
        let more = self.replicas.get(&replica).and_then(ReplicaRecord::to_wake);
        let Some(more) = more else {
            self.broken
                .push(format!("L1: {replica} is woken and does not sleep"));
            return;
        };
        self.takes(now, replica, &more);
        let seen = self.replicas.get_mut(&replica).expect("there");
        if let Some(sleeper) = &mut seen.sleeper {
            seen.shares.clone_from(&sleeper.awake);
            sleeper.since = None;
        }
        (seen.launched, seen.ready, seen.closed, seen.used) = (now, None, None, false);
        (seen.marked, seen.reads_until) = (false, now);
    }
}
