//! Per-engine counters that requests update as they pass: how many wait for a first token or for the next one,
//! whether tokens arrived recently, and whether requests fail. The liveness watch reads them; nothing is judged
//! here. A streamed piece usually costs one atomic load.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use tokio::sync::Notify;

/// Failures of requests in a row after which the engine's health is probed at once, without waiting for the
/// next heartbeat. Envoy's default for ejecting a host is the same (outlier detection, `consecutive_5xx`).
const FAILURES_IN_A_ROW: u32 = 5;

/// The counters of all requests inside one engine.
#[derive(Debug, Default)]
pub struct ActivityMeter {
    /// Requests that wait for their first token.
    asking: AtomicU32,
    /// Requests that have received tokens and wait for the next.
    answering: AtomicU32,
    /// A token arrived since the last look.
    spoke: AtomicBool,
    /// A request has been answered at least once.
    worked: AtomicBool,
    failures: AtomicU32,
    /// The engine sleeps, so its silence means nothing.
    resting: AtomicBool,
    alarm: Notify,
}

/// What one look at the counters returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ActivitySample {
    pub asking: u32,
    pub answering: u32,
    /// Since the last look.
    pub spoke: bool,
}

/// How far one request has come. Only one task writes it at a time; it is atomic because a task moves between
/// threads.
#[derive(Debug)]
pub struct Beat(AtomicU8);

/// The request was sent; no answer yet.
const PENDING: u8 = 0;
/// The first piece arrived. Many engines send an empty chunk with the role before they compute anything, so
/// this is not yet a token.
const FIRST: u8 = 1;
const ANSWERING: u8 = 2;
/// Added while the client does not read: then the engine owes nothing.
const HELD: u8 = 4;

impl ActivityMeter {
    /// Counts a new request. Return the beat with [`ActivityMeter::leave`].
    pub fn enter(&self) -> Beat {
        self.asking.fetch_add(1, Ordering::Relaxed);
        Beat(AtomicU8::new(PENDING))
    }

    /// A piece of the answer arrived. Comments that keep a connection open do not count.
    pub fn token(&self, beat: &Beat) {
        if !self.spoke.load(Ordering::Relaxed) {
            self.spoke.store(true, Ordering::Relaxed);
        }
        match beat.0.load(Ordering::Relaxed) {
            PENDING => beat.0.store(FIRST, Ordering::Relaxed),
            FIRST => {
                beat.0.store(ANSWERING, Ordering::Relaxed);
                self.asking.fetch_sub(1, Ordering::Relaxed);
                self.answering.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// The client does not read; until [`ActivityMeter::resume`] the request does not count as waiting for the
    /// engine.
    pub fn hold(&self, beat: &Beat) {
        let state = beat.0.load(Ordering::Relaxed);
        if state & HELD == 0 {
            self.waiting(state).fetch_sub(1, Ordering::Relaxed);
            beat.0.store(state | HELD, Ordering::Relaxed);
        }
    }

    pub fn resume(&self, beat: &Beat) {
        let state = beat.0.load(Ordering::Relaxed);
        if state & HELD != 0 {
            self.waiting(state & !HELD).fetch_add(1, Ordering::Relaxed);
            beat.0.store(state & !HELD, Ordering::Relaxed);
        }
    }

    pub fn leave(&self, beat: &Beat) {
        let state = beat.0.load(Ordering::Relaxed);
        if state & HELD == 0 {
            self.waiting(state).fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn waiting(&self, state: u8) -> &AtomicU32 {
        match state {
            ANSWERING => &self.answering,
            _ => &self.asking,
        }
    }

    /// The engine answered a request with something other than a failure of its own.
    pub fn worked(&self) {
        if !self.worked.load(Ordering::Relaxed) {
            self.worked.store(true, Ordering::Relaxed);
        }
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// The engine could not be reached, closed the connection, or answered with 5xx. Several failures in a row
    /// trigger an immediate health probe.
    pub fn failed(&self) {
        let before = self.failures.fetch_add(1, Ordering::Relaxed);
        if before + 1 >= FAILURES_IN_A_ROW {
            self.failures.store(0, Ordering::Relaxed);
            self.alarm.notify_one();
        }
    }

    /// While the engine rests, no probe is sent and its silence means nothing.
    pub fn rest(&self, resting: bool) {
        self.resting.store(resting, Ordering::Relaxed);
    }

    pub(super) fn is_resting(&self) -> bool {
        self.resting.load(Ordering::Relaxed)
    }

    pub(super) fn has_worked(&self) -> bool {
        self.worked.load(Ordering::Relaxed)
    }

    /// Returns when several requests in a row have failed.
    pub(super) async fn alarm(&self) {
        self.alarm.notified().await;
    }

    pub(super) fn look(&self) -> ActivitySample {
        ActivitySample {
            asking: self.asking.load(Ordering::Relaxed),
            answering: self.answering.load(Ordering::Relaxed),
            spoke: self.spoke.swap(false, Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pulse: &ActivityMeter) -> (u32, u32, bool) {
        let seen = pulse.look();
        (seen.asking, seen.answering, seen.spoke)
    }

    #[test]
    fn a_request_asks_then_answers_then_leaves_nothing_behind() {
        let pulse = ActivityMeter::default();
        let beat = pulse.enter();
        assert_eq!(counts(&pulse), (1, 0, false));
        pulse.token(&beat);
        assert_eq!(counts(&pulse), (1, 0, true), "a role is no token yet");
        pulse.token(&beat);
        assert_eq!(counts(&pulse), (0, 1, true));
        assert_eq!(counts(&pulse), (0, 1, false), "nothing since");
        pulse.leave(&beat);
        assert_eq!(counts(&pulse), (0, 0, false));
    }

    #[test]
    fn while_a_client_does_not_read_nobody_waits_for_the_engine() {
        let pulse = ActivityMeter::default();
        let beat = pulse.enter();
        pulse.token(&beat);
        pulse.token(&beat);
        pulse.hold(&beat);
        pulse.hold(&beat);
        assert_eq!(counts(&pulse), (0, 0, true));
        pulse.resume(&beat);
        pulse.resume(&beat);
        assert_eq!(counts(&pulse), (0, 1, false));
        pulse.hold(&beat);
        pulse.leave(&beat);
        assert_eq!(counts(&pulse), (0, 0, false));
    }

    #[tokio::test]
    async fn five_failures_in_a_row_raise_the_alarm_and_fewer_do_not() {
        let pulse = ActivityMeter::default();
        for _ in 0..3 {
            (0..4).for_each(|_| pulse.failed());
            pulse.worked();
        }
        let quiet = std::time::Duration::from_millis(1);
        assert!(tokio::time::timeout(quiet, pulse.alarm()).await.is_err());
        (0..5).for_each(|_| pulse.failed());
        pulse.alarm().await;
    }
}
