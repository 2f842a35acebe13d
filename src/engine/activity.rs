//! Per-engine counters that requests update as they pass: how many wait for a first token or for the next one,
//! whether tokens arrived recently, and whether requests fail. The liveness watch reads them; nothing is judged
//! here. A streamed piece usually costs one atomic load. The tokens of requests that are not streamed are seen in the
//! engine's own counter, which is read from time to time.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

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
    /// Those of the requests whose answers come in one piece.
    plain: AtomicU32,
    /// Requests that have ended; wraps.
    ended: AtomicU32,
    /// The engine's counter of tokens was there when it was last read.
    is_counted: AtomicBool,
    counter: Mutex<Counter>,
    /// A request has been answered at least once.
    worked: AtomicBool,
    failures: AtomicU32,
    /// The engine sleeps, so its silence means nothing.
    resting: AtomicBool,
    alarm: Notify,
}

/// The engine's counter of tokens, as it was last read.
#[derive(Debug, Default)]
struct Counter {
    tokens: Option<u64>,
    /// How many requests had ended when it was read.
    ended: u32,
    /// How many had ended before the span began in which it last moved. While no other has ended since, the request that got that
    /// token is still inside.
    ended_before_token: Option<u32>,
}

/// What one look at the counters returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ActivitySample {
    pub asking: u32,
    pub answering: u32,
    /// Since the last look.
    pub spoke: bool,
}

/// What the counters of one process say to those of another, which watches the engine: the requests pass through the
/// first, and the engine is a process of the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ActivityReport {
    pub asking: u32,
    pub answering: u32,
    /// A token arrived since the last report.
    pub spoke: bool,
    pub worked: bool,
    /// Requests in a row that failed.
    pub failures: u32,
    pub resting: bool,
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
/// Added to a request whose answer comes in one piece.
const PLAIN: u8 = 8;

impl ActivityMeter {
    /// Counts a new request. Return the beat with [`ActivityMeter::leave`].
    pub fn enter(&self) -> Beat {
        self.asking.fetch_add(1, Ordering::Relaxed);
        Beat(AtomicU8::new(PENDING))
    }

    /// The request's answer is to come in one piece: what the engine does for it meanwhile shows in its counter alone. False
    /// if the counter cannot be read. Called at most once, before anything has arrived.
    pub fn expect_whole(&self, beat: &Beat) -> bool {
        let is_counted = self.is_counted.load(Ordering::Relaxed);
        if is_counted {
            beat.0.fetch_or(PLAIN, Ordering::Relaxed);
            self.plain.fetch_add(1, Ordering::Relaxed);
        }
        is_counted
    }

    /// How many requests have ended until now; for [`ActivityMeter::counted`].
    pub(super) fn ended(&self) -> u32 {
        self.ended.load(Ordering::Relaxed)
    }

    /// The engine's counter was read. `ended`: how many requests had ended before it was asked.
    pub(super) fn counted(&self, tokens: Option<u64>, ended: u32) {
        self.is_counted.store(tokens.is_some(), Ordering::Relaxed);
        let mut counter = self.counter.lock().unwrap_or_else(PoisonError::into_inner);
        // An engine that was started anew begins at nothing, which is a movement, too.
        if counter.tokens != tokens && counter.tokens.is_some() && tokens.is_some() {
            counter.ended_before_token = Some(counter.ended);
            if self.plain.load(Ordering::Relaxed) > 0 {
                self.spoke.store(true, Ordering::Relaxed);
            }
        }
        counter.tokens = tokens;
        counter.ended = ended;
    }

    /// Whether a request whose answer comes in one piece, or another one inside, has surely had a token.
    fn has_plain_token(&self) -> bool {
        let counter = self.counter.lock().unwrap_or_else(PoisonError::into_inner);
        counter.ended_before_token == Some(self.ended())
    }

