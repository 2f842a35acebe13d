//! The real memory of a storm's devices: processes, which may take other amounts than they reserved, memory of ended processes that
//! is returned late or never, and memory of others. Readings are taken from it. It makes no decisions and does not know the pool.

use alloc::collections::BTreeMap;

use pool::{Bytes, DeviceReading, ReplicaId, Span, Time};

/// Memory that has not been returned after this time is no longer read at the short interval.
const AWAITED: Span = Span::from_secs(16);

#[derive(Clone, Debug)]
pub(super) struct Hardware {
    /// The constant part; `foreign` is the real value.
    pub constant: DeviceReading,
    /// Readings have a time and list memory by process.
    pub measured: bool,
    held: BTreeMap<ReplicaId, Bytes>,
    lingering: BTreeMap<ReplicaId, Bytes>,
    /// The next periodic reading comes after the short interval.
    pub settles: bool,
    last_end: Time,
}

impl Hardware {
    pub fn new(constant: DeviceReading, measured: bool) -> Hardware {
        Hardware {
            constant,
            measured,
            held: BTreeMap::new(),
            lingering: BTreeMap::new(),
            settles: false,
            last_end: Time(0),
        }
    }

    pub fn starts(&mut self, replica: ReplicaId, bytes: Bytes) {
        self.held.insert(replica, bytes);
    }

    /// It has fallen asleep, or is waking.
    pub fn holds(&mut self, replica: ReplicaId, bytes: Bytes) {
        if let Some(held) = self.held.get_mut(&replica) {
            *held = bytes;
        }
    }

    pub fn grows(&mut self, replica: ReplicaId, by: Bytes) {
        if let Some(held) = self.held.get_mut(&replica) {
            *held = *held + by;
        }
    }

    /// The process is gone; on a measured device its memory is not returned yet. Returns the lingering bytes.
    pub fn ends(&mut self, replica: ReplicaId, now: Time) -> Bytes {
        self.last_end = now;
        let held = self.held.remove(&replica).unwrap_or_default();
        if !self.measured {
            return Bytes::ZERO;
        }
        self.lingering.insert(replica, held);
        held
    }

    pub fn returns(&mut self, replica: ReplicaId) {
        self.lingering.remove(&replica);
    }

    /// Returns true if the reader still expects memory to be returned.
    pub fn is_awaited(&self, now: Time) -> bool {
        !self.lingering.is_empty() && now.since(self.last_end) < AWAITED
    }

    /// The reading that a driver would report now. `blind` (a planted fault) omits lingering memory.
    pub fn read(&self, now: Time, blind: bool) -> DeviceReading {
        let mut reading = self.constant.clone();
        if self.measured {
            reading.taken = Some(now);
            reading.own = self.held.iter().map(|(&id, &held)| (id, held)).collect();
            if !blind {
                let lingering = self.lingering.values().copied().sum();
                reading.foreign = reading.foreign + lingering;
            }
        }
        reading
    }
}
