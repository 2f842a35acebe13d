//! The time for which requests of a model have waited since its last service. Arithmetic only.
//!
//! This is the rent of the ski-rental argument: a turn ends when it reaches the length of the turn (P3). It counts across requests
//! that gave up, or a model whose clients wait for less time than a turn would never be loaded.

use crate::types::ids::{Span, Time};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rent {
    /// The time with at least one waiting request, up to `until`.
    counted: Span,
    until: Time,
}

impl Rent {
    /// A request that had waited since then left without being served.
    pub fn leaves(&mut self, since: Time, now: Time) {
        let from = since.max(self.until);
        self.counted = self.counted + now.since(from);
        self.until = self.until.max(now);
    }

    /// A request was served.
    pub fn reset(&mut self) {
        self.counted = Span::ZERO;
    }

    /// The time since which requests would have waited without a pause to have waited as long as they have. `oldest` is the arrival
    /// of the oldest waiting request.
    pub fn since(&self, oldest: Time) -> Time {
        let from = oldest.max(self.until);
        Time(from.0.saturating_sub(self.counted.0)).min(oldest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_give_up_together_count_once() {
        let mut rent = Rent::default();
        assert_eq!(rent.since(Time(70)), Time(70));
        rent.leaves(Time(10), Time(30));
        rent.leaves(Time(20), Time(40));
        // Waited from 10 to 40; the next request arrived at 35 and waits since.
        assert_eq!(rent.since(Time(35)), Time(10));
        // No request waited from 40 to 100.
        assert_eq!(rent.since(Time(100)), Time(70));
        rent.reset();
        assert_eq!(rent.since(Time(200)), Time(200));
    }
}
