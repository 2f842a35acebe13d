//! Feeds of the live view for open pages. Clients with the same sight share a feed, which compares the view with the previous one
//! at most every 100 ms and encodes each change once for all of them. A client that lags receives the complete view again, so it
//! never delays others. A feed without clients ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use serde::Serialize;
use tokio::sync::{broadcast, watch};

use api_types::dto::LiveView;
use controller::Clock;
use pool::Span;

/// Minimum interval between changes.
const EVERY: Duration = Duration::from_millis(100);
/// Interval at which the age of waiting requests is sent if nothing else in the queue changes.
const TIMES_EVERY: Span = Span::from_secs(2);
/// The evening and the store change without a newer view being published.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Number of changes by which a client may lag.
const CHANGES_MAX: usize = 32;

type Feeds = Mutex<BTreeMap<String, Arc<Feed>>>;

/// The feeds, by group of clients with the same sight.
#[derive(Debug, Default)]
pub struct Hub(Arc<Feeds>);

/// The source of a new feed.
pub struct Source {
    /// Returns the current view.
    pub look: Box<dyn Fn() -> LiveView + Send + Sync>,
    /// Changes with each newer view.
    pub published: watch::Receiver<u64>,
    pub clock: Clock,
}

#[derive(Debug)]
struct Feed {
    shown: Mutex<Shown>,
    changes: broadcast::Sender<Bytes>,
}

/// The state that all clients have received.
#[derive(Debug)]
struct Shown {
    view: LiveView,
    /// Encoded for the first client that needs it.
    full_event: Option<Bytes>,
}

/// A client's feed: the complete view, followed by changes.
#[derive(Debug)]
pub struct Joined {
    pub first_event: Bytes,
    pub changes: broadcast::Receiver<Bytes>,
}

impl Hub {
    /// Joins a feed. `changes` continues from `first_event`. `source` is called if no client follows the same view yet.
    pub fn join(&self, group: &str, source: impl FnOnce() -> Source) -> Joined {
        let mut feeds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(feed) = feeds.get(group) {
            return feed.join();
        }
        let source = source();
        let feed = Arc::new(Feed {
            shown: Mutex::new(Shown {
                view: (source.look)(),
                full_event: None,
            }),
            changes: broadcast::Sender::new(CHANGES_MAX),
        });
        let joined = feed.join();
        feeds.insert(group.to_owned(), Arc::clone(&feed));
        begin(source, Arc::clone(&self.0), group.to_owned(), feed);
        joined
    }
}

/// Returns true if no client is left, and removes the feed; the next client starts another one.
fn is_left(feeds: &Feeds, group: &str, feed: &Feed) -> bool {
    let mut feeds = feeds.lock().unwrap_or_else(PoisonError::into_inner);
    let is_left = feed.changes.receiver_count() == 0;
    if is_left {
        feeds.remove(group);
    }
    is_left
}

impl Feed {
    fn join(&self) -> Joined {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let Shown {
            view,
            full_event: first_event,
        } = &mut *shown;
        Joined {
            first_event: first_event
                .get_or_insert_with(|| event("view", view))
                .clone(),
            changes: self.changes.subscribe(),
        }
    }

    /// Sends the differences to the previous view.
    fn tell(&self, newer: LiveView, with_times: bool) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(change) = shown.view.change_to(&newer, with_times) {
            // Fails only without receivers.
            let _ = self.changes.send(event("change", &change));
            shown.view.take(newer, &change);
            shown.full_event = None;
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "it belongs to all clients of the feed, and ends when the last one has left"
)]
fn begin(mut source: Source, feeds: Arc<Feeds>, group: String, feed: Arc<Feed>) {
    tokio::spawn(async move {
        let mut times_at = source.clock.now();
        loop {
            let is_over = tokio::select! {
                changed = source.published.changed() => changed.is_err(),
                () = tokio::time::sleep(LOOK_EVERY) => false,
            };
            if is_left(&feeds, &group, &feed) {
                return;
            }
            if is_over {
                break;
            }
            let now = source.clock.now();
            let with_times = now.since(times_at) >= TIMES_EVERY;
            if with_times {
                times_at = now;
            }
            feed.tell((source.look)(), with_times);
            tokio::time::sleep(EVERY).await;
        }
        // There will be no newer view.
        let mut feeds = feeds.lock().unwrap_or_else(PoisonError::into_inner);
        feeds.remove(&group);
    });
}

/// Encodes a server-sent event. JSON contains no line breaks.
pub fn event(name: &str, data: &impl Serialize) -> Bytes {
    let json = serde_json::to_string(data).unwrap_or_else(|_| "{}".to_owned());
    Bytes::from(format!("event: {name}\ndata: {json}\n\n"))
}
