//! A run of a response that its client does not wait for: its id and the numbers of its events are fixed before it begins. The caller
//! takes the result, and stores it.

use std::sync::{Mutex, PoisonError};

use serde_json::Value;

use super::ids::new_id;
use store::StoredResponse;

/// Events of an accepted response before its first run.
pub(crate) const EVENTS_BEFORE: u64 = 2;
/// Distance between the event numbers of runs in processes that do not know the earlier events.
const EVENTS_OF_RUN: u64 = 1_000_000;

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
    /// The number of the run's first event.
    pub first_event: u64,
    end: Mutex<RunOutcome>,
}

#[derive(Debug, Default)]
struct RunOutcome {
    failure: Option<RunFailure>,
    result: Option<StoredResponse>,
}

impl BackgroundRun {
    /// The run of a new response.
    pub fn new(created_seconds: u64) -> BackgroundRun {
        BackgroundRun::again(new_id("resp"), created_seconds, EVENTS_BEFORE)
    }

    /// A run of a response that exists.
    pub fn again(id: String, created_seconds: u64, first_event: u64) -> BackgroundRun {
        BackgroundRun {
            id,
            created_seconds,
            first_event,
            end: Mutex::default(),
        }
    }

    /// The number of the first event in a process that does not know the events of the `runs` before.
    pub fn first_event_after(runs: u32) -> u64 {
        match runs {
            0 => EVENTS_BEFORE,
            runs => u64::from(runs) * EVENTS_OF_RUN,
        }
    }

    /// Returns true if `response.created` was the last event but one before the run.
    pub(crate) fn is_announced(&self) -> bool {
        self.first_event == EVENTS_BEFORE
    }

    fn with<T>(&self, work: impl FnOnce(&mut RunOutcome) -> T) -> T {
        work(&mut self.end.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn set_failure(&self, failure: RunFailure) {
        self.with(|end| end.failure = Some(failure));
    }

    /// Takes the failure of the run, if it failed after its response had begun.
    pub fn take_failure(&self) -> Option<RunFailure> {
        self.with(|end| end.failure.take())
    }

    pub(crate) fn set_result(&self, result: StoredResponse) {
        self.with(|end| end.result = Some(result));
    }

    /// Takes the result of the run, if its response is complete.
    pub fn take_result(&self) -> Option<StoredResponse> {
        self.with(|end| end.result.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_in_another_process_have_greater_event_numbers() {
        let first = BackgroundRun::new(1);
        assert!(first.id.starts_with("resp_") && first.is_announced());
        assert_eq!(first.first_event, BackgroundRun::first_event_after(0));
        let second = BackgroundRun::again(first.id, 1, BackgroundRun::first_event_after(1));
        assert!(!second.is_announced());
        assert_eq!(second.first_event, 1_000_000);
    }
}
