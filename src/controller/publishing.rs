//! Publishes what readers get: the routing table, the snapshot, and whether loads come to an end.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use super::routing::{Route, Routes};
use super::snapshot::Snapshot;
use super::watch::LoadPath;
use pool::{ModelId, Span, Time};

/// How long readers may see an older picture while much happens.
const PUBLISH_EVERY: Span = Span(20);
/// A snapshot of ten thousand replicas takes milliseconds: no more than this part of the loop's time goes into them, but they
/// never come later than after `PUBLISH_AT_LEAST`.
const PUBLISH_PART: u64 = 10;
const PUBLISH_AT_LEAST: Span = Span(500);

pub(super) struct Publishing {
    pub routes: Arc<ArcSwap<Routes>>,
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    pub load_path: Arc<ArcSwap<LoadPath>>,
    /// How many snapshots there have been, for those that wait for the next one.
    pub published: watch::Sender<u64>,
    /// The last sign that was given, by when it was asked for.
    pub answered: Arc<AtomicU64>,
    at: Time,
    /// From `at` to the next one at the earliest.
    pause: Span,
    /// How long the last snapshot took.
    took: Span,
    dirty: bool,
}

impl Publishing {
    pub fn new() -> Publishing {
        Publishing {
            routes: Arc::new(ArcSwap::from_pointee(Routes::default())),
            snapshot: Arc::new(ArcSwap::from_pointee(Snapshot::default())),
            load_path: Arc::default(),
            published: watch::Sender::default(),
            answered: Arc::default(),
            at: Time(0),
            pause: PUBLISH_EVERY,
            took: Span::ZERO,
            dirty: true,
        }
    }

    /// What readers see is old now.
    pub fn outdated(&mut self) {
        self.dirty = true;
    }

    /// When the next snapshot is due, if one is.
    pub fn due(&self) -> Option<Time> {
        self.dirty.then(|| self.at + self.pause)
    }

    pub fn publish(&mut self, now: Time, snapshot: Snapshot) {
        self.snapshot.store(Arc::new(snapshot));
        self.published.send_modify(|count| *count += 1);
        self.at = now;
        self.dirty = false;
    }

    /// How long the last snapshot has taken. Of the last two the shorter one counts: a loop that had to wait for a processor once
    /// shows nothing of the pool.
    pub fn took(&mut self, took: Span) {
        let usual = std::mem::replace(&mut self.took, took).min(took);
        let part = Span(usual.0.saturating_mul(PUBLISH_PART));
        self.pause = part.clamp(PUBLISH_EVERY, PUBLISH_AT_LEAST);
    }

    /// Whether a snapshot costs so little that one more does not matter.
    pub fn is_quick(&self) -> bool {
        self.pause == PUBLISH_EVERY
    }

    pub fn route(&self, model: ModelId) -> Option<Arc<Route>> {
        self.routes.load().of(model).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_that_take_long_come_less_often_and_come() {
        let mut publishing = Publishing::new();
        let mut due = |took: u64| {
            publishing.publish(Time(1_000), Snapshot::default());
            publishing.took(Span(took));
            publishing.outdated();
            publishing.due()
        };
        assert_eq!(due(0), Some(Time(1_020)));
        assert_eq!(due(2), Some(Time(1_020)));
        assert_eq!(due(9), Some(Time(1_020)), "once is no measure");
        assert_eq!(due(9), Some(Time(1_090)));
        assert_eq!(due(800), Some(Time(1_090)));
        assert_eq!(due(800), Some(Time(1_500)));
        assert_eq!(due(1), Some(Time(1_020)));
    }
}
