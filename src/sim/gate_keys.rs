//! The seats and tokens of each key at the gates of a simulation, as the gates of the controller count them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use pool::{KeyId, KeySeats, ReplicaId, ReplicaKeys, ServiceClass, Time, Tokens};

/// A request with a seat: its key, its class, and the tokens that it is still expected to take.
#[derive(Clone, Copy, Debug, Default)]
pub struct Guest {
    pub key: KeyId,
    pub class: ServiceClass,
    pub expected: Tokens,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct GateKeys {
    seats: BTreeMap<ReplicaId, Vec<KeySeats>>,
    changed: BTreeSet<ReplicaId>,
}

impl GateKeys {
    pub fn enters(&mut self, replica: ReplicaId, guest: &Guest, now: Time) {
        let all = self.seats.entry(replica).or_default();
        let position = all
            .iter()
            .position(|seats| (seats.key, seats.class) == (guest.key, guest.class));
        let nth = position.unwrap_or_else(|| {
            all.push(KeySeats::with_class(guest.key, guest.class));
            all.len() - 1
        });
        all[nth].enters(now);
        all[nth].expected = all[nth].expected + guest.expected;
        self.changed.insert(replica);
    }

    pub fn leaves(&mut self, replica: ReplicaId, guest: &Guest, entered: Time, now: Time) {
        if let Some(seats) = self.of_guest(replica, guest) {
            seats.leaves(entered, now);
            seats.expected = seats.expected.less(guest.expected);
            self.changed.insert(replica);
        }
    }

    /// The request has taken these tokens.
    pub fn takes(&mut self, replica: ReplicaId, guest: &mut Guest, tokens: Tokens) {
        let left = guest.expected.less(tokens);
        if let Some(seats) = self.of_guest(replica, guest) {
            seats.served = seats.served + tokens;
            seats.expected = seats.expected.less(guest.expected.less(left));
            self.changed.insert(replica);
        }
        guest.expected = left;
    }

    fn of_guest(&mut self, replica: ReplicaId, guest: &Guest) -> Option<&mut KeySeats> {
        let seats = self.seats.get_mut(&replica)?;
        seats
            .iter_mut()
            .find(|seats| (seats.key, seats.class) == (guest.key, guest.class))
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
            for seats in seats {
                (seats.ended_ms, seats.served) = (0, Tokens::ZERO);
            }
            gates.push(ReplicaKeys { replica, keys });
        }
        gates
    }
}
