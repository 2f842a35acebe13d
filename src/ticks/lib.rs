//! Pauses of periodic work that end at the same times throughout the process. A dozen tasks that each check something once per
//! second then wake it once per second together, not at a dozen different times. A runtime timer that ends alone costs two or three
//! wakes, because a distant timer is moved closer before it is due.
//!
//! For periodic work only. Deadlines, timeouts and pauses that a request waits for use the runtime's timers.

use std::sync::OnceLock;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

const SHORTEST: Duration = Duration::from_millis(1);
/// Longer periods never end in practice and would exceed what the system's clock can represent.
const LONGEST: Duration = Duration::from_hours(24 * 365);

/// Shorter pauses are exact: work that checks so frequently is waiting for something, such as memory to be freed.
const SHARED_FROM: Duration = Duration::from_secs(1);

/// The origin from which all periods are counted.
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

/// The first time that is a multiple of the period after the epoch and at least half a period after `now`. Work that ends just
/// before such a time still pauses.
fn next_after(now: Instant, period: Duration) -> Instant {
    let period = period.clamp(SHORTEST, LONGEST);
    let passed = now.saturating_duration_since(epoch()) + period / 2;
    let periods = passed.as_nanos().div_ceil(period.as_nanos());
    let nanos = periods.saturating_mul(period.as_nanos());
    let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
    let after = Duration::new(seconds, (nanos % 1_000_000_000) as u32);
    epoch() + after
}

/// Pauses for about `period`: between half and one and a half of it. Exact below a second.
pub async fn pause(period: Duration) {
    if period < SHARED_FROM {
        tokio::time::sleep(period).await
    } else {
        sleep_until(next_after(now(), period)).await
    }
}

/// An interval whose ticks coincide across all intervals of the same period. The first tick comes immediately. Work that takes
/// longer than a period skips ticks; they are not made up for.
pub struct Ticks {
    period: Duration,
    next: Option<Instant>,
}

impl Ticks {
    pub fn every(period: Duration) -> Ticks {
        Ticks { period, next: None }
    }

    /// Waits for the next tick and returns the time it was due. Cancel safe.
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
