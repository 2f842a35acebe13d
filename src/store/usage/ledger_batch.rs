//! Parts of the time of devices that are written together.

use std::collections::BTreeMap;

use super::pool_minutes::PoolMinute;
use pool::Time;

/// The states of the time with requests.
const USED: [&str; 2] = ["used", "used_by_batches"];
/// The state of parts whose details were lost.
pub(super) const UNKNOWN: &str = "not_known";

/// A part of the time of a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LedgerKey {
    /// Hours since 1970.
    pub hour: i64,
    /// Days since 1970, in the service's time zone.
    pub day: i64,
    pub device: String,
    /// Empty for memory without a model.
    pub model: String,
    /// A key such as `k3`, after the groups that contain it as in `physics/lab/k3`; `administrator`, or empty.
    pub payer: String,
    pub state: String,
}

/// The size of a part, or of a sum of parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LedgerAmount {
    pub device_ms: u64,
    /// A month of 64 large devices exceeds 63 bits.
    pub byte_seconds: u128,
    /// The energy during `energy_ms`, in millijoules.
    pub energy_mj: u64,
    /// The part of `device_ms` for which the energy is known.
    pub energy_ms: u64,
}

impl LedgerAmount {
    pub fn add(&mut self, other: LedgerAmount) {
        self.device_ms = self.device_ms.saturating_add(other.device_ms);
        self.byte_seconds = self.byte_seconds.saturating_add(other.byte_seconds);
        self.energy_mj = self.energy_mj.saturating_add(other.energy_mj);
        self.energy_ms = self.energy_ms.saturating_add(other.energy_ms);
    }
}

/// Parts that are written together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerBatch {
    pub(super) parts: BTreeMap<LedgerKey, LedgerAmount>,
    /// The time up to which all parts of a device are written with this batch.
    pub(super) seen: BTreeMap<String, Time>,
    /// Identifies the batch in the store, which adds a repeated batch once.
    pub(super) number: Option<u128>,
    /// The minute since 1970 in which the parts of its hour were counted, for charts.
    pub(super) minute: Option<u64>,
}

impl LedgerBatch {
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Numbers the batch. No two batches may have the same number.
    pub fn numbered(self, number: u128) -> LedgerBatch {
        LedgerBatch {
            number: Some(number),
            ..self
        }
    }

    /// Sets the minute of the batch.
    pub fn of_minute(self, minute: u64) -> LedgerBatch {
        LedgerBatch {
            minute: Some(minute),
            ..self
        }
    }

    /// The sums of the parts in the minute's hour, which are added to the minute.
    pub(super) fn pool_minute(&self) -> Option<PoolMinute> {
        let minute = self.minute?;
        let mut sum = PoolMinute {
            minute,
            ..PoolMinute::default()
        };
        let hour = i64::try_from(minute / 60).unwrap_or(i64::MAX);
        for (key, amount) in self.parts.iter().filter(|(key, _)| key.hour == hour) {
            sum.device_ms = sum.device_ms.saturating_add(amount.device_ms);
            if USED.contains(&key.state.as_str()) {
                sum.used_ms = sum.used_ms.saturating_add(amount.device_ms);
            }
        }
        (sum.device_ms > 0).then_some(sum)
    }

    pub fn is_numbered(&self) -> bool {
        self.number.is_some()
    }

    /// Divides the batch into batches of at most `most` parts. The last one with parts of a device has the device's time.
    pub fn divided(self, most: usize) -> Vec<LedgerBatch> {
        let mut parts: Vec<(LedgerKey, LedgerAmount)> = self.parts.into_iter().collect();
        parts.sort_by(|(one, _), (other, _)| one.device.cmp(&other.device));
        let mut seen = self.seen;
        let mut batches: Vec<LedgerBatch> = Vec::new();
        for chunk in parts.chunks(most.max(1)).rev() {
            let devices = chunk.iter().map(|(key, _)| &key.device);
            batches.push(LedgerBatch {
                seen: devices
                    .filter_map(|device| seen.remove_entry(device))
                    .collect(),
                parts: chunk.iter().cloned().collect(),
                number: None,
                minute: self.minute,
            });
        }
        if let Some(last) = batches.first_mut() {
            last.seen.append(&mut seen);
        }
        batches.reverse();
        batches
    }

    pub fn len(&self) -> usize {
        self.parts.len()
    }

    pub fn parts(&self) -> impl Iterator<Item = (&LedgerKey, &LedgerAmount)> {
        self.parts.iter()
    }

    pub fn add(&mut self, key: LedgerKey, amount: LedgerAmount) {
        self.parts.entry(key).or_default().add(amount);
    }

    /// The parts of the device are complete up to this time.
    pub fn see(&mut self, device: &str, until: Time) {
        if self.seen.get(device) != Some(&until) {
            self.seen.insert(device.to_owned(), until);
        }
    }

    /// Adds a later batch. Beyond `most` parts, the model and the payer of further ones are not known.
    pub fn merge(&mut self, later: LedgerBatch, most: usize) {
        for (mut key, amount) in later.parts {
            if self.parts.len() >= most && !self.parts.contains_key(&key) {
                key.model.clear();
                key.payer.clear();
                key.state = UNKNOWN.to_owned();
            }
            self.add(key, amount);
        }
        self.seen.extend(later.seen);
        self.minute = later.minute.or(self.minute);
    }

    pub(super) fn names(&self) -> Vec<&str> {
        let parts = self.parts.keys();
        let names = parts.flat_map(|key| [&key.device, &key.model, &key.payer, &key.state]);
        let mut names: Vec<&str> = names.map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}
