//! The open database: where it is, its connections and its lock.

use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use nix::fcntl::Flock;

use crate::connection::{Database, Readers};
use crate::dialect::Dialect;
use crate::fault::StoreFault;
use crate::leadership::{Leadership, Release};
use crate::place::Place;
use crate::tenure::Tenure;
use crate::writer::Writer;

/// The open database. Closing it or dropping the last reference releases the lock.
pub struct Store {
    pub(crate) database: Database,
    /// Private: the other files write only through `Store::write`.
    pub(crate) writer: Writer,
    pub(crate) readers: Readers,
    /// On PostgreSQL, unless another service has the database.
    pub(crate) tenure: Option<Arc<Tenure>>,
    /// Held until the database is closed.
    pub(crate) lock: Mutex<Option<Lock>>,
}

/// What keeps another model-pool away.
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
    /// Where the database is, without a password.
    pub fn place(&self) -> Place {
        self.database.place()
    }

    /// The database file, if it is SQLite's.
    pub fn path(&self) -> Option<&Path> {
        match &self.database {
            Database::Sqlite { path, .. } => Some(path),
            Database::Postgres(_) => None,
        }
    }

    /// Closes all connections, so that SQLite folds its log into the file, and releases the lock. Not needed
    /// for safety: every acknowledged change is on disk without it.
    pub async fn close(&self) {
        self.release(Release::ToAny).await;
    }

    /// The same where a process that takes over on this machine opens it next: one that stands by on another machine lets it go
    /// first.
    pub async fn close_for_successor(&self) {
        self.release(Release::ToSuccessor).await;
    }

    /// Whether what this process orders counts: on PostgreSQL another one may lead by now (D4).
    pub fn leads(&self) -> bool {
        self.tenure.as_ref().is_none_or(|it| it.is_certain())
    }

    /// Returns when this process does not lead any more, with the reason; never with SQLite.
    pub async fn deposed(&self) -> String {
        match &self.tenure {
            Some(tenure) => tenure.over().await,
            None => std::future::pending().await,
        }
    }

    /// By which nodes know whose orders count. `None` with SQLite, which one process has.
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

    /// Whether the session that keeps another model-pool away is lost at the moment: PostgreSQL may be away.
    pub fn has_lost_its_lock(&self) -> bool {
        self.tenure
            .as_ref()
            .is_some_and(|it| it.has_lost_its_session())
    }

    pub(crate) fn dialect(&self) -> Dialect {
        self.database.dialect()
    }

    pub(crate) fn failed(&self, doing: &'static str) -> impl FnOnce(sqlx::Error) -> StoreFault {
        let place = self.place();
        move |source| StoreFault::Query {
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
    ) -> StoreFault {
        StoreFault::BadRow {
            place: self.place(),
            table,
            row: row.to_string(),
            problem: problem.to_string(),
        }
    }
}
