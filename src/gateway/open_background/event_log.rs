//! The events of a streamed background response, kept while it runs: clients read them from any number on.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Largest size of the events of a response. The oldest ones are dropped beyond it.
const BYTES_MAX: usize = 4 << 20;
const COMMENT: &str = ": waiting for the model\n\n";
const LOST: &str =
    ": the events after this one are no longer kept; get the response without `stream`\n\n";

/// The events of a response.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    events: Mutex<Events>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Events {
    /// With their numbers, in order.
    kept: VecDeque<(u64, Bytes)>,
    bytes: usize,
    /// The number of the last event that was dropped.
    dropped: Option<u64>,
    /// Ends of the response that are being stored.
    holds: u32,
    /// The number of the last event if the store takes such an end. Events from this number on are hidden.
    held: Option<u64>,
    is_over: bool,
}

/// The next event for a reader.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Event(u64, Bytes),
    /// It does not exist yet.
    Later,
    /// It was dropped.
    Lost,
    Over,
}

impl Events {
    fn next_number(&self, first: u64) -> u64 {
        self.kept.back().map_or(first, |(number, _)| number + 1)
    }

    fn push(&mut self, number: u64, event: Bytes) {
        self.bytes += event.len();
        self.kept.push_back((number, event));
        while self.bytes > BYTES_MAX && self.kept.len() > 1 {
            if let Some((number, dropped)) = self.kept.pop_front() {
                self.bytes -= dropped.len();
                self.dropped = Some(number);
            }
        }
    }
}

impl EventLog {
    fn locked(&self) -> MutexGuard<'_, Events> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the events of a response that waits for its first run, unless it has events.
    pub fn announce(&self, announcement: [String; 2]) {
        let mut events = self.locked();
        if events.kept.is_empty() && events.dropped.is_none() && !events.is_over {
            for (number, event) in (0..).zip(announcement) {
                events.push(number, event.into());
            }
        }
        drop(events);
        self.changed.notify_waiters();
    }

    /// Adds an event of a run. Numbers rise. After the last event, it is left out.
    pub fn push(&self, number: u64, event: Bytes) {
        let mut events = self.locked();
        if !events.is_over {
            events.push(number, event);
        }
        drop(events);
        self.changed.notify_waiters();
    }

    /// The number of the next event, or `first` if no event is known.
    pub fn next_number(&self, first: u64) -> u64 {
        self.locked().next_number(first)
    }

    /// Returns the number of the last event if the response ends now, which is `first` if no event is known. Readers wait there
    /// until [`EventLog::finish`] or [`EventLog::release`], and the run may still add events.
    pub fn hold(&self, first: u64) -> u64 {
        let mut events = self.locked();
        events.holds += 1;
        let next = events.next_number(first);
        *events.held.get_or_insert(next)
    }

    /// The number of the last event if another process has ended the response, with `stored` as its number there. `None` while this
    /// process stores an end.
    pub fn number_of_end(&self, stored: Option<u64>) -> Option<u64> {
        let events = self.locked();
        let next = events.next_number(0);
        (events.holds == 0).then(|| stored.map_or(next, |stored| stored.max(next)))
    }

    /// Withdraws a hold, because the response has not ended in this way.
    pub fn release(&self) {
        let mut events = self.locked();
        events.holds = events.holds.saturating_sub(1);
        if events.holds == 0 {
            events.held = None;
        }
        drop(events);
        self.changed.notify_waiters();
    }

    /// Adds the last event, and drops the events of the run from its number on.
    pub fn finish(&self, number: u64, event: Bytes) {
        let mut events = self.locked();
        if !events.is_over {
            while events.kept.back().is_some_and(|(last, _)| *last >= number) {
                let replaced = events.kept.pop_back();
                events.bytes -= replaced.map_or(0, |(_, event)| event.len());
            }
            events.push(number, event);
        }
        drop(events);
        self.end();
    }

    /// No more events follow.
    pub fn end(&self) {
        let mut events = self.locked();
        events.is_over = true;
        events.held = None;
        drop(events);
        self.changed.notify_waiters();
    }

    fn after(&self, after: Option<u64>) -> Next {
        let events = self.locked();
        let is_lost = events
            .dropped
            .is_some_and(|dropped| after.is_none_or(|after| after < dropped));
        if is_lost {
            return Next::Lost;
        }
        let is_read = |(number, _): &(u64, Bytes)| after.is_some_and(|after| *number <= after);
        let place = events.kept.partition_point(is_read);
        let is_shown = |(number, _): &&(u64, Bytes)| events.held.is_none_or(|held| *number < held);
        match events.kept.get(place).filter(is_shown) {
            Some((number, event)) => Next::Event(*number, event.clone()),
            None if events.is_over => Next::Over,
            None => Next::Later,
        }
    }

