//! The seats that each key takes at a gate, for fairness between keys (P9). Requests count themselves; the loop takes the counts.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pool::{KeyId, KeySeats, Time};

/// The maximum number of keys without a seat whose ended requests are counted until the loop takes them.
const ENDED_MAX: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct GateKeys(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    keys: Vec<KeySeats>,
    has_changed: bool,
}

impl GateKeys {
    pub fn enters(&self, key: KeyId, now: Time) {
        let mut counts = self.lock();
        counts.has_changed = true;
        if let Some(seats) = counts.keys.iter_mut().find(|seats| seats.key == key) {
            return seats.enters(now);
        }
        counts.make_room();
        let mut seats = KeySeats::new(key);
        seats.enters(now);
        counts.keys.push(seats);
    }

    pub fn leaves(&self, key: KeyId, entered: Time, now: Time) {
        let mut counts = self.lock();
        counts.has_changed = true;
        if let Some(seats) = counts.keys.iter_mut().find(|seats| seats.key == key) {
            seats.leaves(entered, now);
        }
    }

    /// The counts since the last call; `None` if no request has entered or left.
    pub fn take(&self) -> Option<Vec<KeySeats>> {
        let mut counts = self.lock();
        if !std::mem::take(&mut counts.has_changed) {
            return None;
        }
        let taken = counts.keys.clone();
        counts.keys.retain(|seats| seats.in_flight > 0);
        counts.keys.iter_mut().for_each(|seats| seats.ended_ms = 0);
        Some(taken)
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// Drops the least count of a key without a seat if there are too many.
    fn make_room(&mut self) {
        let ended = self.keys.iter().filter(|seats| seats.in_flight == 0);
        if ended.count() < ENDED_MAX {
            return;
        }
        let ended = self.keys.iter().enumerate();
        let ended = ended.filter(|(_, seats)| seats.in_flight == 0);
        if let Some((nth, _)) = ended.min_by_key(|(_, seats)| seats.ended_ms) {
            self.keys.swap_remove(nth);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(key: u64, in_flight: u32, entered_sum: u64, ended_ms: u64) -> KeySeats {
        KeySeats {
            in_flight,
            entered_sum,
            ended_ms,
            ..KeySeats::new(KeyId(key))
        }
    }

    #[test]
    fn the_loop_gets_the_seats_of_each_key_and_what_has_ended_once() {
        let keys = GateKeys::default();
        assert_eq!(keys.take(), None);
        keys.enters(KeyId(1), Time(100));
        keys.enters(KeyId(2), Time(200));
        keys.enters(KeyId(1), Time(300));
        keys.leaves(KeyId(1), Time(100), Time(400));
        keys.leaves(KeyId(2), Time(200), Time(450));
        let first = vec![seats(1, 1, 300, 300), seats(2, 0, 0, 250)];
        assert_eq!(keys.take(), Some(first));
        assert_eq!(keys.take(), None);
        keys.leaves(KeyId(1), Time(300), Time(500));
        assert_eq!(keys.take(), Some(vec![seats(1, 0, 0, 200)]));
    }

    #[test]
    fn a_thousand_keys_that_come_and_go_take_bounded_memory() {
        let keys = GateKeys::default();
        keys.enters(KeyId(5_000), Time(0));
        for key in 0..1_000 {
            keys.enters(KeyId(key), Time(0));
            keys.leaves(KeyId(key), Time(0), Time(key));
        }
        let taken = keys.take().expect("requests came");
        assert!(taken.len() <= ENDED_MAX + 1, "{}", taken.len());
        assert!(
            taken.contains(&seats(5_000, 1, 0, 0)),
            "a seat is never dropped"
        );
        assert!(taken.contains(&seats(999, 0, 0, 999)));
    }
}
