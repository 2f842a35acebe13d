//! Per-engine counters that requests update as they pass: how many wait for a first token or for the next one, whether tokens
//! arrived recently, and whether requests fail. The liveness watch reads and judges them. A streamed chunk usually costs one atomic
//! load. Tokens of non-streaming requests are visible only in the engine's own counter, which is read periodically.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// Consecutive failed requests after which the engine's health is probed immediately, without waiting for the next heartbeat.
/// Envoy's default for ejecting a host is the same (outlier detection, `consecutive_5xx`).
const FAILURES_IN_A_ROW: u32 = 5;

/// The counters of all requests inside one engine.
#[derive(Debug, Default)]
pub struct ActivityMeter {
    /// Requests that wait for their first token.
    asking: AtomicU32,
    /// Requests that have received tokens and wait for the next.
    responding: AtomicU32,
    /// A token has arrived since the last sample.
    spoke: AtomicBool,
    /// Non-streaming requests; they are included in `asking` or `responding`.
    plain: AtomicU32,
    /// Requests that have ended; wraps.
    ended: AtomicU32,
    /// The engine's token counter could be read last time.
    is_counted: AtomicBool,
    counter: Mutex<Counter>,
    /// A request has succeeded at least once.
    worked: AtomicBool,
    failures: AtomicU32,
    /// The engine sleeps, so its silence means nothing.
    resting: AtomicBool,
    alarm: Notify,
}

/// The last reading of the engine's token counter.
#[derive(Debug, Default)]
struct Counter {
    tokens: Option<u64>,
    /// Number of requests that had ended at that reading.
    ended: u32,
    /// Number of requests that had ended at the reading before the counter last moved. While it still equals the current number,
    /// the request that got that token is still inside.
    ended_before_token: Option<u32>,
}

/// One sample of the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ActivitySample {
    pub asking: u32,
    pub responding: u32,
    /// A token has arrived since the last sample.
    pub spoke: bool,
}

/// Counters sent from the process that requests pass through to the process that runs and watches the engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ActivityReport {
    pub asking: u32,
    /// Named `answering` in protocol 1.
    #[serde(rename = "answering")]
    pub responding: u32,
    /// A token has arrived since the last report.
    pub spoke: bool,
    pub worked: bool,
    /// Consecutive failed requests.
    pub failures: u32,
    pub resting: bool,
}

/// Progress of one request. Only one task writes it at a time; it is atomic because a task moves between threads.
#[derive(Debug)]
pub struct Beat(AtomicU8);

/// The request has been sent and has no response yet.
const PENDING: u8 = 0;
/// The first chunk has arrived. Many engines send an empty chunk with the role before they compute anything, so it does not count
/// as a token.
const FIRST: u8 = 1;
const RESPONDING: u8 = 2;
/// Flag: the client does not read, so no output is expected of the engine.
const HELD: u8 = 4;
/// Flag: a non-streaming request.
const PLAIN: u8 = 8;

impl ActivityMeter {
    /// Counts a new request. Return the beat with [`ActivityMeter::leave`].
    pub fn enter(&self) -> Beat {
        self.asking.fetch_add(1, Ordering::Relaxed);
        Beat(AtomicU8::new(PENDING))
    }

    /// Marks the request as non-streaming: only the engine's token counter shows its progress. Returns false if the counter cannot
    /// be read. Call at most once, before any part of the response has arrived.
    pub fn expect_whole(&self, beat: &Beat) -> bool {
        let is_counted = self.is_counted.load(Ordering::Relaxed);
        if is_counted {
            beat.0.fetch_or(PLAIN, Ordering::Relaxed);
            self.plain.fetch_add(1, Ordering::Relaxed);
        }
        is_counted
    }

    /// The number of requests that have ended, as input for [`ActivityMeter::counted`].
    pub(crate) fn ended(&self) -> u32 {
        self.ended.load(Ordering::Relaxed)
    }

    /// Takes a reading of the engine's token counter. `ended` is the number of requests that had ended before the reading.
    pub(crate) fn counted(&self, tokens: Option<u64>, ended: u32) {
        self.is_counted.store(tokens.is_some(), Ordering::Relaxed);
        let mut counter = self.counter.lock().unwrap_or_else(PoisonError::into_inner);
        // The counter of a restarted engine starts at zero, which counts as movement, too.
        if counter.tokens != tokens && counter.tokens.is_some() && tokens.is_some() {
            counter.ended_before_token = Some(counter.ended);
            if self.plain.load(Ordering::Relaxed) > 0 {
                self.spoke.store(true, Ordering::Relaxed);
            }
        }
        counter.tokens = tokens;
        counter.ended = ended;
    }

    /// Returns true if a non-streaming request has certainly got a token, or another request inside has.
    fn has_plain_token(&self) -> bool {
        let counter = self.counter.lock().unwrap_or_else(PoisonError::into_inner);
        counter.ended_before_token == Some(self.ended())
    }

    /// A part of the response has arrived. Comments that keep a connection open do not count.
    pub fn token(&self, beat: &Beat) {
        if !self.spoke.load(Ordering::Relaxed) {
            self.spoke.store(true, Ordering::Relaxed);
        }
        let state = beat.0.load(Ordering::Relaxed);
        match state & !PLAIN {
            PENDING => beat.0.store(state | FIRST, Ordering::Relaxed),
            FIRST => {
                beat.0.store(state & PLAIN | RESPONDING, Ordering::Relaxed);
                self.asking.fetch_sub(1, Ordering::Relaxed);
                self.responding.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }

    /// Suspends the request while its client does not read. Until [`ActivityMeter::resume`], it does not count as waiting for the
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
            RESPONDING => &self.responding,
            _ => &self.asking,
        }
    }

