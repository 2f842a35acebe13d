//! The open database: its file, its connections and its lock.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::fcntl::Flock;
use sqlx::sqlite::SqlitePool;

use crate::fault::StoreFault;
use crate::writer::Writer;

/// The open database. Closing it or dropping the last reference releases the lock file.
pub struct Store {
    pub(crate) path: PathBuf,
    /// Private: the other files write only through `Store::write`.
    pub(crate) writer: Writer,
    pub(crate) readers: SqlitePool,
    /// Held until the database is closed.
    pub(crate) lock: Mutex<Option<Flock<File>>>,
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

    /// Closes all connections, so that SQLite folds its log into the file, and releases the lock. Not needed
    /// for safety: every acknowledged change is on disk without it.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
        self.lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }

    pub(crate) fn failed(&self, doing: &'static str) -> impl FnOnce(sqlx::Error) -> StoreFault {
        let path = self.path.clone();
        move |source| StoreFault::Query {
            doing,
            path,
            source,
        }
    }

    pub(crate) fn bad_row(
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
