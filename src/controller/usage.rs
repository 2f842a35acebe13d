//! What is counted and remembered of models between two writes to the store.

use std::collections::BTreeMap;

use pool::{ModelId, Time};
use store::Measurements;

const MINUTE_MS: u64 = 60_000;

/// The minute of the Unix clock that is being counted. It is kept when it ends: what has waited is then in the minute in
/// which its load has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Minute(u64);

impl Minute {
    pub fn of(at: Time) -> Minute {
        Minute(at.0 / MINUTE_MS)
    }

    /// Since 1970.
    pub fn number(self) -> u64 {
        self.0
    }

    pub fn end(self) -> Time {
        Time((self.0 + 1).saturating_mul(MINUTE_MS))
    }

    /// The minute that has ended, once it has; from then on the next one is counted.
    pub fn ended(&mut self, now: Time) -> Option<Minute> {
        (now >= self.end()).then(|| std::mem::replace(self, Minute::of(now)))
    }
}

#[derive(Default)]
pub(super) struct Usage {
    pub measurements: Measurements,
    /// Remembered demand as the store has it.
    pub remembered: BTreeMap<ModelId, Vec<u64>>,
    /// Seats taken times how long, since it was last kept.
    pub busy_ms: BTreeMap<ModelId, u64>,
    /// Requests that had been seated when it was last kept.
    pub seated: BTreeMap<ModelId, u64>,
    /// The same for those that waited, with how long in milliseconds.
    pub waited: BTreeMap<ModelId, (u64, u64)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_is_kept_with_the_minute_of_the_clock_that_ends() {
        let at = |minute: u64, second: u64| Time(minute * MINUTE_MS + second * 1_000);
        // The controller has started in the middle of a minute, and a load ends soon after.
        let mut minute = Minute::of(at(7, 40));
        assert_eq!(minute.ended(at(7, 50)), None);
        assert_eq!(minute.end(), at(8, 0));
        let ended = minute.ended(Time(at(8, 0).0 + 3));
        assert_eq!(ended.map(Minute::number), Some(7));
        assert_eq!(minute.ended(at(8, 59)), None);
        assert_eq!(minute.end(), at(9, 0));
        // The machine has slept meanwhile.
        let ended = minute.ended(at(20, 5));
        assert_eq!(ended.map(Minute::number), Some(8));
        assert_eq!(minute.end(), at(21, 0));
    }
}
