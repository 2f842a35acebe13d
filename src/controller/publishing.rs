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

pub(super) struct Publishing {
    pub routes: Arc<ArcSwap<Routes>>,
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    pub load_path: Arc<ArcSwap<LoadPath>>,
    /// How many snapshots there have been, for those that wait for the next one.
    pub published: watch::Sender<u64>,
    /// The last sign that was given, by when it was asked for.
    pub answered: Arc<AtomicU64>,
    at: Time,
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
            dirty: true,
        }
    }

    /// What readers see is old now.
    pub fn outdated(&mut self) {
        self.dirty = true;
    }

    /// When the next snapshot is due, if one is.
    pub fn due(&self) -> Option<Time> {
        self.dirty.then(|| self.at + PUBLISH_EVERY)
    }

    pub fn publish(&mut self, now: Time, snapshot: Snapshot) {
        self.snapshot.store(Arc::new(snapshot));
        self.published.send_modify(|count| *count += 1);
        self.at = now;
        self.dirty = false;
    }

    pub fn route(&self, model: ModelId) -> Option<Arc<Route>> {
        self.routes.load().of(model).cloned()
    }
}
