//! The memory of a sleeper on its devices: what it keeps while asleep, and what it needs to wake.

use alloc::vec::Vec;

use crate::types::model::Parking;
use crate::types::replica::Replica;
use crate::types::share::Share;

impl Replica {
    /// The part of its shares that stays on the devices while it sleeps.
    pub(crate) fn would_keep(&self, parking: &Parking) -> Vec<Share> {
        let kept = |share: &Share| Share {
            device: share.device,
            bytes: share.bytes.min(parking.resident_per_device),
        };
        self.shares.iter().map(kept).collect()
    }

    /// The bytes it needs on its devices in addition to what a sleeper keeps there.
    pub(crate) fn to_wake(&self) -> Vec<Share> {
        let Some(parked) = &self.parked else {
            return Vec::new();
        };
        let more = |(awake, kept): (&Share, &Share)| Share {
            device: awake.device,
            bytes: awake.bytes.saturating_sub(kept.bytes),
        };
        parked.awake.iter().zip(&self.shares).map(more).collect()
    }
}
