//! Errors of the store, with messages that name the file and what to do next. They never contain a secret:
//! statements are named, their values are not repeated.

use std::path::PathBuf;

use sqlx::migrate::MigrateError;

#[derive(Debug, thiserror::Error)]
pub enum StoreFault {
    #[error(
        "state.database_url {url:?}: {problem}; write for example \"sqlite://data/model-pool.db\""
    )]
    Url { url: String, problem: String },

    #[error("cannot create the folder {} for the database: {source}; create it for this user, or set state.database_url to a folder that can be written", path.display())]
    Folder {
        path: PathBuf,
        source: std::io::Error,
    },

    #[error("cannot write {}: {source}; make the file and its folder writable for this user, or set state.database_url to another file", path.display())]
    NotWritable {
        path: PathBuf,
        source: std::io::Error,
    },

    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },

    #[error("{} is in use by another model-pool{holder}; stop that one, or give this one its own state.database_url (the lock is {})", path.display(), lock.display())]
    InUse {
        path: PathBuf,
        lock: PathBuf,
        holder: String,
    },

    #[error("cannot lock {}: {source}; the folder must be on a file system with advisory locks", path.display())]
    Lock {
        path: PathBuf,
        source: std::io::Error,
    },

    #[error("{} is not a SQLite database; move it away, or set state.database_url to another file", path.display())]
    NotADatabase { path: PathBuf },

    #[error("the database {} is damaged: {problem}; move it and its -wal and -shm files away and restore a copy, or start with an empty one", path.display())]
    Damaged { path: PathBuf, problem: String },

    #[error("the database {} has schema {found}, and this model-pool knows schemas up to {known}; start the newer model-pool that wrote it, or use another file", path.display())]
    Newer {
        path: PathBuf,
        found: i64,
        known: i64,
    },

    #[error("the database {} has schema {found}, and this model-pool has schema {known}; the service that uses it is older: replace it first with `model-pool serve --takeover`", path.display())]
    Older {
        path: PathBuf,
        found: i64,
        known: i64,
    },

    #[error("cannot open the database {}: {source}", path.display())]
    Open { path: PathBuf, source: sqlx::Error },

    #[error("cannot bring the database {} to this version's schema: {source}; nothing was lost, restore a copy or report this", path.display())]
    Migrate { path: PathBuf, source: MigrateError },

    #[error("cannot {doing} in {}: {source}; {advice}", path.display())]
    Unwritable {
        doing: &'static str,
        path: PathBuf,
        source: sqlx::Error,
        /// What to do, with numbers.
        advice: String,
    },

    #[error("cannot {doing} in {}: {source}", path.display())]
    Query {
        doing: &'static str,
        path: PathBuf,
        source: sqlx::Error,
    },

    #[error("{}: table {table}, row {row}: {problem}; the row was not written by model-pool, correct or delete it", path.display())]
    BadRow {
        path: PathBuf,
        table: &'static str,
        row: String,
        problem: String,
    },

    #[error("the system gave no random bytes for a new key: {source}")]
    Random { source: rand::rand_core::OsError },
}

impl StoreFault {
    /// Whether the store logs the fault itself, once for all writes that fail.
    pub fn is_logged_by_the_store(&self) -> bool {
        matches!(self, StoreFault::Unwritable { .. })
    }

    /// Whether the store is closed: another process may have it now.
    pub fn is_closed(&self) -> bool {
        matches!(
            self,
            StoreFault::Query {
                source: sqlx::Error::PoolClosed,
                ..
            }
        )
    }
}
