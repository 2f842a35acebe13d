//! A bucket that leaks: what was poured in runs out at a steady rate. It may be overfull, because what an
//! answer takes is only known when it ends; then nothing more goes in until enough has run out.

use pool::{Span, Time};

const MINUTE_MILLISECONDS: f64 = 60_000.0;

/// How full it is, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Level {
    full: f64,
    at: Time,
}

impl Level {
    /// Lets run out what has run out since.
    pub fn run(&mut self, now: Time, per_minute: u64) {
        let gone = now.since(self.at).0 as f64 * per_minute as f64 / MINUTE_MILLISECONDS;
        self.full = (self.full - gone).max(0.0);
        self.at = now;
    }

    /// Whether anything more goes in now; otherwise when.
    pub fn room(&self, per_minute: u64) -> Result<(), Span> {
        let over = self.full - per_minute as f64;
        match over < 0.0 {
            true => Ok(()),
            // A moment more than exactly full.
            false => Err(time_of(over + 1.0, per_minute)),
        }
    }

    pub fn pour(&mut self, tokens: f64) {
        self.full = (self.full + tokens).max(0.0);
    }

    pub fn left(&self, per_minute: u64) -> u64 {
        (per_minute as f64 - self.full).max(0.0) as u64
    }

    /// Until it is empty.
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
    fn what_is_poured_in_runs_out_within_a_minute_and_debts_are_waited_for() {
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
