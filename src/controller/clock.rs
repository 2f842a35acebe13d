//! The only place that reads a clock for the pool. Durations use a monotonic clock anchored at the Unix time of the start;
//! deadlines that people set (of keys, tokens, sessions and leases) use the machine's clock, which may jump.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pool::Time;

#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    unix_ms: u64,
}

impl Clock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the clock"
    )]
    pub fn start() -> Clock {
        Clock {
            start: Instant::now(),
            unix_ms: unix_ms(),
        }
    }

    /// The machine's current time, for deadlines that people set.
    pub fn wall(&self) -> Time {
        Time(unix_ms())
    }

    /// Milliseconds by which the machine's clock is ahead of `now`; 0 until it jumps.
    pub fn wall_ahead(&self) -> i64 {
        let (wall, now) = (unix_ms(), self.now().0);
        i64::try_from(i128::from(wall) - i128::from(now)).unwrap_or(0)
    }

    pub fn now(&self) -> Time {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        Time(self.unix_ms.saturating_add(elapsed))
    }

    /// The current time in nanoseconds, for traces.
    pub fn unix_nanos(&self) -> u64 {
        let elapsed = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        (self.unix_ms * 1_000_000).saturating_add(elapsed)
    }

    /// The instant to sleep until. A past time gives a past instant.
    pub fn instant(&self, at: Time) -> tokio::time::Instant {
        let from_start = Duration::from_millis(at.0.saturating_sub(self.unix_ms));
        tokio::time::Instant::from_std(self.start + from_start)
    }
}

fn unix_ms() -> u64 {
    let unix = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(unix.unwrap_or_default().as_millis()).unwrap_or(0)
}
