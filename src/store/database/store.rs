//! The open database with its location, connections and lock.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::Flock;

use super::leadership::{Leadership, Release};
use super::tenure::Tenure;
use super::writer::Writer;
use crate::sql::{Database, DatabaseLocation, Dialect, Readers, StoreError};

/// The open database. Closing it or dropping the last reference releases the lock.
pub struct Store {
    pub(crate) database: Database,
    /// Private: other files write only through `Store::write`.
    pub(crate) writer: Writer,
    pub(crate) readers: Readers,
    /// Set on PostgreSQL, for the service that leads.
    pub(crate) tenure: Option<Arc<Tenure>>,
    /// Held until the database is closed.
    pub(crate) lock: Mutex<Option<Lock>>,
}

/// The lock that excludes other model-pool processes.
#[expect(dead_code, reason = "the lock of a file is held, and never read")]
pub(crate) enum Lock {
    File(Flock<File>),
    Session(Leadership),
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store")
            .field("place", &self.place())
            .finish_non_exhaustive()
    }
}

impl Store {
    /// The database's location, without a password.
    pub fn place(&self) -> DatabaseLocation {
        self.database.place()
    }

    /// The path of a SQLite database.
    pub fn path(&self) -> Option<&Path> {
        match &self.database {
            Database::Sqlite { path, .. } => Some(path),
            Database::Postgres(_) => None,
        }
    }

    /// Closes all connections, which lets SQLite fold its log into the file, and releases the lock. Not needed for safety: every
    /// acknowledged change is on disk without it.
    pub async fn close(&self) {
        self.release(Release::ToAny).await;
    }

    /// Like `close`, for a takeover on this machine: standby processes on other machines let the successor go first.
    pub async fn close_for_successor(&self) {
        self.release(Release::ToSuccessor).await;
    }

    /// Returns true if this process may give orders. On PostgreSQL another process may have become the leader (D4).
    pub fn leads(&self) -> bool {
        self.tenure
            .as_ref()
            .is_none_or(|tenure| tenure.is_certain())
    }

    /// Returns the reason once this process is no longer the leader. Never returns with SQLite.
    pub async fn deposed(&self) -> String {
        match &self.tenure {
            Some(tenure) => tenure.over().await,
            None => std::future::pending().await,
        }
    }

    /// The generation by which nodes recognize the leader. `None` with SQLite, which has only one process.
    pub fn generation(&self) -> Option<u64> {
        let tenure = self.tenure.as_ref()?;
        u64::try_from(tenure.generation).ok()
    }

    async fn release(&self, to: Release) {
        self.readers.close().await;
        self.writer.close().await;
        let lock = {
            let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            lock.take()
        };
        if let Some(Lock::Session(session)) = lock {
            session.release(to).await;
        }
    }

    /// Returns true while the session that holds the lock is lost, for example because PostgreSQL is unreachable.
    pub fn has_lost_its_lock(&self) -> bool {
        self.tenure
            .as_ref()
            .is_some_and(|tenure| tenure.has_lost_its_session())
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.database.dialect()
    }

    pub(crate) fn failed(&self, doing: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
        let place = self.place();
        move |source| StoreError::Query {
            doing,
            place,
            source,
        }
    }

    pub(crate) fn bad_row(
        &self,
        table: &'static str,
        row: impl ToString,
        problem: impl ToString,
    ) -> StoreError {
        StoreError::BadRow {
            place: self.place(),
            table,
            row: row.to_string(),
            problem: problem.to_string(),
        }
    }
}
