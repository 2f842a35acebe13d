//! The service of each key, in seat-milliseconds across all models, for fairness between keys (P9). Makes no choices.
//!
//! Service counts only while a request of another key waits: seats that no other key wanted cost that key nothing. A key that becomes
//! active starts at the least service of the active keys, so time spent away earns no credit. A key leads the least served active
//! key by a bounded amount at most, and the number of keys is bounded.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::types::ids::{KeyId, ReplicaId, Span, Time};
use crate::types::key_seats::KeySeats;

/// Service is compared in steps of 2¹² ms: a smaller difference counts as none.
const LEVEL_SHIFT: u32 = 12;
/// The most seat-milliseconds by which a key leads the least served one.
const LEAD_MAX: u64 = 600_000;
/// The maximum number of keys whose service is remembered while they are away.
const AWAY_MAX: usize = 1_024;
/// The interval at which the seats of replicas that report nothing new are counted.
const COUNT_EVERY: Span = Span(250);

#[derive(Clone, Copy, Debug, Default)]
struct Key {
    served_ms: u64,
    waiting: u32,
    in_flight: u32,
}

impl Key {
    fn is_active(&self) -> bool {
        self.waiting > 0 || self.in_flight > 0
    }
}

/// A key's seats on a replica at the last count.
#[derive(Clone, Copy, Debug)]
struct User {
    seats: KeySeats,
    counted_ms: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct KeyService {
    keys: BTreeMap<KeyId, Key>,
    users: BTreeMap<ReplicaId, Vec<User>>,
    /// The keys with waiting requests.
    waiting: BTreeSet<KeyId>,
    counted_at: Time,
}

/// The keys whose level has changed, and the replicas whose users have.
#[derive(Debug, Default)]
pub(crate) struct ServiceChange {
    pub keys: BTreeSet<KeyId>,
    pub replicas: BTreeSet<ReplicaId>,
}

impl KeyService {
    /// The service of a key in steps. Only differences have a meaning.
    pub fn level(&self, key: KeyId) -> u64 {
        let served_ms = self.keys.get(&key).map(|key| key.served_ms);
        served_ms.unwrap_or_else(|| self.floor()) >> LEVEL_SHIFT
    }

    /// The keys with a seat on the replica.
    pub fn users(&self, replica: ReplicaId) -> impl Iterator<Item = KeyId> + '_ {
        let users = self.users.get(&replica).into_iter().flatten();
        let inside = users.filter(|user| user.seats.in_flight > 0);
        inside.map(|user| user.seats.key)
    }

    /// A request of the key waits.
    pub fn joins(&mut self, key: KeyId, now: Time) -> ServiceChange {
        let change = if self.waiting.contains(&key) {
            ServiceChange::default()
        } else {
            self.count(now)
        };
        self.activate(key);
        self.keys.entry(key).or_default().waiting += 1;
        self.waiting.insert(key);
        change
    }

    /// A request of the key no longer waits.
    pub fn leaves(&mut self, key: KeyId, now: Time) -> ServiceChange {
        let Some(found) = self.keys.get_mut(&key) else {
            return ServiceChange::default();
        };
        if found.waiting > 1 {
            found.waiting -= 1;
            return ServiceChange::default();
        }
        let change = self.count(now);
        if let Some(found) = self.keys.get_mut(&key) {
            found.waiting = 0;
        }
        self.waiting.remove(&key);
        change
    }

