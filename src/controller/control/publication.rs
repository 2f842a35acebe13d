//! Publishes the state for readers: the routing table, the snapshot, and the state of the load path.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;
use tokio::sync::watch;

use crate::gates::{Gate, Route, Routes};
use crate::view::{LoadPath, Snapshot};
use pool::{ModelId, ReplicaId, Span, Time};

/// Minimum pause between snapshots. Readers may lag by this much under load.
const PUBLISH_EVERY: Span = Span(20);
/// A snapshot of ten thousand replicas takes milliseconds. At most this part of the loop's time goes into snapshots, with a pause
/// of at most `PUBLISH_AT_LEAST`.
const PUBLISH_PART: u64 = 10;
const PUBLISH_AT_LEAST: Span = Span(500);

pub(crate) struct Publishing {
    pub routes: Arc<ArcSwap<Routes>>,
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    pub load_path: Arc<ArcSwap<LoadPath>>,
    /// Number of snapshots published, for readers that wait for the next.
    pub published: watch::Sender<u64>,
    /// The last sign of life, as the time at which it was requested.
    pub responded: Arc<AtomicU64>,
    at: Time,
    /// Minimum time from `at` to the next snapshot.
    pause: Span,
    /// Time that the last snapshot took.
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
            responded: Arc::default(),
            at: Time(0),
            pause: PUBLISH_EVERY,
            took: Span::ZERO,
            dirty: true,
        }
    }

    /// Marks the published snapshot as outdated.
    pub fn outdated(&mut self) {
        self.dirty = true;
    }

    /// Time at which the next snapshot is due, if one is.
    pub fn due(&self) -> Option<Time> {
        self.dirty.then(|| self.at + self.pause)
    }

    pub fn publish(&mut self, now: Time, snapshot: Snapshot) {
        self.snapshot.store(Arc::new(snapshot));
        self.published.send_modify(|count| *count += 1);
        self.at = now;
        self.dirty = false;
    }

    /// Sets the pause from the time that the last snapshot took. The shorter of the last two counts, to ignore a loop that once had
    /// to wait for a processor.
    pub fn took(&mut self, took: Span) {
        let usual = std::mem::replace(&mut self.took, took).min(took);
        let part = Span(usual.0.saturating_mul(PUBLISH_PART));
        self.pause = part.clamp(PUBLISH_EVERY, PUBLISH_AT_LEAST);
    }

    /// Returns true if a snapshot is cheap enough to publish immediately.
    pub fn is_quick(&self) -> bool {
        self.pause == PUBLISH_EVERY
    }

    pub fn route(&self, model: ModelId) -> Option<Arc<Route>> {
        self.routes.load().route(model).cloned()
    }

    /// Changes the gates of a model in the routing table.
    pub fn change_gates(&self, model: ModelId, change: impl FnOnce(&mut Vec<Arc<Gate>>)) {
        if let Some(route) = self.route(model) {
            let mut gates = route.gates.load().as_ref().clone();
            change(&mut gates);
            route.gates.store(Arc::new(gates));
        }
    }

    pub fn withdraw(&self, replica: ReplicaId, model: ModelId) {
        self.change_gates(model, |gates| gates.retain(|gate| gate.replica != replica));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_snapshots_are_published_less_often_but_never_stop() {
        let mut publishing = Publishing::new();
        let mut due = |took: u64| {
            publishing.publish(Time(1_000), Snapshot::default());
            publishing.took(Span(took));
            publishing.outdated();
            publishing.due()
        };
        assert_eq!(due(0), Some(Time(1_020)));
        assert_eq!(due(2), Some(Time(1_020)));
        assert_eq!(
            due(9),
            Some(Time(1_020)),
            "a single slow snapshot is ignored"
        );
        assert_eq!(due(9), Some(Time(1_090)));
        assert_eq!(due(800), Some(Time(1_090)));
        assert_eq!(due(800), Some(Time(1_500)));
        assert_eq!(due(1), Some(Time(1_020)));
    }
}
