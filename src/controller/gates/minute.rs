//! The minutes that usage is counted by.

use pool::Time;

const MINUTE_MS: u64 = 60_000;

/// The minute of the Unix clock that is being counted. It is stored when it ends, which assigns waiting requests to the minute in
/// which their load ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Minute(u64);

impl Minute {
    pub fn from_time(at: Time) -> Minute {
        Minute(at.0 / MINUTE_MS)
    }

    /// Minutes since 1970.
    pub fn number(self) -> u64 {
        self.0
    }

    pub fn end(self) -> Time {
        Time((self.0 + 1).saturating_mul(MINUTE_MS))
    }

    /// Returns the minute that has ended and starts counting the next one, or `None` within a minute.
    pub fn ended(&mut self, now: Time) -> Option<Minute> {
        (now >= self.end()).then(|| std::mem::replace(self, Minute::from_time(now)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_recorded_under_the_wall_clock_minute_that_ends() {
        let at = |minute: u64, second: u64| Time(minute * MINUTE_MS + second * 1_000);
        // The controller started in the middle of a minute, and a load ends soon after.
        let mut minute = Minute::from_time(at(7, 40));
        assert_eq!(minute.ended(at(7, 50)), None);
        assert_eq!(minute.end(), at(8, 0));
        let ended = minute.ended(Time(at(8, 0).0 + 3));
        assert_eq!(ended.map(Minute::number), Some(7));
        assert_eq!(minute.ended(at(8, 59)), None);
        assert_eq!(minute.end(), at(9, 0));
        // The machine was suspended in the meantime.
        let ended = minute.ended(at(20, 5));
        assert_eq!(ended.map(Minute::number), Some(8));
        assert_eq!(minute.end(), at(21, 0));
    }
}
