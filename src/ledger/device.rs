//! The account of one device: divides its time between the memory of its holders, foreign memory and the rest.

use std::collections::BTreeMap;

use super::cut::Cut;
use super::energy::Energy;
use super::parts::{Amount, Use};
use pool::{Bytes, ReplicaId, Time};

const NS_PER_MS: u128 = 1_000_000;

/// The state of knowledge about a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sight {
    Known,
    /// The device cannot be read. Memory that no replica holds is unknown.
    Stale,
    /// Its node does not respond. All memory is unknown.
    Silent,
}

#[derive(Debug)]
struct Holder {
    reserved: Bytes,
    /// `None` on a device that is not measured.
    measured: Option<Bytes>,
    amount: Amount,
}

impl Holder {
    fn claim(&self) -> u128 {
        u128::from(self.reserved.max(self.measured.unwrap_or_default()).0)
    }

    fn held(&self) -> u128 {
        u128::from(self.measured.unwrap_or(self.reserved).0)
    }
}

#[derive(Debug)]
pub(crate) struct Device {
    pub name: String,
    total: Bytes,
    foreign: Bytes,
    is_cordoned: bool,
    sight: Sight,
    is_measured: bool,
    at: Time,
    holders: BTreeMap<ReplicaId, Holder>,
    rest: BTreeMap<Use, Amount>,
    pub energy: Energy,
    /// The remainder of the last parts: less than a millisecond, and less than a byte-second.
    pub carry: Amount,
    pub is_gone: bool,
}

impl Device {
    pub fn new(name: String, now: Time) -> Device {
        Device {
            name,
            total: Bytes::ZERO,
            foreign: Bytes::ZERO,
            is_cordoned: false,
            sight: Sight::Stale,
            is_measured: false,
            at: now,
            holders: BTreeMap::new(),
            rest: BTreeMap::new(),
            energy: Energy::default(),
            carry: Amount::default(),
            is_gone: false,
        }
    }

    /// Counts the time up to now in the current state.
    pub fn advance(&mut self, now: Time) {
        let ms = u128::from(now.since(self.at).0);
        if ms == 0 || self.is_gone {
            return;
        }
        self.at = now;
        let ns = ms * NS_PER_MS;
        let total = u128::from(self.total.0);
        if self.sight == Sight::Silent {
            let byte_ms = total * ms;
            self.add(Use::Unknown, Amount { ns, byte_ms });
            return;
        }
        let foreign = u128::from(self.foreign.0);
        let claimed = self.holders.values().map(Holder::claim).sum::<u128>() + foreign;
        let held = self.holders.values().map(Holder::held).sum::<u128>() + foreign;
        // A device of unknown size without holders is divided, too.
        let mut time = Cut::new(ns, total.max(claimed).max(1));
        let mut bytes = Cut::new(total * ms, total.max(held).max(1));
        for holder in self.holders.values_mut() {
            let (claim, held) = (holder.claim(), holder.held());
            holder.amount.add(Amount {
                ns: time.piece(claim),
                byte_ms: bytes.piece(held),
            });
        }
        let others = Amount {
            ns: time.piece(foreign),
            byte_ms: bytes.piece(foreign),
        };
        let rest = Amount {
            ns: time.piece(total.max(claimed).max(1) - claimed),
            byte_ms: bytes.piece(total.max(held).max(1) - held),
        };
        match self.sight {
            Sight::Known => {
                self.add(Use::Foreign, others);
                let state = if self.is_cordoned {
                    Use::Cordoned
                } else {
                    Use::Free
                };
                self.add(state, rest);
            }
            Sight::Stale | Sight::Silent => {
                self.add(Use::Unknown, others);
                self.add(Use::Unknown, rest);
            }
        }
    }

    fn add(&mut self, state: Use, amount: Amount) {
        self.rest.entry(state).or_default().add(amount);
    }

    /// Sets the size and the state of the device. Call `advance` before.
    pub fn set(&mut self, total: Bytes, foreign: Bytes, is_cordoned: bool, sight: Sight) {
        self.total = total;
        self.foreign = foreign;
        self.is_cordoned = is_cordoned;
        self.sight = sight;
    }

    pub fn reserve(&mut self, replica: ReplicaId, reserved: Bytes) {
        let measured = self.is_measured.then_some(Bytes::ZERO);
        let holder = self.holders.entry(replica).or_insert(Holder {
            reserved,
            measured,
            amount: Amount::default(),
        });
        holder.reserved = reserved;
    }

    /// The holders whose measured memory differs from this reading.
    pub fn changed(&self, own: Option<&BTreeMap<ReplicaId, Bytes>>) -> Vec<ReplicaId> {
        let measured = |id: &ReplicaId| own.map(|own| own.get(id).copied().unwrap_or_default());
        let changed = self.holders.iter();
        let changed = changed.filter(|(id, holder)| holder.measured != measured(id));
        changed.map(|(&id, _)| id).collect()
    }

    /// Sets the measured memory of all holders; `None` for a device that is not measured.
    pub fn measure(&mut self, own: Option<&BTreeMap<ReplicaId, Bytes>>) {
        self.is_measured = own.is_some();
        for (id, holder) in &mut self.holders {
            holder.measured = own.map(|own| own.get(id).copied().unwrap_or_default());
        }
    }

    /// Takes what the replica has held since the last call.
    pub fn take(&mut self, replica: ReplicaId) -> Amount {
        let holder = self.holders.get_mut(&replica);
        holder.map_or_else(Amount::default, |holder| std::mem::take(&mut holder.amount))
    }

    pub fn remove(&mut self, replica: ReplicaId) {
        self.holders.remove(&replica);
    }

    /// Takes what no replica has held since the last call.
    pub fn take_rest(&mut self) -> BTreeMap<Use, Amount> {
        std::mem::take(&mut self.rest)
    }
}
