//! The one place that reads a clock for the pool: monotonic, anchored at the Unix time of the start,
//! so that leases and history can be compared after a restart.

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
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Clock {
            start: Instant::now(),
            unix_ms: u64::try_from(unix.as_millis()).unwrap_or(0),
        }
    }

    pub fn now(&self) -> Time {
        let elapsed = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        Time(self.unix_ms.saturating_add(elapsed))
    }

    /// The same moment in nanoseconds, for traces.
    pub fn unix_nanos(&self) -> u64 {
        let elapsed = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        (self.unix_ms * 1_000_000).saturating_add(elapsed)
    }

    /// The moment to sleep until. A time that has passed gives one that has passed.
    pub fn instant(&self, at: Time) -> tokio::time::Instant {
        let from_start = Duration::from_millis(at.0.saturating_sub(self.unix_ms));
        tokio::time::Instant::from_std(self.start + from_start)
    }
}
