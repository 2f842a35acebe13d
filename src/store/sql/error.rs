//! Errors of the store, with messages that name the file and the remedy. They never contain a secret: statements are named without
//! their values, and addresses have no password.

use std::path::{Path, PathBuf};

use sqlx::migrate::MigrateError;

use super::location::DatabaseLocation;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error(
        "state.database_url {url:?}: {problem}; write for example \"sqlite://data/model-pool.db\""
    )]
    Url { url: String, problem: String },

    #[error("state.database_url: {problem}")]
    PostgresUrl { problem: String },

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

    #[error("the database {} is empty (0 bytes): it was truncated, or its first start was interrupted; restore a copy, or remove the file to start with an empty pool", path.display())]
    Empty { path: PathBuf },

    #[error("the database {} is missing, but its log {} exists: put the database back, or remove the log, which holds the last changes, to start with an empty pool", path.display(), log.display())]
    LogAlone { path: PathBuf, log: PathBuf },

    #[error("the database {} is damaged: {problem}; move it and its -wal and -shm files away and restore a copy, or start with an empty one", path.display())]
    Damaged { path: PathBuf, problem: String },

    #[error(
        "the database {place} has schema {found}, and this model-pool knows schemas up to {known}; start the newer model-pool that wrote it, or use another database"
    )]
    Newer {
        place: DatabaseLocation,
        found: i64,
        known: i64,
    },

    #[error(
        "the database {place} has schema {found}, and this model-pool has schema {known}; the service that uses it is older: replace it first with `model-pool serve --takeover`"
    )]
    Older {
        place: DatabaseLocation,
        found: i64,
        known: i64,
    },

    #[error("cannot open the database {place}: {source}")]
    Open {
        place: DatabaseLocation,
        source: sqlx::Error,
    },

    #[error(
        "cannot reach the database {place}: {source}; check that PostgreSQL runs there and accepts this user, and state.database_url"
    )]
    Unreachable {
        place: DatabaseLocation,
        source: sqlx::Error,
    },

    #[error(
        "the database {place} is in use by another model-pool{holder}; stop that one, or give this one another database (state.database_url)"
    )]
    DatabaseInUse {
        place: DatabaseLocation,
        holder: String,
    },

    #[error("the database {place} cannot be used: {problem}")]
    Unsuitable {
        place: DatabaseLocation,
        problem: String,
    },

    #[error(
        "cannot migrate the database {place} to this version's schema: {source}; nothing was lost, restore a copy or report this"
    )]
    Migrate {
        place: DatabaseLocation,
        source: MigrateError,
    },

    #[error("cannot {doing} in {place}: {source}; {advice}")]
    Unwritable {
        doing: &'static str,
        place: DatabaseLocation,
        source: sqlx::Error,
        /// The advice, with numbers.
        advice: String,
    },

    #[error("cannot {doing} in {place}: {source}{}", way_back(place, source))]
    Query {
        doing: &'static str,
        place: DatabaseLocation,
        source: sqlx::Error,
    },

    #[error(
        "{place}: table {table}, row {row}: {problem}; the row was not written by model-pool, correct or delete it"
    )]
    BadRow {
        place: DatabaseLocation,
        table: &'static str,
        row: String,
        problem: String,
    },

    #[error("the system gave no random bytes for a new key: {source}")]
    Random { source: rand::rand_core::OsError },
}

impl StoreError {
    /// Returns true if the store logs the error itself, once for all failing writes.
    pub fn is_logged_by_the_store(&self) -> bool {
        matches!(self, StoreError::Unwritable { .. })
    }

    /// Returns true if the database works but refused a value of the write.
    pub fn is_of_a_value(&self) -> bool {
        matches!(
            self,
            StoreError::Query {
                source: sqlx::Error::Database(_) | sqlx::Error::Encode(_),
                ..
            }
        )
    }

    /// Returns true if the store is closed, possibly because another process has taken over.
    pub fn is_closed(&self) -> bool {
        matches!(
            self,
            StoreError::Query {
                source: sqlx::Error::PoolClosed,
                ..
            }
        )
    }
}

/// SQLite's result codes 11 (SQLITE_CORRUPT) and 26 (SQLITE_NOTADB), with their extended forms.
pub(crate) fn refused_by_sqlite(path: &Path, source: sqlx::Error) -> StoreError {
    let code = source
        .as_database_error()
        .and_then(|error| error.code())
        .and_then(|code| code.parse::<i32>().ok())
        .map(|code| code & 0xff);
    match code {
        Some(11) => StoreError::Damaged {
            path: path.to_path_buf(),
            problem: source.to_string(),
        },
        Some(26) => StoreError::NotADatabase {
            path: path.to_path_buf(),
        },
        _ => StoreError::Open {
            place: DatabaseLocation::new(path),
            source,
        },
    }
}

/// The advice for an unreachable server, if the error is of that kind.
fn way_back(place: &DatabaseLocation, source: &sqlx::Error) -> String {
    let is_unreached = matches!(
        source,
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::Tls(_)
    );
    if is_unreached && place.is_on_a_server() {
        format!("; check that PostgreSQL runs at {place} and can be reached from here")
    } else {
        String::new()
    }
}
