//! Tracks the state of a connection: waiting for a request head, idle, or blocked on writing, and since when. Reports when a time
//! limit has passed; the connection's task then closes it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::Version;

use super::fed::Moving;
use controller::Clock;
use pool::Time;

/// Longest time for a request head.
const HEAD_WITHIN_MS: u64 = 10_000;
/// Longest time for a connection to shut down.
const ENDS_WITHIN_MS: u64 = 5_000;
/// A response piece has up to 64 KiB, and a client may send two window updates per 4 KiB.
const FRAMES_PER_PIECE: u64 = 32;
/// Marks a time that is not set.
const NEVER: u64 = 0;

/// Time limits for inactivity in each direction.
#[derive(Clone, Copy, Debug)]
pub struct IdleTimeouts {
    pub idle: Duration,
    pub write: Duration,
}

#[derive(Debug)]
pub struct ConnectionWatch {
    clock: Clock,
    idle_ms: u64,
    write_ms: u64,
    /// Number of requests whose response is incomplete.
    active: AtomicU32,
    is_h2: AtomicBool,
    idle_since: AtomicU64,
    head_since: AtomicU64,
    blocked_since: AtomicU64,
    /// HTTP/2 frames earned by requests and responses.
    earned: AtomicU64,
    /// HTTP/2: for each response in progress, the time since which a piece waits to be taken.
    responses: Mutex<Answers>,
    /// The work that produces the current response of HTTP/1.1.
    pub moving: Moving,
}

#[derive(Debug, Default)]
struct Answers {
    next: u64,
    waiting: BTreeMap<u64, Arc<AtomicU64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Check again after this time.
    Fine(Duration),
    /// Idle for too long: shut down gracefully.
    Idle,
    /// Close immediately.
    Stuck,
}

impl ConnectionWatch {
    pub fn new(clock: Clock, patience: IdleTimeouts) -> ConnectionWatch {
        let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let now = clock.now().0;
        ConnectionWatch {
            clock,
            idle_ms: ms(patience.idle),
            write_ms: ms(patience.write),
            active: AtomicU32::new(0),
            is_h2: AtomicBool::new(false),
            idle_since: AtomicU64::new(now),
            // The first request must arrive as quickly as any other.
            head_since: AtomicU64::new(now),
            blocked_since: AtomicU64::new(NEVER),
            earned: AtomicU64::new(0),
            responses: Mutex::default(),
            moving: Moving::default(),
        }
    }

    pub fn now(&self) -> Time {
        self.clock.now()
    }

    /// Allows the client to send more HTTP/2 frames that do not begin a request.
    pub(crate) fn earn(&self, frames: u64) {
        self.earned.fetch_add(frames, Ordering::Relaxed);
    }

    /// Takes the frames earned since the previous call.
    pub(crate) fn earned(&self) -> u64 {
        self.earned.swap(0, Ordering::Relaxed)
    }

    /// Records received bytes. In HTTP/2 they may belong to no request.
    pub fn read(&self, bytes: &[u8]) {
        if self.is_h2.load(Ordering::Relaxed) || self.active.load(Ordering::Relaxed) > 0 {
            return;
        }
        if bytes.starts_with(b"PRI * HTTP/2.0") {
            self.speaks_h2();
        } else if self.head_since.load(Ordering::Relaxed) == NEVER {
            self.head_since.store(self.now().0, Ordering::Relaxed);
        }
    }

    pub(crate) fn speaks_h2(&self) {
        self.is_h2.store(true, Ordering::Relaxed);
        self.head_since.store(NEVER, Ordering::Relaxed);
    }

    /// Records whether the socket is blocked for writing.
    pub fn written(&self, is_blocked: bool) {
        let since = self.blocked_since.load(Ordering::Relaxed);
        match (is_blocked, since) {
            (true, NEVER) => self.blocked_since.store(self.now().0, Ordering::Relaxed),
            (false, since) if since != NEVER => self.blocked_since.store(NEVER, Ordering::Relaxed),
            _ => {}
        }
    }

    pub fn verdict(&self) -> Verdict {
        let now = self.now().0;
        // An upper bound for the next check: anything that begins now takes at least this long to time out.
        let mut next = HEAD_WITHIN_MS.min(self.idle_ms).min(self.write_ms);
        let mut is_over = |since: u64, most: u64| {
            let passed = now.saturating_sub(since);
            if since != NEVER && passed < most {
                next = next.min(most - passed);
            }
            since != NEVER && passed >= most
        };
        if is_over(self.blocked_since.load(Ordering::Relaxed), self.write_ms) {
            return Verdict::Stuck;
        }
        let responses = self
            .responses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for since in responses.waiting.values() {
            if is_over(since.load(Ordering::Relaxed), self.write_ms) {
                return Verdict::Stuck;
            }
        }
        if self.active.load(Ordering::Relaxed) == 0 {
            if is_over(self.head_since.load(Ordering::Relaxed), HEAD_WITHIN_MS) {
                return Verdict::Stuck;
            }
            if is_over(self.idle_since.load(Ordering::Relaxed), self.idle_ms) {
                let overdue = now.saturating_sub(self.idle_since.load(Ordering::Relaxed));
                return if overdue >= self.idle_ms.saturating_add(ENDS_WITHIN_MS) {
                    Verdict::Stuck
                } else {
                    Verdict::Idle
                };
            }
        }
        Verdict::Fine(Duration::from_millis(next.max(1)))
    }
}

