//! What survives a restart: administrators' wishes, registrations, keys, measurements and the
//! history (D1, D3), and the audit. Owns the database file and is the only place with SQL. It never decides
//! anything, never hands out a row of another shape than the pool's own types, and never answers
//! before the change is on disk: SQLite with a write-ahead log and `synchronous = FULL`.
//!
//! ```text
//!   <name>.db        the database        <name>.db-wal, -shm   SQLite's own
//!   <name>.db.lock   held by the one model-pool that uses the file; contains its process id
//! ```
//!
//! Models are kept by name: their ids are given anew at each start. Times are Unix milliseconds.

mod audit;
mod cordons;
mod facts;
mod fault;
mod history;
mod keys;
mod measurements;
mod open;
mod upkeep;
mod usage;
mod wishes;
mod writer;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::fcntl::Flock;
use sqlx::sqlite::SqlitePool;

pub use audit::{AuditEntry, AuditQuery, StoredAudit};
pub use fault::StoreFault;
pub use history::{HistoryQuery, Retention, StoredMemory, StoredRecord, StoredShare};
pub use keys::{
    KeyHash, KeyRecord, KeyText, KeyUse, NewKey, Role, find_key, generate_key, hash_key,
};
pub use measurements::{Circumstances, Measurement, Measurements};
pub use usage::{DayUsage, UsageMinute};
pub use wishes::KeptWish;
pub use writer::WriteTrouble;

/// The open database. Closing it, or the last use of it, releases the lock file.
pub struct Store {
    path: PathBuf,
    /// Out of the other files' reach: they write by `Store::write` alone.
    writer: writer::Writer,
    readers: SqlitePool,
    /// Until it is closed.
    lock: Mutex<Option<Flock<File>>>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Store {
    /// The database file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Ends all connections, so that SQLite folds its log into the file, and releases the lock. Not
    /// needed for safety: whatever was answered is kept without it.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
        self.lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }

    fn failed(&self, doing: &'static str) -> impl FnOnce(sqlx::Error) -> StoreFault {
        let path = self.path.clone();
        move |source| StoreFault::Query {
            doing,
            path,
            source,
        }
    }

    fn bad_row(
        &self,
        table: &'static str,
        row: impl ToString,
        problem: impl ToString,
    ) -> StoreFault {
        StoreFault::BadRow {
            path: self.path.clone(),
            table,
            row: row.to_string(),
            problem: problem.to_string(),
        }
    }
}

/// SQLite's integers are signed. What does not fit (8 EiB, 292 million years) is kept as the largest.
fn to_integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// The reverse; a negative figure was never written by us and reads as 0.
fn from_integer(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// For figures whose type is `u32`; larger ones were never written by us.
fn from_small(value: i64) -> u32 {
    u32::try_from(value.max(0)).unwrap_or(u32::MAX)
}
