//! A leaky bucket. It may be overfull, because the tokens of a response are only known when it ends. While it is overfull, nothing
//! is admitted.

use pool::{Span, Time};

const MINUTE_MILLISECONDS: f64 = 60_000.0;

/// The fill level, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Level {
    full: f64,
    at: Time,
}

impl Level {
    /// Removes what has leaked since the last call.
    pub fn run(&mut self, now: Time, per_minute: u64) {
        let gone = now.since(self.at).0 as f64 * per_minute as f64 / MINUTE_MILLISECONDS;
        self.full = (self.full - gone).max(0.0);
        self.at = now;
    }

    /// Returns the waiting time as an error if nothing can be admitted now.
    pub fn room(&self, per_minute: u64) -> Result<(), Span> {
        let over = self.full - per_minute as f64;
        if over < 0.0 {
            Ok(())
        } else {
            // Slightly more than the time until it is exactly full.
            Err(time_of(over + 1.0, per_minute))
        }
    }

    pub fn pour(&mut self, tokens: f64) {
        self.full = (self.full + tokens).max(0.0);
    }

    pub fn left(&self, per_minute: u64) -> u64 {
        (per_minute as f64 - self.full).max(0.0) as u64
    }

    /// Time until it is empty.
    pub fn empty_in(&self, per_minute: u64) -> Span {
        time_of(self.full, per_minute)
    }
}

fn time_of(tokens: f64, per_minute: u64) -> Span {
    Span((tokens * MINUTE_MILLISECONDS / per_minute as f64).ceil() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_bucket_drains_within_a_minute_and_an_overdraft_delays_requests() {
        let mut level = Level::default();
        level.run(Time(1_000), 60);
        assert_eq!(level.room(60), Ok(()));
        level.pour(90.0);
        assert_eq!(level.room(60), Err(Span::from_secs(31)));
        assert_eq!(
            (level.left(60), level.empty_in(60)),
            (0, Span::from_secs(90))
        );
        level.run(Time(32_000), 60);
        assert_eq!((level.room(60), level.left(60)), (Ok(()), 1));
        level.run(Time(200_000), 60);
        assert_eq!(level.left(60), 60);
    }
}
