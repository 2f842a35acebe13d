//! Slows and bounds logins with wrong keys, by the address that they come from. The right key is let in as
//! long as there are not too many wrong ones from the same address.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pool::{Span, Time};

/// Wrong keys from one address within [`WINDOW`]; further keys from there are refused unchecked.
const OF_ONE_MAX: u32 = 10;
const WINDOW: Span = Span::from_secs(60);
/// Addresses in the table; a new one replaces the one with the oldest window.
const PLACES_MAX: usize = 4096;
/// The answer to a wrong key waits so much longer with each one before it.
const SLOWER: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub struct WrongLogins(Mutex<BTreeMap<String, Counted>>);

#[derive(Clone, Copy, Debug)]
struct Counted {
    since: Time,
    count: u32,
}

impl WrongLogins {
    /// How long this address is blocked, if it is.
    pub fn closed_for(&self, place: &str, now: Time) -> Option<Span> {
        let counted = self.counted(place, now)?;
        let left = Span(WINDOW.0.saturating_sub(now.since(counted.since).0));
        (counted.count >= OF_ONE_MAX).then_some(left.max(Span::from_secs(1)))
    }

    /// Counts a wrong key; returns how long its answer waits.
    pub fn count(&self, place: &str, now: Time) -> Duration {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|_, it| now.since(it.since) < WINDOW);
        if places.len() >= PLACES_MAX && !places.contains_key(place) {
            let oldest = places.iter().min_by_key(|(_, it)| it.since);
            if let Some(oldest) = oldest.map(|(place, _)| place.clone()) {
                places.remove(&oldest);
            }
        }
        let fresh = Counted {
            since: now,
            count: 0,
        };
        let counted = places.entry(place.to_owned()).or_insert(fresh);
        counted.count += 1;
        SLOWER * counted.count.min(OF_ONE_MAX)
    }

    fn counted(&self, place: &str, now: Time) -> Option<Counted> {
        let places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counted = places.get(place).copied()?;
        (now.since(counted.since) < WINDOW).then_some(counted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_wrong_keys_close_a_place_for_the_rest_of_a_minute_and_no_other_place() {
        let wrong = WrongLogins::default();
        let mut waits = Vec::new();
        for second in 0..10 {
            assert_eq!(wrong.closed_for("a", Time(second * 1000)), None);
            waits.push(wrong.count("a", Time(second * 1000)));
        }
        assert!(waits.is_sorted() && waits[0] < waits[9]);
        assert_eq!(
            wrong.closed_for("a", Time(10_000)),
            Some(Span::from_secs(50))
        );
        assert_eq!(wrong.closed_for("b", Time(10_000)), None);
        assert_eq!(wrong.closed_for("a", Time(60_000)), None);
    }

    #[test]
    fn the_places_are_bounded() {
        let wrong = WrongLogins::default();
        for nth in 0..2 * PLACES_MAX as u64 {
            wrong.count(&nth.to_string(), Time(nth));
        }
        assert_eq!(wrong.0.lock().unwrap().len(), PLACES_MAX);
    }
}
