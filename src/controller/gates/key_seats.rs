//! The seats that each key takes at a gate, for fairness between keys (P9) and for the account of device time. Requests count
//! themselves; the loop takes the counts.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pool::{KeyId, KeySeats, Span, Time};

/// The maximum number of keys without a seat whose ended requests are counted until the loop takes them.
const ENDED_MAX: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct GateKeys(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    keys: Vec<KeySeats>,
    has_changed: bool,
    /// Requests inside, including requests that an earlier controller serves.
    inside: u32,
    /// The start of the current time with a request inside.
    busy_since: Time,
    /// The earlier time with a request inside.
    busy: Span,
    last_key: Option<KeyId>,
}

/// The use of a gate since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct GateUse {
    /// The time with a request inside.
    pub busy: Span,
    pub in_flight: u32,
    /// The key whose request ended last.
    pub last_key: Option<KeyId>,
}

impl GateKeys {
    pub fn enters(&self, key: KeyId, now: Time) {
        let mut counts = self.lock();
        counts.has_changed = true;
        counts.inside(1, now);
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
        counts.inside(-1, now);
        counts.last_key = Some(key);
        if let Some(seats) = counts.keys.iter_mut().find(|seats| seats.key == key) {
            seats.leaves(entered, now);
        }
    }

    /// Counts requests without a key that enter, or leave for a negative number.
    pub fn guests(&self, more: i64, now: Time) {
        let mut counts = self.lock();
        counts.has_changed = true;
        counts.inside(more, now);
    }

    /// The counts since the last call; `None` if no request has entered or left.
    pub fn take(&self, now: Time) -> Option<(Vec<KeySeats>, GateUse)> {
        let mut counts = self.lock();
        if !std::mem::take(&mut counts.has_changed) {
            return None;
        }
        let taken = counts.keys.clone();
        counts.keys.retain(|seats| seats.in_flight > 0);
        counts.keys.iter_mut().for_each(|seats| seats.ended_ms = 0);
        Some((taken, counts.gate_use(now)))
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    /// Counts requests that enter or leave.
    fn inside(&mut self, more: i64, now: Time) {
        let before = self.inside;
        let inside = i64::from(before).saturating_add(more).max(0);
        self.inside = u32::try_from(inside).unwrap_or(u32::MAX);
        if before == 0 {
            self.busy_since = now;
        } else if self.inside == 0 {
            self.busy = self.busy + now.since(self.busy_since);
        }
    }

    fn gate_use(&self, now: Time) -> GateUse {
        let current = if self.inside > 0 {
            now.since(self.busy_since)
        } else {
            Span::ZERO
        };
        GateUse {
            busy: self.busy + current,
            in_flight: self.inside,
            last_key: self.last_key,
        }
    }

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
        assert_eq!(keys.take(Time(500)), None);
        keys.enters(KeyId(1), Time(100));
        keys.enters(KeyId(2), Time(200));
        keys.enters(KeyId(1), Time(300));
        keys.leaves(KeyId(1), Time(100), Time(400));
        keys.leaves(KeyId(2), Time(200), Time(450));
        let first = vec![seats(1, 1, 300, 300), seats(2, 0, 0, 250)];
        let (taken, used) = keys.take(Time(460)).expect("requests came");
        assert_eq!(taken, first);
        let expected = GateUse {
            busy: Span(360),
            in_flight: 1,
            last_key: Some(KeyId(2)),
        };
        assert_eq!(used, expected);
        assert_eq!(keys.take(Time(500)), None);
        keys.leaves(KeyId(1), Time(300), Time(500));
        let (taken, used) = keys.take(Time(900)).expect("a request has ended");
        assert_eq!(taken, [seats(1, 0, 0, 200)]);
        assert_eq!((used.busy, used.in_flight), (Span(400), 0));
        keys.enters(KeyId(3), Time(1_000));
        keys.guests(2, Time(1_100));
        keys.leaves(KeyId(3), Time(1_000), Time(1_200));
        keys.guests(-2, Time(1_500));
        let (_, used) = keys.take(Time(9_000)).expect("requests came");
        assert_eq!((used.busy, used.in_flight), (Span(900), 0));
    }

    #[test]
    fn a_thousand_keys_that_come_and_go_take_bounded_memory() {
        let keys = GateKeys::default();
        keys.enters(KeyId(5_000), Time(0));
        for key in 0..1_000 {
            keys.enters(KeyId(key), Time(0));
            keys.leaves(KeyId(key), Time(0), Time(key));
        }
        let (taken, _) = keys.take(Time(0)).expect("requests came");
        assert!(taken.len() <= ENDED_MAX + 1, "{}", taken.len());
        assert!(
            taken.contains(&seats(5_000, 1, 0, 0)),
            "a seat is never dropped"
        );
        assert!(taken.contains(&seats(999, 0, 0, 999)));
    }
}
