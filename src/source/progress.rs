//! The progress of a fetch: the download writes it, the display reads it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes that are present, and the total.
    done: AtomicU64,
    total: AtomicU64,
    /// Bytes received over the network in this fetch.
    came: AtomicU64,
    stage: Mutex<String>,
}

impl Progress {
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// 0 until it is known.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Bytes received in this fetch, for its speed.
    pub fn came(&self) -> u64 {
        self.came.load(Ordering::Relaxed)
    }

    /// A short description of the current activity.
    pub fn stage(&self) -> String {
        self.stage
            .lock()
            .map_or_else(|_| String::new(), |stage| stage.clone())
    }

    /// Per cent complete, rounded down to make 100 mean complete.
    pub fn percent(&self) -> Option<u8> {
        let total = self.total();
        let part = (u128::from(self.done()) * 100).checked_div(u128::from(total))?;
        Some(u8::try_from(part.min(100)).unwrap_or(100))
    }

    pub(super) fn set_stage(&self, stage: &str) {
        if let Ok(mut now) = self.stage.lock() {
            stage.clone_into(&mut now);
        }
    }

    pub(super) fn begins(&self, total: u64, there: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.done.store(there, Ordering::Relaxed);
    }

    pub(super) fn adds(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        self.came.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Adds bytes that another fetch or program downloaded.
    pub(super) fn found(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts bytes that turned out to be unusable.
    pub(super) fn loses(&self, bytes: u64) {
        let less = |done: u64| Some(done.saturating_sub(bytes));
        let _ = self
            .done
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    pub(super) fn left(&self) -> u64 {
        self.total().saturating_sub(self.done())
    }
}
