//! Times that the loop remembers between its turns.

use crate::clock::Clock;
use pool::{Span, Time};

/// Smaller differences between the clocks are drift.
const CLOCK_JUMP_MS: u64 = 1_000;

#[derive(Default)]
pub(crate) struct Timers {
    /// The time of the next turn that the pool has requested.
    wake: Option<Time>,
    /// Milliseconds by which the machine's clock was ahead of the pool's at the last check.
    wall_ahead: i64,
    turned: Time,
}

impl Timers {
    /// The time of the last turn.
    pub fn turned(&self) -> Time {
        self.turned
    }

    /// Begins a turn. Returns the time since the last one.
    pub fn turn(&mut self, now: Time) -> Span {
        let since = now.since(self.turned);
        self.turned = now;
        since
    }

    /// The time of the next turn that the pool has requested.
    pub fn wake(&self) -> Option<Time> {
        self.wake
    }

    pub fn wake_at(&mut self, wake: Option<Time>) {
        self.wake = wake;
    }

    /// After a jump of the machine's clock, returns the milliseconds by which it is ahead.
    pub fn wall_clock_jump(&mut self, clock: &Clock) -> Option<i64> {
        let ahead = clock.wall_ahead();
        let by = ahead.abs_diff(self.wall_ahead);
        if by < CLOCK_JUMP_MS {
            return None;
        }
        let way = if ahead > self.wall_ahead {
            "ahead"
        } else {
            "back"
        };
        tracing::warn!(
            "the machine's clock jumped {way} by {}; keys, tokens, sessions and leases follow it, waits and keep-hot times do not",
            Span(by)
        );
        self.wall_ahead = ahead;
        Some(ahead)
    }
}
