//! Owns the budgets of tokens that requests share: who may begin, and who waits for others to end. Never reorders: whoever
//! asks waits for its own turn.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// How soon it is noticed that somebody who waits has gone away.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Tokens of all running requests together, and how many there may be.
#[derive(Debug)]
pub(crate) struct Budget {
    most: usize,
    used: Mutex<usize>,
    freed: Condvar,
}

/// A part of a budget, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    budget: &'a Budget,
    tokens: usize,
}

impl Budget {
    /// `None`: without a bound.
    pub fn new(most: Option<usize>) -> Self {
        Self {
            most: most.unwrap_or(usize::MAX),
            used: Mutex::new(0),
            freed: Condvar::new(),
        }
    }

    /// Waits until there is room, for as long as `is_wanted`. What is larger than the whole budget waits until it is alone.
    pub fn take(&self, tokens: usize, is_wanted: impl Fn() -> bool) -> Option<Part<'_>> {
        let tokens = tokens.min(self.most);
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        while *used > self.most - tokens {
            if !is_wanted() {
                return None;
            }
            let waited = self.freed.wait_timeout(used, LOOK_EVERY);
            used = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *used += tokens;
        Some(Part {
            budget: self,
            tokens,
        })
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        let used = self.budget.used.lock();
        *used.unwrap_or_else(PoisonError::into_inner) -= self.tokens;
        self.budget.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn who_does_not_fit_waits_until_others_have_ended() {
        let budget = Budget::new(Some(10));
        let first = budget.take(6, || true);
        let second = budget.take(4, || true);
        std::thread::scope(|scope| {
            let (tell, told) = channel();
            let budget = &budget;
            scope.spawn(move || {
                let _part = budget.take(7, || true);
                tell.send(*budget.used.lock().expect("not poisoned"))
                    .expect("heard");
            });
            drop(first);
            assert!(told.try_recv().is_err(), "4 and 7 are more than 10");
            drop(second);
            assert_eq!(told.recv(), Ok(7));
        });
        assert_eq!(*budget.used.lock().expect("not poisoned"), 0);
    }

    #[test]
    fn what_is_larger_than_all_of_it_runs_alone_and_without_a_bound_nobody_waits() {
        let budget = Budget::new(Some(10));
        drop(budget.take(1000, || true));
        let free = Budget::new(None);
        let _parts = [free.take(usize::MAX / 2, || true), free.take(5, || true)];
    }

    #[test]
    fn who_has_gone_away_waits_no_longer() {
        let budget = Budget::new(Some(10));
        let _all = budget.take(10, || true);
        assert!(budget.take(1, || false).is_none());
    }
}
