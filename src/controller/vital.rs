//! Signs of life of the loop: a heartbeat for a supervisor that restarts a program that hangs, and the cleanup when the
//! loop panics.

use std::fmt;
use std::sync::Arc;

use engine::Guardians;
use pool::{Span, Time};

/// The loop itself beats it, so that a loop that hangs is silent; before there is a loop, what starts it does.
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

    /// When the next beat is due.
    pub fn next(&self) -> Time {
        self.last + self.every
    }

    /// Tells, if it is time to.
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

/// Dropped first when the loop panics: its engines stay for the next controller then (D2).
pub(super) struct OnPanic(Arc<Guardians>);

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
