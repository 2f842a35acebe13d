//! The memory ledger of one node's host for sleeping engines: what they may take in total, what they take, what the
//! system reports as available. It decides nothing.

use crate::types::event::HostReading;
use crate::types::ids::Bytes;

/// ```text
/// room = min( capacity − what stays asleep , available + returning − unseen − reserve )
/// ```
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// What all sleepers together may take.
    pub(crate) capacity: Bytes,
    /// What must stay available to other processes.
    pub(crate) reserve: Bytes,
    /// What the system last reported as available.
    pub(crate) available: Bytes,
    /// What sleepers hold, including those that are falling asleep, waking or ending.
    pub(crate) held: Bytes,
    /// The part of it that is being returned, by sleepers that are being ended.
    pub(crate) returning: Bytes,
    /// Given to sleepers since `available` was read, or not taken by then.
    unseen: Bytes,
}

impl Host {
    /// `falling_asleep`: what was given to engines that have not taken all of it yet.
    pub(crate) fn read(&mut self, reading: &HostReading, falling_asleep: Bytes) {
        self.capacity = reading.capacity;
        self.reserve = reading.reserve;
        self.available = reading.available;
        self.unseen = falling_asleep;
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
            // An earlier reading shows less than there is now.
            self.available = self.available + bytes;
        }
    }

    /// What one more sleeper may take. Memory that is being returned counts: an engine ends sooner than another
    /// falls asleep.
    pub(crate) fn room(&self) -> Bytes {
        let staying = self.held.saturating_sub(self.returning);
        let allowed = self.capacity.saturating_sub(staying);
        allowed.min(self.left().saturating_sub(self.reserve))
    }

    /// How far the available memory is below the reserve (host pressure).
    pub(crate) fn shortage(&self) -> Bytes {
        let over = self
            .held
            .saturating_sub(self.returning)
            .saturating_sub(self.capacity);
        self.reserve.saturating_sub(self.left()).max(over)
    }

    fn left(&self) -> Bytes {
        (self.available + self.returning).saturating_sub(self.unseen)
    }
}
