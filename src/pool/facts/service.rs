//! The state of the service as a unit: day or night, whether it shuts down, and the machine's clock. Makes no choices.

use crate::types::ids::Time;

#[derive(Clone, Debug, Default)]
pub(crate) struct Service {
    /// The lead of the machine's clock over the pool's, in milliseconds.
    wall_ahead: i64,
    /// Between the evening cleanup and the morning (E2).
    night: bool,
    closing: bool,
    finished: bool,
}

impl Service {
    pub fn new(night: bool) -> Service {
        Service {
            night,
            ..Service::default()
        }
    }

    pub fn is_night(&self) -> bool {
        self.night
    }

    /// Returns true once the service shuts down.
    pub fn is_closing(&self) -> bool {
        self.closing
    }

    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// The time of the machine's clock, by which leases end.
    pub fn wall(&self, now: Time) -> Time {
        Time(now.0.saturating_add_signed(self.wall_ahead))
    }

    /// Converts a time of the machine's clock to the pool's clock.
    pub fn when_wall_shows(&self, at: Time) -> Time {
        Time(at.0.saturating_add_signed(self.wall_ahead.saturating_neg()))
    }

    pub fn set_wall_ahead(&mut self, ahead: i64) {
        self.wall_ahead = ahead;
    }

    pub fn set_night(&mut self, night: bool) {
        self.night = night;
    }

    pub fn close(&mut self) {
        self.closing = true;
    }

    pub fn finish(&mut self) {
        self.finished = true;
    }
}
