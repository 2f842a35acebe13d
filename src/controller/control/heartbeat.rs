//! Signs of life of the loop: a heartbeat for a supervisor that restarts a hanging program, and the cleanup after a panic of the
//! loop.

use std::fmt;
use std::sync::Arc;

use engine::Guardians;
use pool::{Span, Time};

/// Sends heartbeats to the supervisor. Called by the loop itself, so a hanging loop is silent; before the loop exists, the start
/// calls it.
pub struct Heartbeat {
    every: Span,
    last: Time,
    tell: Box<dyn Fn() + Send>,
}

impl Heartbeat {
    pub fn new(every: Span, tell: impl Fn() + Send + 'static) -> Heartbeat {
        Heartbeat {
            every,
            last: Time(0),
            tell: Box::new(tell),
        }
    }

    /// Time of the next heartbeat.
    pub fn next(&self) -> Time {
        self.last + self.every
    }

    /// Sends a heartbeat if one is due.
    pub fn beat(&mut self, now: Time) {
        if now >= self.next() {
            self.last = now;
            (self.tell)();
        }
    }
}

impl fmt::Debug for Heartbeat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heartbeat")
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

/// Dropped first when the loop panics: leaves its engines to the next controller (D2).
pub(crate) struct OnPanic(Arc<Guardians>);

impl OnPanic {
    pub fn new(guardians: &Arc<Guardians>) -> OnPanic {
        OnPanic(Arc::clone(guardians))
    }
}

impl Drop for OnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.crashed();
        }
    }
}
