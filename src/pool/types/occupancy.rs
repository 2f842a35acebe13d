//! Measures how long requests occupy their seats from the gates' counts: the time that seats were taken, divided by the number of
//! requests that left them (Little's law). Recent requests count most.

use crate::types::ids::{Span, Time};

/// The number of requests after which older ones count half.
const REQUESTS_UNTIL_HALVED: u64 = 32;
/// A busy replica's requests are counted once this many have ended.
const REQUESTS_AT_ONCE: u64 = 8;

/// The seats of a replica since they were last counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seats {
    /// The time up to which `seat_ms` is counted.
    until: Time,
    seat_ms: u64,
    /// The number of requests that had left at the last count.
    left: u64,
}

impl Seats {
    /// Counts `in_flight` taken seats up to now.
    pub fn taken(&mut self, in_flight: u32, now: Time) {
        let passed = now.since(self.until).0;
        self.until = self.until.max(now);
        self.seat_ms = self
            .seat_ms
            .saturating_add(passed.saturating_mul(u64::from(in_flight)));
    }

    /// Returns the count once it is meaningful: the replica is idle, or several requests have ended. `left` is the total number of
    /// requests that have ever left.
    pub fn counted(&mut self, left: u64, is_idle: bool) -> Option<(u64, u64)> {
        let ended = left.saturating_sub(self.left);
        let enough = ended >= REQUESTS_AT_ONCE || (is_idle && ended > 0);
        enough.then(|| {
            self.left = left;
            (core::mem::take(&mut self.seat_ms), ended)
        })
    }
}

/// The mean duration of a model's requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RequestTimes {
    seat_ms: u64,
    requests: u64,
}

impl RequestTimes {
    pub fn add(&mut self, seat_ms: u64, requests: u64) {
        self.seat_ms = self.seat_ms.saturating_add(seat_ms);
        self.requests = self.requests.saturating_add(requests);
        while self.requests > REQUESTS_UNTIL_HALVED {
            self.seat_ms /= 2;
            self.requests /= 2;
        }
    }

    /// `None` until a request has ended.
    pub fn mean(&self) -> Option<Span> {
        self.seat_ms.checked_div(self.requests).map(Span)
    }
}
