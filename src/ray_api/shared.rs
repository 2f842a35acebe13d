//! What the writers of one process share, whatever Ray they write to. One Ray may have two addresses that no text shows to be
//! the same, and so two writers: neither may take the other's applications for left over.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::timeout;

use super::doubt::{DOUBT, Doubts};
use super::ledger::Ledger;

/// How long a write waits for the one before it. A Ray that hangs must not keep the others from being written.
const TURN_MAX: Duration = Duration::from_secs(10);

/// Of one process.
#[derive(Debug)]
pub struct ServeShared {
    /// The applications that this process wants, in any Ray. Their names have the numbers of replicas, so that each is there once.
    alive: Mutex<BTreeSet<String>>,
    pub(super) doubts: Doubts,
    turn: tokio::sync::Mutex<()>,
    pub(super) ledger: Ledger,
}

impl Default for ServeShared {
    fn default() -> ServeShared {
        ServeShared::new(Ledger::default())
    }
}

impl ServeShared {
    pub fn new(ledger: Ledger) -> ServeShared {
        ServeShared {
            alive: Mutex::default(),
            doubts: Doubts::new(DOUBT),
            turn: tokio::sync::Mutex::new(()),
            ledger,
        }
    }

    /// For tests, which cannot wait so long.
    #[cfg(test)]
    pub(super) fn with_doubt(lasts: Duration) -> ServeShared {
        ServeShared {
            doubts: Doubts::new(lasts),
            ..ServeShared::default()
        }
    }

    /// The Rays that were used, by earlier processes too.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) fn keep(&self, name: &str) {
        self.lock().insert(name.to_owned());
    }

    pub(super) fn let_go(&self, name: &str) {
        self.lock().remove(name);
    }

    pub(super) fn alive(&self) -> BTreeSet<String> {
        self.lock().clone()
    }

    /// From the last look before a write to the first one after it, no other writer of this process writes.
    pub(super) async fn turn(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        timeout(TURN_MAX, self.turn.lock()).await.ok()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