    /// The gate of a replica has reported its keys.
    pub fn read(&mut self, replica: ReplicaId, seats: &[KeySeats], now: Time) -> ServiceChange {
        let mut change = ServiceChange::default();
        let most = self.most();
        let before = self.users.remove(&replica).unwrap_or_default();
        let of = |key: KeyId| before.iter().find(|user| user.seats.key == key);
        for seats in seats {
            let inside = seats.inside_ms(now);
            let counted = of(seats.key).map_or(0, |user| user.counted_ms);
            let served = (seats.ended_ms + inside).saturating_sub(counted);
            let had = of(seats.key).map_or(0, |user| user.seats.in_flight);
            if had == 0 && seats.in_flight > 0 {
                self.activate(seats.key);
            }
            self.serve(seats.key, served, most, &mut change);
            if let Some(key) = self.keys.get_mut(&seats.key) {
                key.in_flight = key.in_flight.saturating_sub(had) + seats.in_flight;
            }
        }
        for user in &before {
            let is_reported = seats.iter().any(|seats| seats.key == user.seats.key);
            if !is_reported && let Some(key) = self.keys.get_mut(&user.seats.key) {
                key.in_flight = key.in_flight.saturating_sub(user.seats.in_flight);
            }
        }
        let inside = seats.iter().filter(|seats| seats.in_flight > 0);
        let users: Vec<User> = inside
            .map(|seats| User {
                seats: KeySeats {
                    ended_ms: 0,
                    ..*seats
                },
                counted_ms: seats.inside_ms(now),
            })
            .collect();
        let keys = |users: &[User]| -> BTreeSet<KeyId> {
            users.iter().map(|user| user.seats.key).collect()
        };
        if !self.waiting.is_empty() && keys(&before) != keys(&users) {
            change.replicas.insert(replica);
        }
        if !users.is_empty() {
            self.users.insert(replica, users);
        }
        change
    }

    /// Counts the seats on all replicas, unless that was done a moment ago or no two keys compete.
    pub fn count_sometimes(&mut self, now: Time) -> ServiceChange {
        if self.waiting.is_empty() || self.keys.len() < 2 || now < self.counted_at + COUNT_EVERY {
            return ServiceChange::default();
        }
        self.count(now)
    }

    fn count(&mut self, now: Time) -> ServiceChange {
        self.counted_at = now;
        let mut change = ServiceChange::default();
        let mut served = Vec::new();
        for user in self.users.values_mut().flatten() {
            let inside = user.seats.inside_ms(now);
            served.push((user.seats.key, inside.saturating_sub(user.counted_ms)));
            user.counted_ms = user.counted_ms.max(inside);
        }
        let most = self.most();
        for (key, served_ms) in served {
            self.serve(key, served_ms, most, &mut change);
        }
        change
    }

    /// The replica has ended.
    pub fn ends(&mut self, replica: ReplicaId, now: Time) -> ServiceChange {
        if self.users.contains_key(&replica) {
            self.read(replica, &[], now)
        } else {
            ServiceChange::default()
        }
    }

