//! Counts the requests of a model by whether their first token came within the target of the model's priority (`pool.targets`).
//! Requests count without the loop, which collects the counts for the history.

use std::sync::atomic::{AtomicU64, Ordering};

use pool::Span;

/// Counts since the start of the service.
#[derive(Debug, Default)]
pub struct FirstTokens {
    in_time: AtomicU64,
    late: AtomicU64,
}

impl FirstTokens {
    /// Counts a request with a target. `took` is the time to its first token; `None` if it was refused after it had waited.
    pub fn count(&self, took: Option<Span>, target: Span) {
        let is_in_time = took.is_some_and(|took| took <= target);
        let counter = if is_in_time {
            &self.in_time
        } else {
            &self.late
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// The numbers of requests in time, and of the others.
    pub fn counts(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.in_time), read(&self.late))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_late_after_its_target_or_without_a_token() {
        let tokens = FirstTokens::default();
        tokens.count(Some(Span(10)), Span(10));
        tokens.count(Some(Span(11)), Span(10));
        tokens.count(None, Span(10));
        assert_eq!(tokens.counts(), (1, 2));
    }
}