    /// A piece of the answer arrived. Comments that keep a connection open do not count.
    pub fn token(&self, beat: &Beat) {
        if !self.spoke.load(Ordering::Relaxed) {
            self.spoke.store(true, Ordering::Relaxed);
        }
        let state = beat.0.load(Ordering::Relaxed);
        match state & !PLAIN {
            PENDING => beat.0.store(state | FIRST, Ordering::Relaxed),
            FIRST => {
                beat.0.store(state & PLAIN | ANSWERING, Ordering::Relaxed);
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
        if state & PLAIN != 0 {
            self.plain.fetch_sub(1, Ordering::Relaxed);
        }
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    fn waiting(&self, state: u8) -> &AtomicU32 {
        match state & !PLAIN {
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

    /// For the process that watches the engine, where that is not this one.
    pub fn report(&self) -> ActivityReport {
        let ActivitySample {
            asking,
            answering,
            spoke,
        } = self.look();
        ActivityReport {
            asking,
            answering,
            spoke,
            worked: self.has_worked(),
            failures: self.failures.load(Ordering::Relaxed),
            resting: self.is_resting(),
        }
    }

    /// Takes over what another process counted. A process that hears nothing any more sets zero: it cannot know
    /// whether requests wait.
    pub fn mirror(&self, report: ActivityReport) {
        self.asking.store(report.asking, Ordering::Relaxed);
        self.answering.store(report.answering, Ordering::Relaxed);
        if report.spoke {
            self.spoke.store(true, Ordering::Relaxed);
        }
        if report.worked {
            self.worked.store(true, Ordering::Relaxed);
        }
        self.resting.store(report.resting, Ordering::Relaxed);
        // The other process starts again from zero when it has counted this many.
        let before = self.failures.swap(report.failures, Ordering::Relaxed);
        if report.failures < before && !report.worked {
            self.alarm.notify_one();
        }
    }

    pub(super) fn look(&self) -> ActivitySample {
        let asking = self.asking.load(Ordering::Relaxed);
        let has_plain = asking > 0 && self.plain.load(Ordering::Relaxed) > 0;
        let has_token = u32::from(has_plain && self.has_plain_token());
        ActivitySample {
            asking: asking - has_token,
            answering: self.answering.load(Ordering::Relaxed) + has_token,
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

    #[test]
    fn the_engines_counter_speaks_for_requests_that_are_not_streamed() {
        let pulse = ActivityMeter::default();
        let beat = pulse.enter();
        assert!(!pulse.expect_whole(&beat), "it was never read");
        pulse.counted(Some(5), pulse.ended());
        assert!(pulse.expect_whole(&beat));
        pulse.counted(Some(5), pulse.ended());
        assert_eq!(counts(&pulse), (1, 0, false), "its prompt is read");
        pulse.counted(Some(6), pulse.ended());
        assert_eq!(counts(&pulse), (0, 1, true), "it has had a token");
        pulse.counted(Some(6), pulse.ended());
        assert_eq!(counts(&pulse), (0, 1, false), "and waits for the next");
        pulse.token(&beat);
        pulse.leave(&beat);
        assert_eq!(counts(&pulse), (0, 0, true));
        pulse.counted(None, pulse.ended());
        assert!(!pulse.expect_whole(&pulse.enter()), "it is gone");
    }

    #[test]
    fn the_token_of_a_request_that_has_ended_says_nothing_of_those_that_wait_for_their_first() {
        let pulse = ActivityMeter::default();
        pulse.counted(Some(5), pulse.ended());
        let (first, second) = (pulse.enter(), pulse.enter());
        pulse.expect_whole(&first);
        pulse.expect_whole(&second);
        pulse.counted(Some(6), pulse.ended());
        assert_eq!(counts(&pulse), (1, 1, true));
        // Its last token is counted after it has ended.
        pulse.leave(&first);
        pulse.counted(Some(7), pulse.ended());
        assert_eq!(
            counts(&pulse),
            (1, 0, true),
            "that may have been the first's"
        );
        pulse.counted(Some(8), pulse.ended());
        assert_eq!(counts(&pulse), (0, 1, true), "nobody else is there");
    }

    #[test]
    fn streams_are_not_spoken_for_by_the_engines_counter() {
        let pulse = ActivityMeter::default();
        let beat = pulse.enter();
        pulse.counted(Some(5), pulse.ended());
        pulse.counted(Some(9), pulse.ended());
        assert_eq!(counts(&pulse), (1, 0, false));
        pulse.leave(&beat);
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
