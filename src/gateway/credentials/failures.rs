//! Counts wrong credentials per address, in bounded tables. A valid credential is accepted regardless of wrong ones from the same
//! address: the counts only delay and refuse wrong ones (B1).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pool::{Span, Time};

/// The limit of wrong credentials per address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailureLimit {
    pub count: u32,
    pub within: Span,
    /// Additional delay of each refusal, up to `count` times.
    pub(crate) slower: Duration,
}

/// Keys and tokens at `POST /session`.
pub const WRONG_LOGINS: FailureLimit = FailureLimit {
    count: 10,
    within: Span::from_secs(60),
    slower: Duration::from_millis(100),
};
/// Codes of the issuer at `/session/signed-on`.
pub const WRONG_SIGN_ONS: FailureLimit = WRONG_LOGINS;
/// Tokens and credentials of nodes.
pub const WRONG_NODE_TOKENS: FailureLimit = FailureLimit {
    count: 20,
    within: Span::from_secs(10),
    slower: Duration::ZERO,
};
/// Largest number of addresses in a table. A new address replaces the one with the oldest window.
pub const FAILING_ADDRESSES_MAX: usize = 4096;

/// Wrong credentials of one kind.
#[derive(Debug)]
pub struct Failures {
    limit: FailureLimit,
    places: Mutex<BTreeMap<String, Counted>>,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    since: Time,
    count: u32,
}

/// The consequence of a wrong credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The delay of the refusal.
    pub wait: Duration,
    /// The time until the address is below its limit, if it is over it.
    pub over_for: Option<Span>,
    /// The first wrong credential of its address in the window.
    pub is_first: bool,
}

impl Failures {
    pub fn new(limit: FailureLimit) -> Failures {
        Failures {
            limit,
            places: Mutex::default(),
        }
    }

    /// The time until the address is below its limit, if it is over it.
    pub fn over_for(&self, place: &str, now: Time) -> Option<Span> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        self.left(*places.get(place)?, now)
    }

    /// Counts a wrong credential.
    pub fn count(&self, place: &str, now: Time) -> Failed {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |counted: &Counted| now.since(counted.since) >= self.limit.within;
        if places.len() >= FAILING_ADDRESSES_MAX && !places.contains_key(place) {
            places.retain(|_, counted| !is_over(counted));
        }
        if places.len() >= FAILING_ADDRESSES_MAX && !places.contains_key(place) {
            let oldest = places.iter().min_by_key(|(_, counted)| counted.since);
            if let Some(oldest) = oldest.map(|(place, _)| place.clone()) {
                places.remove(&oldest);
            }
        }
        let fresh = Counted {
            since: now,
            count: 0,
        };
        let counted = places.entry(place.to_owned()).or_insert(fresh);
        if is_over(counted) {
            *counted = fresh;
        }
        let over_for = self.left(*counted, now);
        counted.count = counted.count.saturating_add(1);
        Failed {
            wait: self.limit.slower * counted.count.min(self.limit.count),
            over_for,
            is_first: counted.count == 1,
        }
    }

    fn left(&self, counted: Counted, now: Time) -> Option<Span> {
        let passed = now.since(counted.since);
        let is_over = counted.count >= self.limit.count && passed < self.limit.within;
        let left = Span(self.limit.within.0.saturating_sub(passed.0));
        is_over.then_some(left.max(Span::from_secs(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_send_ten_wrong_keys_per_minute_and_others_are_unaffected() {
        let wrong = Failures::new(WRONG_LOGINS);
        let mut waits = Vec::new();
        for second in 0..10 {
            let failed = wrong.count("a", Time(second * 1000));
            assert_eq!((failed.over_for, failed.is_first), (None, second == 0));
            waits.push(failed.wait);
        }
        assert!(waits.is_sorted() && waits[0] < waits[9]);
        let left = Some(Span::from_secs(50));
        assert_eq!(wrong.over_for("a", Time(10_000)), left);
        assert_eq!(wrong.count("a", Time(10_000)).over_for, left);
        assert_eq!(wrong.over_for("b", Time(10_000)), None);
        assert_eq!(wrong.count("b", Time(10_000)).over_for, None);
        assert_eq!(wrong.over_for("a", Time(60_000)), None);
        assert!(wrong.count("a", Time(60_000)).is_first);
    }

    #[test]
    fn failing_addresses_are_bounded_and_the_oldest_window_is_dropped_first() {
        let wrong = Failures::new(WRONG_LOGINS);
        let all = 2 * FAILING_ADDRESSES_MAX as u64;
        for nth in 0..all {
            wrong.count(&nth.to_string(), Time(nth));
        }
        let places = wrong.places.lock().unwrap();
        assert_eq!(places.len(), FAILING_ADDRESSES_MAX);
        assert!(places.contains_key(&(all - 1).to_string()));
        assert!(!places.contains_key("0"));
    }
}