/// A request on a connection, until its response is sent or abandoned.
#[derive(Debug)]
pub struct Turn {
    watch: Arc<ConnectionWatch>,
    response: Option<(u64, Arc<AtomicU64>)>,
}

impl Turn {
    pub fn begin(watch: &Arc<ConnectionWatch>, version: Version) -> Turn {
        let is_h2 = version == Version::HTTP_2;
        if is_h2 {
            watch.speaks_h2();
            watch.earn(FRAMES_PER_PIECE);
        }
        watch.active.fetch_add(1, Ordering::Relaxed);
        watch.head_since.store(NEVER, Ordering::Relaxed);
        let response = is_h2.then(|| {
            let since = Arc::new(AtomicU64::new(NEVER));
            let mut responses = watch
                .responses
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            responses.next += 1;
            let number = responses.next;
            responses.waiting.insert(number, Arc::clone(&since));
            (number, since)
        });
        Turn {
            watch: Arc::clone(watch),
            response,
        }
    }

    /// The connection of the request.
    pub fn connection(&self) -> Arc<ConnectionWatch> {
        Arc::clone(&self.watch)
    }

    /// Records that the previous piece was taken. `waits`: a new piece has been handed out.
    pub(crate) fn handed(&self, waits: bool) {
        if let Some((_, since)) = &self.response {
            let at = if waits { self.watch.now().0 } else { NEVER };
            since.store(at, Ordering::Relaxed);
            if waits {
                self.watch.earn(FRAMES_PER_PIECE);
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let watch = &self.watch;
        if let Some((number, _)) = &self.response {
            let mut responses = watch
                .responses
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            responses.waiting.remove(number);
        }
        watch.idle_since.store(watch.now().0, Ordering::Relaxed);
        watch.active.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(idle_ms: u64, write_ms: u64) -> Arc<ConnectionWatch> {
        let patience = IdleTimeouts {
            idle: Duration::from_millis(idle_ms),
            write: Duration::from_millis(write_ms),
        };
        Arc::new(ConnectionWatch::new(Clock::start(), patience))
    }

    fn backdate(moment: &AtomicU64, ms: u64) {
        moment.fetch_sub(ms, Ordering::Relaxed);
    }

    #[test]
    fn an_idle_connection_is_closed_and_one_with_a_request_is_not() {
        let watch = watch(2_000, 60_000);
        let turn = Turn::begin(&watch, Version::HTTP_11);
        backdate(&watch.idle_since, 3_000);
        assert!(matches!(watch.verdict(), Verdict::Fine(_)));
        drop(turn);
        assert!(matches!(watch.verdict(), Verdict::Fine(_)), "idle from now");
        backdate(&watch.idle_since, 2_000);
        assert_eq!(watch.verdict(), Verdict::Idle);
        backdate(&watch.idle_since, 60_000);
        assert_eq!(watch.verdict(), Verdict::Stuck, "it does not close");
    }

    #[test]
    fn an_incomplete_request_head_times_out_and_http_2_pings_do_not_count_as_one() {
        let slow = watch(60_000, 60_000);
        slow.read(b"GET / HT");
        backdate(&slow.head_since, HEAD_WITHIN_MS);
        assert_eq!(slow.verdict(), Verdict::Stuck);
        let h2 = watch(60_000, 60_000);
        h2.read(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        h2.read(&[0; 17]);
        assert_eq!(h2.head_since.load(Ordering::Relaxed), NEVER);
    }

    #[test]
    fn a_client_that_reads_nothing_is_cut_and_one_that_reads_a_little_is_not() {
        let watch = watch(60_000, 2_000);
        watch.written(true);
        backdate(&watch.blocked_since, 2_000);
        assert_eq!(watch.verdict(), Verdict::Stuck);
        watch.written(false);
        assert!(matches!(watch.verdict(), Verdict::Fine(_)));
        let turn = Turn::begin(&watch, Version::HTTP_2);
        turn.handed(true);
        let (_, since) = turn.response.as_ref().unwrap();
        backdate(since, 2_000);
        assert_eq!(watch.verdict(), Verdict::Stuck);
        turn.handed(false);
        assert!(matches!(watch.verdict(), Verdict::Fine(_)));
    }

    #[test]
    fn the_next_check_is_when_the_earliest_deadline_may_expire() {
        let watch = watch(60_000, 60_000);
        watch.written(true);
        backdate(&watch.blocked_since, 59_000);
        let Verdict::Fine(next) = watch.verdict() else {
            panic!("it has a second left");
        };
        assert!(next <= Duration::from_secs(1), "{next:?}");
    }
}
