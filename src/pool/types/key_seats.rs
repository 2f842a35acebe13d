//! The seats that the requests of each key take: what a gate counts, and the key that a load is for.

use crate::types::ids::{KeyId, ReplicaId, Time};
use crate::types::tokens::{ServiceClass, Tokens};

/// The seats of a key on a replica for requests of one class, as its gate counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySeats {
    pub key: KeyId,
    pub class: ServiceClass,
    /// Requests that have a seat.
    pub in_flight: u32,
    /// The sum of the times at which they took it, in milliseconds.
    pub entered_sum: u64,
    /// The seat-milliseconds of the requests that have ended since the last reading.
    pub ended_ms: u64,
    /// The tokens counted since the last reading, of requests inside and of ended ones.
    pub served: Tokens,
    /// The further tokens that the requests inside are expected to take. 0 once a request has taken more than expected.
    pub expected: Tokens,
    pub token_time: TokenTime,
}

/// The tokens of requests times the time of their seats, for the account of device time. A request counts with all of its tokens
/// for the time since it took its seat.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenTime {
    /// The tokens of the requests inside: taken, and expected.
    tokens: u64,
    /// The sum of these tokens times the milliseconds at which their requests took their seats.
    entered_sum: u128,
    /// The token-milliseconds of the requests that have ended since the last reading.
    pub ended: u128,
}

impl TokenTime {
    /// The tokens of a request that entered at this time change from `before` to `after`.
    pub fn changes(&mut self, entered: Time, before: u64, after: u64) {
        let at = |tokens: u64| u128::from(tokens) * u128::from(entered.0);
        self.tokens = self.tokens.saturating_sub(before).saturating_add(after);
        let without = self.entered_sum.saturating_sub(at(before));
        self.entered_sum = without + at(after);
    }

    /// A request with these tokens leaves.
    pub fn leaves(&mut self, entered: Time, now: Time, tokens: u64) {
        self.changes(entered, tokens, 0);
        self.ended += u128::from(tokens) * u128::from(now.since(entered).0);
    }

    /// The token-milliseconds so far of the requests inside.
    pub fn inside(&self, now: Time) -> u128 {
        let all = u128::from(self.tokens) * u128::from(now.0);
        all.saturating_sub(self.entered_sum)
    }
}

impl KeySeats {
    pub fn new(key: KeyId) -> KeySeats {
        KeySeats::with_class(key, ServiceClass::Default)
    }

    pub fn with_class(key: KeyId, class: ServiceClass) -> KeySeats {
        KeySeats {
            key,
            class,
            in_flight: 0,
            entered_sum: 0,
            ended_ms: 0,
            served: Tokens::ZERO,
            expected: Tokens::ZERO,
            token_time: TokenTime::default(),
        }
    }

    pub fn enters(&mut self, now: Time) {
        self.in_flight += 1;
        self.entered_sum = self.entered_sum.wrapping_add(now.0);
    }

    pub fn leaves(&mut self, entered: Time, now: Time) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.entered_sum = self.entered_sum.wrapping_sub(entered.0);
        self.ended_ms += now.since(entered).0;
    }

    /// The seat-milliseconds so far of the requests inside.
    pub fn inside_ms(&self, now: Time) -> u64 {
        let all = now.0.wrapping_mul(u64::from(self.in_flight));
        let inside = all.wrapping_sub(self.entered_sum);
        // A clock that was set back must not look like ages of service.
        if inside > i64::MAX as u64 { 0 } else { inside }
    }
}

/// The seats of all keys on a replica. Keys without seats whose requests have ended since the last reading are included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaKeys {
    pub replica: ReplicaId,
    pub keys: alloc::vec::Vec<KeySeats>,
}

/// The least served of the keys that wait for a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeastServed {
    pub key: KeyId,
    /// Keys with the same home are siblings in the tree of groups, so their levels compare.
    pub home: usize,
    pub level: u64,
}
