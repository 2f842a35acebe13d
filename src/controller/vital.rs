//! Signs of life of the loop: a heartbeat for whoever restarts a program that hangs, and what is
//! left behind when the loop panics. It decides nothing.

use std::fmt;
use std::sync::Arc;

use engine::Guardians;
use pool::{Span, Time};

/// Told for as long as the loop turns, and by the loop itself: one that hangs is silent.
pub struct Heartbeat {
    every: Span,
    told: Time,
    tell: Box<dyn Fn() + Send>,
}

impl Heartbeat {
    pub fn new(every: Span, tell: impl Fn() + Send + 'static) -> Heartbeat {
        Heartbeat {
            every,
            told: Time(0),
            tell: Box::new(tell),
        }
    }

    pub(super) fn next(&self) -> Time {
        self.told + self.every
    }

    pub(super) fn beat(&mut self, now: Time) {
        if now >= self.next() {
            self.told = now;
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
