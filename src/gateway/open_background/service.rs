//! The background responses of all holders, in this process.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::entries::{Entries, Entry};
use super::event_file::KeptEvents;
use super::event_log::EventLog;
use store::BackgroundHead;

/// The folder of the files of events, in `state.dir`.
const FOLDER: &str = "background_events";
/// Background responses of all holders that have not ended.
pub const BACKGROUND_MAX: u64 = 20_000;

/// The background responses that have not ended.
#[derive(Debug)]
pub struct Backgrounds {
    /// The folder of the files of events.
    pub(crate) dir: PathBuf,
    entries: Mutex<Entries>,
    /// Wakes the runner after a change by a route.
    pub(crate) changed: Notify,
}

impl Backgrounds {
    /// `state_dir` is `state.dir`.
    pub fn new(state_dir: &Path) -> Backgrounds {
        let dir = state_dir.join(FOLDER);
        let entries = Entries {
            dir: Some(dir.clone()),
            ..Entries::default()
        };
        Backgrounds {
            dir,
            entries: Mutex::new(entries),
            changed: Notify::new(),
        }
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut Entries) -> T) -> T {
        work(&mut self.entries.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn entry(&self, holder: &str, id: &str) -> Option<Entry> {
        self.with(|entries| entries.find(holder, id).cloned())
    }

    /// Adds a response that is on disk, with the events that an earlier process has kept. Returns its events, if they are kept.
    pub(crate) fn add(&self, head: BackgroundHead, kept: KeptEvents) -> Option<Arc<EventLog>> {
        let entry = self.with(|entries| entries.add(head, kept));
        self.changed.notify_one();
        entry.events
    }

    /// The responses that run.
    pub(crate) fn running(&self) -> Vec<Entry> {
        let runs = |entry: &&Entry| entry.record.is_some();
        self.with(|entries| entries.by_id.values().filter(runs).cloned().collect())
    }

    /// The events of a response of this holder that has not ended; `Some(None)` if they are not kept.
    pub(crate) fn events(&self, holder: &str, id: &str) -> Option<Option<Arc<EventLog>>> {
        self.entry(holder, id).map(|entry| entry.events)
    }

    /// Returns true if this process knows the response.
    pub(crate) fn has(&self, holder: &str, id: &str) -> bool {
        self.with(|entries| entries.find(holder, id).is_some())
    }
}
