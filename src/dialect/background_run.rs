//! A run of a response that its client does not wait for: its id and the numbers of its events are fixed before it begins, and it
//! ends once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

use super::ids::new_id;

/// Events of an accepted response before its first run.
pub(crate) const EVENTS_BEFORE: u64 = 2;
/// Distance between the event numbers of two runs.
const EVENTS_OF_RUN: u64 = 1_000_000;

/// Decides whether a response ends with its result, or because it was cancelled or deleted. The first claim counts.
#[derive(Clone, Debug, Default)]
pub struct Settlement(Arc<AtomicBool>);

impl Settlement {
    /// Returns true for the first claim.
    pub fn claim(&self) -> bool {
        !self.0.swap(true, Ordering::AcqRel)
    }

    /// Withdraws a claim whose end could not be stored.
    pub fn withdraw(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// The failure of a run.
#[derive(Clone, Debug)]
pub struct RunFailure {
    /// The error object of the pool or the engine.
    pub error: Value,
    /// The response object, with status `failed`.
    pub response: Value,
}

/// One run of a background response.
#[derive(Debug)]
pub struct BackgroundRun {
    pub id: String,
    pub created_seconds: u64,
    settlement: Settlement,
    runs: u32,
    failure: Mutex<Option<RunFailure>>,
}

impl BackgroundRun {
    /// The run of a new response.
    pub fn new(created_seconds: u64) -> BackgroundRun {
        BackgroundRun::again(new_id("resp"), created_seconds, 0, Settlement::default())
    }

    /// A run after `runs` others.
    pub fn again(
        id: String,
        created_seconds: u64,
        runs: u32,
        settlement: Settlement,
    ) -> BackgroundRun {
        BackgroundRun {
            id,
            created_seconds,
            settlement,
            runs,
            failure: Mutex::default(),
        }
    }

    /// Claims the end of the response for its result.
    pub(crate) fn claim(&self) -> bool {
        self.settlement.claim()
    }

    /// The number of the run's first event.
    pub fn first_event(&self) -> u64 {
        match self.runs {
            0 => EVENTS_BEFORE,
            runs => u64::from(runs) * EVENTS_OF_RUN,
        }
    }

    /// Returns true if `response.created` was sent before the run.
    pub(crate) fn is_announced(&self) -> bool {
        self.runs == 0
    }

    pub(crate) fn set_failure(&self, failure: RunFailure) {
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(failure);
    }

    /// Takes the failure of the run, if it failed after its response had begun.
    pub fn take_failure(&self) -> Option<RunFailure> {
        let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        failure.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_claim_settles_a_response_until_it_is_withdrawn() {
        let settlement = Settlement::default();
        let run = BackgroundRun::again("resp_1".to_owned(), 1, 0, settlement.clone());
        assert!(run.claim());
        assert!(!settlement.claim() && !run.claim());
        settlement.withdraw();
        assert!(settlement.claim());
    }

    #[test]
    fn events_of_a_repeated_run_have_greater_numbers() {
        let first = BackgroundRun::new(1);
        assert!(first.id.starts_with("resp_") && first.is_announced());
        assert_eq!(first.first_event(), 2);
        let second = BackgroundRun::again(first.id, 1, 1, Settlement::default());
        assert!(!second.is_announced());
        assert_eq!(second.first_event(), 1_000_000);
    }
}
