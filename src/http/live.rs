//! Follows the published view for open pages. All who may see the same share one feed: it compares the view with the
//! one before, at most every 100 ms, and writes a change once for everybody. A client that lags is sent the whole view
//! again, so that nothing waits for it here. A feed without followers ends. What the view shows depends on who joins.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use serde::Serialize;
use tokio::sync::{broadcast, watch};

use crate::dto::LiveView;
use controller::Clock;
use pool::Span;

/// Between two changes.
const EVERY: Duration = Duration::from_millis(100);
/// The age of waiting requests is sent this often, if nothing else of the queue changes.
const TIMES_EVERY: Span = Span::from_secs(2);
/// The evening and the store change without a newer view.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Changes that a client may lag behind.
const CHANGES_MAX: usize = 32;

type Feeds = Mutex<BTreeMap<String, Arc<Feed>>>;

/// The feeds, by what is seen.
#[derive(Debug, Default)]
pub struct Hub(Arc<Feeds>);

/// What a feed needs that begins.
pub struct Source {
    /// The view of the moment.
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

/// What everybody has been sent.
#[derive(Debug)]
struct Shown {
    view: LiveView,
    /// Written for the first client that needs it.
    full_event: Option<Bytes>,
}

/// One client: the whole view first, and the changes after it.
#[derive(Debug)]
pub struct Joined {
    pub first_event: Bytes,
    pub changes: broadcast::Receiver<Bytes>,
}

impl Hub {
    /// What comes after `first_event` is in `changes`. `source` is called where no client follows the same view yet.
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

/// Whether no client is left; then the feed is forgotten, so that the next one begins another.
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

    /// Sends what is not the same any more.
    fn tell(&self, newer: LiveView, with_times: bool) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(change) = shown.view.change_to(&newer, with_times) {
            // There may be no listener any more.
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

/// As it goes over the wire. JSON has no line breaks in it.
pub(crate) fn event(name: &str, data: &impl Serialize) -> Bytes {
    let json = serde_json::to_string(data).unwrap_or_else(|_| "{}".to_owned());
    Bytes::from(format!("event: {name}\ndata: {json}\n\n"))
}