    /// A body with the events after this number, until the last one or until `ending` fires. Writes a comment after each silence of
    /// this length.
    pub fn body(
        self: Arc<EventLog>,
        after: Option<u64>,
        silence: Duration,
        ending: CancellationToken,
    ) -> Body {
        let reader = (self, after, ending, false);
        let pieces = stream::unfold(reader, move |(log, after, ending, is_lost)| async move {
            if is_lost {
                return None;
            }
            loop {
                let mut changed = pin!(log.changed.notified());
                // Registered before the look, which then overlooks no change.
                changed.as_mut().enable();
                match log.after(after) {
                    Next::Event(number, event) => {
                        let reader = (log.clone(), Some(number), ending, false);
                        return Some((Ok::<Bytes, Infallible>(event), reader));
                    }
                    Next::Lost => {
                        let reader = (log.clone(), after, ending, true);
                        return Some((Ok(Bytes::from_static(LOST.as_bytes())), reader));
                    }
                    Next::Over => return None,
                    Next::Later => {}
                }
                tokio::select! {
                    () = &mut changed => {}
                    () = ending.cancelled() => return None,
                    () = tokio::time::sleep(silence) => {
                        let reader = (log.clone(), after, ending, false);
                        return Some((Ok(Bytes::from_static(COMMENT.as_bytes())), reader));
                    }
                }
            }
        });
        Body::from_stream(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    const LONG: Duration = Duration::from_secs(3600);

    async fn text(body: Body) -> String {
        let bytes = axum::body::to_bytes(body, usize::MAX).await.expect("read");
        String::from_utf8(bytes.to_vec()).expect("a text")
    }

    #[tokio::test]
    async fn a_reader_gets_the_events_after_its_number_and_those_that_follow() {
        let log = Arc::new(EventLog::default());
        for number in 0..3 {
            log.push(number, format!("{number};").into());
        }
        assert_eq!(log.next_number(0), 3);
        let ending = CancellationToken::new();
        let body = Arc::clone(&log).body(Some(0), LONG, ending.clone());
        let more = async {
            log.push(7, "7;".into());
            log.end();
        };
        let (read, ()) = tokio::join!(text(body), more);
        assert_eq!(read, "1;2;7;");
        let again = Arc::clone(&log).body(None, LONG, ending.clone());
        assert_eq!(text(again).await, "0;1;2;7;");
        assert_eq!(text(log.body(Some(9), LONG, ending)).await, "");
    }

    #[test]
    fn a_response_is_announced_once() {
        let log = EventLog::default();
        let queued = || ["0;".to_owned(), "1;".to_owned()];
        log.announce(queued());
        log.push(2, "2;".into());
        log.announce(queued());
        assert_eq!(log.next_number(0), 3);
        assert_eq!(log.after(Some(1)), Next::Event(2, "2;".into()));
    }

    #[tokio::test]
    async fn the_last_event_has_the_next_number_although_the_run_adds_events_meanwhile() {
        let log = Arc::new(EventLog::default());
        let ending = CancellationToken::new();
        let event = |number: u64| Bytes::from(format!("{number};"));
        for number in 0..3 {
            log.push(number, event(number));
        }
        // Two cancellations at the same time, of which one cannot be stored.
        assert_eq!((log.hold(0), log.hold(0)), (3, 3));
        log.push(3, event(3));
        log.push(4, event(4));
        assert_eq!(
            log.after(Some(2)),
            Next::Later,
            "the end may take its place"
        );
        log.release();
        assert_eq!(log.after(Some(2)), Next::Later);
        log.finish(3, "cancelled".into());
        log.push(5, event(5));
        log.release();
        log.finish(6, "completed".into());
        assert_eq!(log.next_number(0), 4);
        let read = text(Arc::clone(&log).body(None, LONG, ending)).await;
        assert_eq!(read, "0;1;2;cancelled");
    }

    #[test]
    fn readers_continue_after_an_end_that_could_not_be_stored_and_a_result_wins_over_a_hold() {
        let log = EventLog::default();
        // After a restart, a run or an end continues with greater numbers.
        assert_eq!((log.next_number(1_000_000), log.hold(2)), (1_000_000, 2));
        log.release();
        log.push(0, "0;".into());
        assert_eq!(log.hold(0), 1);
        log.push(1, "1;".into());
        log.release();
        assert_eq!(log.after(Some(0)), Next::Event(1, "1;".into()));
        assert_eq!(log.hold(0), 2);
        log.push(2, "2;".into());
        log.finish(3, "completed".into());
        log.release();
        assert_eq!(log.after(Some(1)), Next::Event(2, "2;".into()));
        assert_eq!(log.after(Some(2)), Next::Event(3, "completed".into()));
        assert_eq!(log.after(Some(3)), Next::Over);
    }

    #[tokio::test]
    async fn dropped_events_end_a_reader_that_needs_them_with_a_comment() {
        let log = Arc::new(EventLog::default());
        let piece = Bytes::from(vec![b'x'; BYTES_MAX / 2]);
        for number in 0..4 {
            log.push(number, piece.clone());
        }
        log.end();
        assert_eq!(log.after(None), Next::Lost);
        assert_eq!(log.after(Some(0)), Next::Lost);
        assert_eq!(log.after(Some(1)), Next::Event(2, piece));
        let ending = CancellationToken::new();
        assert_eq!(text(log.body(None, LONG, ending)).await, LOST);
    }

    #[tokio::test]
    async fn silence_has_comments_and_the_end_of_the_process_ends_a_reader() {
        let log = Arc::new(EventLog::default());
        let ending = CancellationToken::new();
        let mut body = log.body(None, Duration::from_millis(1), ending.clone());
        let first = body.frame().await.expect("a piece").expect("read");
        assert_eq!(first.into_data().expect("data"), COMMENT);
        ending.cancel();
        assert!(body.frame().await.is_none());
    }
}
