//! The ledger of a node's host memory: the limit for all sleepers, the bytes they hold, and the bytes that the system reports as
//! available to them and to loads that keep a part of their model there. Makes no choices.

use crate::types::event::{HostReading, most_of_host};
use crate::types::ids::{Bytes, Span, Time};

/// Readings show a load's part of the host after this time at the latest.
const SEEN_AFTER: Span = Span::from_secs(3);

/// ```text
/// room = min( capacity − what stays asleep , available + returning − unseen − reserve )
/// ```
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// The maximum for all sleepers together.
    pub(crate) capacity: Bytes,
    /// The memory that must stay available to other processes.
    pub(crate) reserve: Bytes,
    /// The available memory that the system last reported.
    pub(crate) available: Bytes,
    /// The bytes held by sleepers, including sleepers that are falling asleep, waking or ending.
    pub(crate) held: Bytes,
    /// The part of `held` that is being returned by sleepers that are being ended.
    pub(crate) returning: Bytes,
    /// Bytes given to sleepers that `available` does not reflect yet.
    unseen: Bytes,
    /// The system's memory; zero if it is unknown.
    pub(crate) total: Bytes,
    /// The time of the last reading.
    pub(crate) read_at: Time,
}

impl Host {
    /// `falling_asleep` is the memory given to engines that have not taken all of it yet.
    pub(crate) fn read(&mut self, reading: &HostReading, falling_asleep: Bytes, now: Time) {
        self.capacity = reading.capacity;
        self.reserve = reading.reserve;
        self.available = reading.available;
        self.unseen = falling_asleep;
        self.total = reading.total;
        self.read_at = now;
    }

    pub(crate) fn give(&mut self, bytes: Bytes) {
        self.held = self.held + bytes;
        self.unseen = self.unseen + bytes;
    }

    pub(crate) fn starts_returning(&mut self, bytes: Bytes) {
        self.returning = self.returning + bytes;
    }

    pub(crate) fn take_back(&mut self, bytes: Bytes, was_returning: bool) {
        self.held = Bytes(self.held.0 - bytes.0);
        if was_returning {
            self.returning = Bytes(self.returning.0 - bytes.0);
            // An earlier reading shows less than is available now.
            self.available = self.available + bytes;
        }
    }

    /// The bytes that another sleeper may take. Memory that is being returned counts, because an engine ends faster than another
    /// falls asleep.
    pub(crate) fn room(&self) -> Bytes {
        let staying = self.held.saturating_sub(self.returning);
        let allowed = self.capacity.saturating_sub(staying);
        allowed.min(self.left().saturating_sub(self.reserve))
    }

    /// The bytes by which the available memory is below the reserve, or sleepers exceed their maximum (host pressure).
    pub(crate) fn shortage(&self) -> Bytes {
        let over = self
            .held
            .saturating_sub(self.returning)
            .saturating_sub(self.capacity);
        self.reserve.saturating_sub(self.left()).max(over)
    }

    /// The bytes that remain of `returned` and the available memory after the reserve and what is promised to sleepers and loads;
    /// or the bytes that are missing. Returned memory covers a deficit first.
    pub(crate) fn balance(&self, returned: Bytes, promised: Bytes) -> Result<Bytes, Bytes> {
        let has = self.available + returned;
        let owes = self.reserve + self.unseen + promised;
        if has >= owes {
            Ok(has.saturating_sub(owes))
        } else {
            Err(owes.saturating_sub(has))
        }
    }

    /// The memory that the pool can have at most. `None` if the machine's memory is unknown.
    pub(crate) fn most(&self) -> Option<Bytes> {
        most_of_host(self.total, self.reserve)
    }

    /// Returns true if the last reading shows what a replica launched at this time takes.
    pub(crate) fn shows(&self, launched: Time) -> bool {
        launched + SEEN_AFTER <= self.read_at
    }

    pub(crate) fn left(&self) -> Bytes {
        (self.available + self.returning).saturating_sub(self.unseen)
    }
}