    /// Records a response that shows a working engine, even if it is an error of the client's.
    pub fn worked(&self) {
        if !self.worked.load(Ordering::Relaxed) {
            self.worked.store(true, Ordering::Relaxed);
        }
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// Records that the engine could not be reached, closed the connection, or responded with 5xx. Several consecutive failures
    /// trigger an immediate health probe.
    pub fn failed(&self) {
        let before = self.failures.fetch_add(1, Ordering::Relaxed);
        if before + 1 >= FAILURES_IN_A_ROW {
            self.failures.store(0, Ordering::Relaxed);
            self.alarm.notify_one();
        }
    }

    /// Suspends probes while the engine rests: its silence then means nothing.
    pub fn rest(&self, resting: bool) {
        self.resting.store(resting, Ordering::Relaxed);
    }

    pub(super) fn is_resting(&self) -> bool {
        self.resting.load(Ordering::Relaxed)
    }

    pub(super) fn has_worked(&self) -> bool {
        self.worked.load(Ordering::Relaxed)
    }

    /// Returns after several consecutive requests have failed.
    pub(super) async fn alarm(&self) {
        self.alarm.notified().await;
    }

    /// The counters, for the process that watches the engine if that is another one.
    pub fn report(&self) -> ActivityReport {
        let ActivitySample {
            asking,
            responding,
            spoke,
        } = self.look();
        ActivityReport {
            asking,
            responding,
            spoke,
            worked: self.has_worked(),
            failures: self.failures.load(Ordering::Relaxed),
            resting: self.is_resting(),
        }
    }

    /// Takes over the counters of another process. When its reports stop, pass zeros: it is then unknown whether requests wait.
    pub fn mirror(&self, report: ActivityReport) {
        self.asking.store(report.asking, Ordering::Relaxed);
        self.responding.store(report.responding, Ordering::Relaxed);
        if report.spoke {
            self.spoke.store(true, Ordering::Relaxed);
        }
        if report.worked {
            self.worked.store(true, Ordering::Relaxed);
        }
        self.resting.store(report.resting, Ordering::Relaxed);
        // The other process counts from zero again after this many.
        let before = self.failures.swap(report.failures, Ordering::Relaxed);
        if report.failures < before && !report.worked {
            self.alarm.notify_one();
        }
    }

    pub(crate) fn look(&self) -> ActivitySample {
        let asking = self.asking.load(Ordering::Relaxed);
        let has_plain = asking > 0 && self.plain.load(Ordering::Relaxed) > 0;
        let has_token = u32::from(has_plain && self.has_plain_token());
        ActivitySample {
            asking: asking - has_token,
            responding: self.responding.load(Ordering::Relaxed) + has_token,
            spoke: self.spoke.swap(false, Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(pulse: &ActivityMeter) -> (u32, u32, bool) {
        let seen = pulse.look();
        (seen.asking, seen.responding, seen.spoke)
    }

    #[test]
    fn a_request_counts_as_waiting_then_as_streaming_then_not_at_all() {
        let pulse = ActivityMeter::default();
        let beat = pulse.enter();
        assert_eq!(counts(&pulse), (1, 0, false));
        pulse.token(&beat);
        assert_eq!(counts(&pulse), (1, 0, true), "a role is not a token");
        pulse.token(&beat);
        assert_eq!(counts(&pulse), (0, 1, true));
        assert_eq!(counts(&pulse), (0, 1, false), "nothing since");
        pulse.leave(&beat);
        assert_eq!(counts(&pulse), (0, 0, false));
    }

    #[test]
    fn a_request_whose_client_does_not_read_is_not_waiting_for_the_engine() {
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
    fn non_streaming_requests_are_tracked_by_the_engines_token_counter() {
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
    fn the_last_token_of_an_ended_request_is_not_credited_to_waiting_requests() {
        let pulse = ActivityMeter::default();
        pulse.counted(Some(5), pulse.ended());
        let (first, second) = (pulse.enter(), pulse.enter());
        pulse.expect_whole(&first);
        pulse.expect_whole(&second);
        pulse.counted(Some(6), pulse.ended());
        assert_eq!(counts(&pulse), (1, 1, true));
        // The request's last token is counted after it has ended.
        pulse.leave(&first);
        pulse.counted(Some(7), pulse.ended());
        assert_eq!(
            counts(&pulse),
            (1, 0, true),
            "that may have been the first's"
        );
        pulse.counted(Some(8), pulse.ended());
        assert_eq!(counts(&pulse), (0, 1, true), "no other request is inside");
    }

    #[test]
    fn streams_are_not_tracked_by_the_engines_token_counter() {
        let pulse = ActivityMeter::default();
        let beat = pulse.enter();
        pulse.counted(Some(5), pulse.ended());
        pulse.counted(Some(9), pulse.ended());
        assert_eq!(counts(&pulse), (1, 0, false));
        pulse.leave(&beat);
    }

    #[tokio::test]
    async fn five_consecutive_failures_raise_the_alarm() {
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
