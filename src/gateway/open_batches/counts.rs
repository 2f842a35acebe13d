//! The counts of batches for `/metrics`: requests that have ended, bytes of results, and the rate of the last minute. Counts begin at 0
//! with the process.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use pool::Time;

/// The seconds over which the rate is measured.
const RATE_SECONDS: usize = 60;

/// The outcome of a request of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Completed,
    /// It ran and got an error.
    Failed,
    /// It did not run within the completion window.
    Expired,
    /// It did not run before its batch was cancelled.
    Cancelled,
}

impl Outcome {
    pub const ALL: [Outcome; 4] = [
        Outcome::Completed,
        Outcome::Failed,
        Outcome::Expired,
        Outcome::Cancelled,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Outcome::Completed => "completed",
            Outcome::Failed => "failed",
            Outcome::Expired => "expired",
            Outcome::Cancelled => "cancelled",
        }
    }
}

/// Counts since the start.
#[derive(Debug, Default)]
pub(crate) struct BatchCounts {
    /// In the order of [`Outcome::ALL`].
    ended: [AtomicU64; Outcome::ALL.len()],
    result_bytes: AtomicU64,
    recent: Mutex<RecentRate>,
}

impl BatchCounts {
    /// Counts a result of this length. Requests that did not run do not count for the rate.
    pub fn add(&self, outcome: Outcome, bytes: u64, now: Time) {
        self.ended[outcome as usize].fetch_add(1, Ordering::Relaxed);
        self.result_bytes.fetch_add(bytes, Ordering::Relaxed);
        if matches!(outcome, Outcome::Completed | Outcome::Failed) {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            recent.add(now);
        }
    }

    pub fn ended(&self, outcome: Outcome) -> u64 {
        self.ended[outcome as usize].load(Ordering::Relaxed)
    }

    pub fn result_bytes(&self) -> u64 {
        self.result_bytes.load(Ordering::Relaxed)
    }

    /// The mean number of requests per second that ran to their end in the last minute.
    pub fn per_second(&self, now: Time) -> f64 {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.per_second(now)
    }
}

/// Counts by second, of the last minute.
#[derive(Debug)]
struct RecentRate {
    /// The last second with a count.
    second: u64,
    counts: [u64; RATE_SECONDS],
}

impl Default for RecentRate {
    fn default() -> RecentRate {
        RecentRate {
            second: 0,
            counts: [0; RATE_SECONDS],
        }
    }
}

impl RecentRate {
    fn add(&mut self, now: Time) {
        self.forget_until(now);
        let place = self.place(self.second);
        self.counts[place] += 1;
    }

    fn per_second(&mut self, now: Time) -> f64 {
        self.forget_until(now);
        self.counts.iter().sum::<u64>() as f64 / RATE_SECONDS as f64
    }

    /// Removes counts that are older than a minute.
    fn forget_until(&mut self, now: Time) {
        let second = now.0 / 1_000;
        let passed = second.saturating_sub(self.second);
        for later in 1..=passed.min(RATE_SECONDS as u64) {
            let place = self.place(self.second + later);
            self.counts[place] = 0;
        }
        self.second = self.second.max(second);
    }

    fn place(&self, second: u64) -> usize {
        // Less than a minute.
        (second % RATE_SECONDS as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_last_minute() {
        let counts = BatchCounts::default();
        for nth in 0..120 {
            counts.add(Outcome::Completed, 10, Time(500_000 + nth * 500));
        }
        counts.add(Outcome::Expired, 10, Time(559_500));
        assert_eq!(counts.per_second(Time(559_900)), 2.0);
        assert_eq!(counts.per_second(Time(589_900)), 1.0);
        assert_eq!(counts.per_second(Time(2_000_000)), 0.0);
        assert_eq!(counts.ended(Outcome::Completed), 120);
        assert_eq!(counts.ended(Outcome::Expired), 1);
        assert_eq!(counts.result_bytes(), 1_210);
    }

    #[test]
    fn each_outcome_has_its_own_count() {
        let counts = BatchCounts::default();
        for (nth, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, nth, "{}", outcome.name());
            counts.add(outcome, 0, Time(0));
            assert_eq!(counts.ended(outcome), 1);
        }
    }
}
