//! Pauses of periodic work that end at the same moments in the whole process. A dozen tasks that each look at something
//! once a second wake it once a second together, and not at a dozen moments; a timer of the runtime that ends alone costs
//! two or three wakes, because a far one is moved nearer before it is due.
//!
//! For periodic work alone. Deadlines, timeouts and pauses that a request waits for use the runtime's timers.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

const SHORTEST: Duration = Duration::from_millis(1);
/// What is longer is as good as never, and would be beyond what the system's clock can tell.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// A shorter pause is exact: what is looked at so often is waited for, such as memory that comes back.
const SHARED_FROM: Duration = Duration::from_secs(1);

/// The moment from which all periods are counted.
static EPOCH: OnceLock<std::time::Instant> = OnceLock::new();

#[expect(
    clippy::disallowed_methods,
    reason = "these timers belong to the edge: nothing is decided by them"
)]
fn epoch() -> Instant {
    Instant::from_std(*EPOCH.get_or_init(std::time::Instant::now))
}

#[expect(
    clippy::disallowed_methods,
    reason = "these timers belong to the edge: nothing is decided by them"
)]
fn now() -> Instant {
    Instant::now()
}

/// The first moment that is a whole number of periods after the epoch, and at least half a period after `now`: work that
/// ends just before such a moment pauses anyway.
fn next_after(now: Instant, period: Duration) -> Instant {
    let period = period.clamp(SHORTEST, LONGEST);
    let passed = now.saturating_duration_since(epoch()) + period / 2;
    let periods = passed.as_nanos().div_ceil(period.as_nanos());
    let nanos = periods.saturating_mul(period.as_nanos());
    let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
    let after = Duration::new(seconds, (nanos % 1_000_000_000) as u32);
    epoch() + after
}

/// Pauses for about `period`: from half of it to one and a half; exactly for it below a second.
pub async fn pause(period: Duration) {
    if period < SHARED_FROM {
        tokio::time::sleep(period).await
    } else {
        sleep_until(next_after(now(), period)).await
    }
}

/// An interval whose ticks come at moments that all intervals of the same period share. The first one comes at once. What
/// takes longer than a period misses ticks, which do not come later.
pub struct Ticks {
    period: Duration,
    next: Option<Instant>,
}

impl Ticks {
    pub fn every(period: Duration) -> Ticks {
        Ticks { period, next: None }
    }

    /// Waits for the next tick and returns when it was due. Nothing is lost when the future is dropped.
    pub async fn tick(&mut self) -> Instant {
        let due = *self.next.get_or_insert_with(now);
        sleep_until(due).await;
        self.next = Some(next_after(now(), self.period));
        due
    }

    /// The next tick is at least half a period from now.
    pub fn reset(&mut self) {
        self.next = Some(next_after(now(), self.period));
    }
}

#[cfg(test)]
mod tests;