    /// The replicas on which the key has a seat.
    pub fn replicas_of(&self, key: KeyId) -> impl Iterator<Item = ReplicaId> + '_ {
        let has_seat = move |users: &[User]| users.iter().any(|user| user.seats.key == key);
        let users = self.users.iter();
        users
            .filter(move |(_, users)| has_seat(users))
            .map(|(&replica, _)| replica)
    }

    /// Another key waits, so the service of this one counts.
    fn serve(&mut self, key: KeyId, served_ms: u64, most: u64, change: &mut ServiceChange) {
        let is_contended = self.waiting.iter().any(|waiting| *waiting != key);
        if served_ms == 0 || !is_contended {
            return;
        }
        let Some(known) = self.keys.get_mut(&key) else {
            return;
        };
        let before = known.served_ms >> LEVEL_SHIFT;
        let more = known.served_ms.saturating_add(served_ms);
        known.served_ms = more.min(most.max(known.served_ms));
        if known.served_ms >> LEVEL_SHIFT != before {
            change.keys.insert(key);
        }
    }

    /// The most service that counts.
    fn most(&self) -> u64 {
        self.floor().saturating_add(LEAD_MAX)
    }

    /// The least service of an active key; the most of all if none is active.
    fn floor(&self) -> u64 {
        let active = self.keys.values().filter(|key| key.is_active());
        let least = active.map(|key| key.served_ms).min();
        let most = || self.keys.values().map(|key| key.served_ms).max();
        least.or_else(most).unwrap_or(0)
    }

    /// The key becomes active: it starts no lower than the least served active one.
    fn activate(&mut self, key: KeyId) {
        if self.keys.get(&key).is_some_and(Key::is_active) {
            return;
        }
        let others = self.keys.values().filter(|key| key.is_active());
        let floor = others.map(|key| key.served_ms).min();
        let floor = floor.unwrap_or(0);
        let found = self.keys.entry(key).or_default();
        found.served_ms = found.served_ms.max(floor);
    }

    /// Forgets keys that are away and lead no other key, and beyond a limit those with the smallest lead.
    pub fn forget(&mut self) {
        let floor = self.floor();
        self.keys
            .retain(|_, key| key.is_active() || key.served_ms > floor);
        let away = self.keys.iter().filter(|(_, key)| !key.is_active());
        let mut away: Vec<(u64, KeyId)> = away.map(|(&id, key)| (key.served_ms, id)).collect();
        let surplus = away.len().saturating_sub(AWAY_MAX);
        if surplus > 0 {
            away.sort_unstable();
            for (_, id) in &away[..surplus] {
                self.keys.remove(id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAVY: KeyId = KeyId(1);
    const LIGHT: KeyId = KeyId(2);
    const REPLICA: ReplicaId = ReplicaId(1);

    /// The heavy key takes four seats at this time.
    fn four_seats(service: &mut KeyService, now: Time) {
        let mut seats = KeySeats::new(HEAVY);
        (0..4).for_each(|_| seats.enters(now));
        service.read(REPLICA, &[seats], now);
    }

    fn lead(service: &KeyService) -> u64 {
        service.level(HEAVY).saturating_sub(service.level(LIGHT))
    }

    #[test]
    fn service_counts_only_while_another_key_waits() {
        let mut service = KeyService::default();
        four_seats(&mut service, Time(0));
        service.count(Time(100_000));
        service.joins(LIGHT, Time(100_000));
        assert_eq!(lead(&service), 0);
        let change = service.count_sometimes(Time(120_480));
        assert_eq!(lead(&service), 20, "20 s of four seats");
        assert_eq!(change.keys, BTreeSet::from([HEAVY]));
        service.leaves(LIGHT, Time(120_480));
        service.count(Time(900_000));
        assert_eq!(service.keys[&HEAVY].served_ms, 4 * 20_480);
    }

    #[test]
    fn a_key_that_was_away_has_no_credit_and_a_lead_is_bounded() {
        let mut service = KeyService::default();
        four_seats(&mut service, Time(0));
        service.joins(LIGHT, Time(0));
        service.count(Time(3_600_000));
        assert_eq!(lead(&service), LEAD_MAX >> LEVEL_SHIFT);
        service.leaves(LIGHT, Time(3_600_000));
        service.forget();
        service.joins(LIGHT, Time(3_700_000));
        assert_eq!(lead(&service), 0, "it starts where the active key is");
    }

    #[test]
    fn requests_that_come_and_go_between_two_readings_count_in_full() {
        let mut service = KeyService::default();
        four_seats(&mut service, Time(0));
        service.joins(LIGHT, Time(0));
        service.count(Time(1_000));
        let mut seats = KeySeats::new(HEAVY);
        (0..4).for_each(|_| seats.enters(Time(0)));
        (0..3).for_each(|_| seats.leaves(Time(0), Time(2_000)));
        service.read(REPLICA, &[seats], Time(5_000));
        assert_eq!(service.keys[&HEAVY].served_ms, 3 * 2_000 + 5_000);
        service.ends(REPLICA, Time(6_000));
        assert_eq!(service.users(REPLICA).count(), 0);
    }

    #[test]
    fn ten_thousand_keys_that_come_and_go_take_bounded_memory() {
        let mut service = KeyService::default();
        service.joins(LIGHT, Time(0));
        for nth in 0..10_000 {
            let replica = ReplicaId(nth + 10);
            let mut seats = KeySeats::new(KeyId(nth + 10));
            seats.enters(Time(0));
            seats.leaves(Time(0), Time(nth + 1));
            service.read(replica, &[seats], Time(20_000));
        }
        service.forget();
        assert!(service.keys.len() <= AWAY_MAX + 1, "{}", service.keys.len());
        assert!(service.users.is_empty());
    }
}
