//! Writes with an unknown outcome. Ray may carry out a write up to a minute after its connection is lost, so an application of the
//! write may appear although the list has been without it for some time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Ray's dashboard and its agent abandon a write within a minute. The rest is for the network.
pub(super) const DOUBT: Duration = Duration::from_secs(75);

/// For each application of an interrupted write, the time until which the write may still create it.
#[derive(Debug)]
pub(super) struct UncertainWrites {
    lasts: Duration,
    until: Mutex<BTreeMap<String, Instant>>,
}

/// A write in progress. Leaves its applications in doubt if it is dropped before its outcome is known, for example because the
/// caller stopped waiting.
#[must_use = "a write that is dropped counts as cut off"]
pub(super) struct UncertainWrite<'a> {
    doubts: &'a UncertainWrites,
    names: BTreeSet<String>,
}

impl UncertainWrites {
    pub fn new(lasts: Duration) -> UncertainWrites {
        UncertainWrites {
            lasts,
            until: Mutex::default(),
        }
    }

    /// `names` is the pool's applications in the list that is about to be written.
    pub fn begin(&self, names: BTreeSet<String>) -> UncertainWrite<'_> {
        UncertainWrite {
            doubts: self,
            names,
        }
    }

    /// Applications that an interrupted write may still create.
    pub fn names(&self) -> BTreeSet<String> {
        let now = now();
        let mut until = self.lock();
        until.retain(|_, until| *until > now);
        until.keys().cloned().collect()
    }

    pub fn has(&self, name: &str) -> bool {
        let now = now();
        self.lock().get(name).is_some_and(|until| *until > now)
    }

    /// The time by which every write begun before now has either been carried out or never will be.
    pub fn end_of_all(&self) -> Instant {
        now() + self.lasts
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UncertainWrite<'_> {
    /// Records that Ray has responded: the write was carried out, or never will be.
    pub fn settle(mut self) {
        self.names.clear();
    }
}

impl Drop for UncertainWrite<'_> {
    fn drop(&mut self) {
        let until = self.doubts.end_of_all();
        let names = std::mem::take(&mut self.names);
        let mut all = self.doubts.lock();
        all.extend(names.into_iter().map(|name| (name, until)));
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "doubt lasts from the moment at which a connection was lost"
)]
pub(super) fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_dropped_write_leaves_its_applications_uncertain_and_a_settled_one_does_not() {
        let doubts = UncertainWrites::new(DOUBT);
        doubts.begin(names(&["a", "b"])).settle();
        assert_eq!(doubts.names(), names(&[]));
        drop(doubts.begin(names(&["a", "b"])));
        assert_eq!(doubts.names(), names(&["a", "b"]));
        doubts.begin(names(&["a"])).settle();
        assert!(
            doubts.has("a"),
            "a later write does not say what becomes of an earlier one"
        );
        assert!(!doubts.has("c"));
    }

    #[test]
    fn uncertainty_about_a_write_expires() {
        let doubts = UncertainWrites::new(Duration::ZERO);
        drop(doubts.begin(names(&["a"])));
        assert!(!doubts.has("a"));
        assert_eq!(doubts.names(), names(&[]));
    }
}
