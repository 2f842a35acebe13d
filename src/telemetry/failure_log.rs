//! The pace of log lines about a collector that does not accept data: at most one a minute, and a line when it accepts again.

use std::time::Duration;

const LOG_EVERY: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct FailureLog {
    /// True after a line about a failure, until a line about its end.
    is_failing: bool,
    /// The time until which no further line is written.
    silent_until: Option<tokio::time::Instant>,
}

impl FailureLog {
    pub fn is_failing(&self) -> bool {
        self.is_failing
    }

    /// Returns true if a line about a failure is due, and begins the pause after it.
    pub fn takes_line(&mut self) -> bool {
        #[expect(
            clippy::disallowed_methods,
            reason = "lines of the log are paced in real time, and nothing is decided by it"
        )]
        let now = tokio::time::Instant::now();
        if self.silent_until.is_some_and(|until| now < until) {
            return false;
        }
        self.silent_until = Some(now + LOG_EVERY);
        self.is_failing = true;
        true
    }

    /// Returns true if the failure had a line that is now out of date.
    pub fn is_over(&mut self) -> bool {
        std::mem::take(&mut self.is_failing)
    }
}
