//! The schedule for removing left-over applications from a Ray, and the state known so far. The pauses between attempts grow, and
//! attempts end only when no application is left. Pure: the time is an argument.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

const PAUSE: Duration = Duration::from_secs(2);
/// Limit of the pause: a left-over application holds GPUs, and an attempt costs Ray some milliseconds.
const PAUSE_MAX: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct CleanupSchedule {
    /// The next attempt; `None` if the last one found nothing left.
    due: Option<Instant>,
    pause: Duration,
    /// An earlier write may still create an application until this time.
    not_before: Option<Instant>,
    /// Applications that may hold GPUs without a replica.
    left: BTreeSet<String>,
    /// The error of the last attempt.
    why: String,
}

impl CleanupSchedule {
    /// Schedules an attempt, unless an earlier one is due.
    pub fn schedule(&mut self, at: Instant) {
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
        self.pause = PAUSE;
    }

    /// Requires an attempt after this time before the Ray counts as clean.
    pub fn expect_until(&mut self, end: Instant) {
        self.not_before = self.not_before.max(Some(end));
        self.schedule(end);
    }

    /// Records an application that may exist and for whose end no replica waits any more.
    pub fn leave(&mut self, name: &str, now: Instant) {
        self.left.insert(name.to_owned());
        self.schedule(now);
    }

    pub fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    pub fn is_clean(&self) -> bool {
        self.due.is_none()
    }

    pub fn left(&self) -> &BTreeSet<String> {
        &self.left
    }

    /// Records the result of an attempt that began at `began`. Returns the applications that have gone since the last one.
    pub fn found(&mut self, left: BTreeSet<String>, began: Instant) -> BTreeSet<String> {
        let gone = self.left.difference(&left).cloned().collect();
        if !self.why.is_empty() {
            // Ray responds again.
            self.why.clear();
            self.pause = PAUSE;
        }
        self.not_before = self.not_before.filter(|end| *end > began);
        if left.is_empty() {
            self.due = self.not_before
        } else {
            self.again(began)
        }
        self.left = left;
        gone
    }

    /// Records a failed attempt, after which the state is unknown. Returns true if the reason is new.
    pub fn failed(&mut self, why: &str, now: Instant) -> bool {
        self.again(now);
        let is_new = self.why != why;
        why.clone_into(&mut self.why);
        is_new
    }

    /// Stops the attempts, because no application can be left.
    pub fn turn_off(&mut self) {
        *self = CleanupSchedule::default();
    }

    fn again(&mut self, now: Instant) {
        self.pause = self.pause.max(PAUSE);
        self.due = Some(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::super::uncertain_writes::now;
    use super::*;

    fn names(all: &[&str]) -> BTreeSet<String> {
        all.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_failing_removal_is_retried_forever_at_growing_intervals() {
        let mut at = now();
        let mut cleaning = CleanupSchedule::default();
        assert!(cleaning.is_clean());
        cleaning.leave("r1", at);
        let mut pauses = Vec::new();
        for _ in 0..8 {
            assert!(cleaning.is_due(at));
            cleaning.failed("no response", at);
            let mut pause = 0;
            while !cleaning.is_due(at) {
                at += Duration::from_secs(1);
                pause += 1;
            }
            pauses.push(pause);
        }
        assert_eq!(pauses, [2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(*cleaning.left(), names(&["r1"]), "it may hold GPUs");
        assert_eq!(cleaning.found(names(&[]), at), names(&["r1"]));
        assert!(cleaning.is_clean());
    }

    #[test]
    fn a_failure_reason_is_new_only_once() {
        let mut cleaning = CleanupSchedule::default();
        assert!(cleaning.failed("no response", now()));
        assert!(!cleaning.failed("no response", now()));
        assert!(cleaning.failed("refused", now()));
    }

    #[test]
    fn a_lookup_during_uncertainty_does_not_prove_that_everything_was_removed() {
        let start = now();
        let end = start + Duration::from_secs(75);
        let mut cleaning = CleanupSchedule::default();
        cleaning.expect_until(end);
        cleaning.leave("r1", start);
        assert!(cleaning.is_due(start));
        cleaning.found(names(&["r1"]), start);
        cleaning.found(names(&[]), start + Duration::from_secs(4));
        assert!(!cleaning.is_clean());
        assert!(!cleaning.is_due(start + Duration::from_secs(74)));
        assert!(cleaning.is_due(end));
        cleaning.found(names(&[]), end);
        assert!(cleaning.is_clean());
    }
}
