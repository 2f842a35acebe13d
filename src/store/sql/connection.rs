//! Connections to either database, and their transactions.

use std::path::PathBuf;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqlitePool};
use sqlx::{ConnectOptions, Connection as _, Executor, Row as _};

use super::dialect::Dialect;
use super::error::{StoreError, refused_by_sqlite};
use super::location::DatabaseLocation;
use super::query::too_slow;

/// Time limit for a connection to PostgreSQL.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Time limit for a write to PostgreSQL, including the connection it may need.
const WRITE_WITHIN: Duration = Duration::from_secs(10);
/// Time limit after a failed write, because other writes wait.
const AGAIN_WITHIN: Duration = Duration::from_secs(3);

/// Options of sessions that write. An abandoned session that waits for a table lock keeps waiting on the server, and holds the row
/// of `leadership` until it ends. A new leader waits longer than this for that row (`leadership`).
const WRITING: [(&str, &str); 1] = [("lock_timeout", "5s")];

/// Time for which reads in progress may delay closing.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// The location of the database, with the options to connect to it.
#[derive(Clone)]
#[expect(
    clippy::large_enum_variant,
    reason = "a store has one, which is moved a few times when it is opened"
)]
pub(crate) enum Database {
    Sqlite {
        path: PathBuf,
        options: SqliteConnectOptions,
    },
    Postgres(Box<PgConnectOptions>),
}

impl Database {
    pub fn dialect(&self) -> Dialect {
        match self {
            Database::Sqlite { .. } => Dialect::Sqlite,
            Database::Postgres(_) => Dialect::Postgres,
        }
    }

    pub fn place(&self) -> DatabaseLocation {
        match self {
            Database::Sqlite { path, .. } => DatabaseLocation::new(path),
            Database::Postgres(options) => DatabaseLocation::of_postgres(options),
        }
    }

    /// The error for a database that cannot be opened.
    pub fn refused(&self, source: sqlx::Error) -> StoreError {
        match self {
            Database::Sqlite { path, .. } => refused_by_sqlite(path, source),
            Database::Postgres(_) => StoreError::Unreachable {
                place: self.place(),
                source,
            },
        }
    }

    pub async fn connect(&self) -> Result<Connection, sqlx::Error> {
        match self {
            Database::Sqlite { options, .. } => Ok(Connection::Sqlite(options.connect().await?)),
            Database::Postgres(options) => {
                let connect = tokio::time::timeout(CONNECT_WITHIN, options.connect());
                let connected = connect.await.map_err(|_| too_slow(CONNECT_WITHIN))?;
                connected.map(Connection::Postgres)
            }
        }
    }

    /// The same database with the options of sessions that write, for use once the schema is migrated.
    pub fn for_writes(&self) -> Database {
        match self {
            Database::Sqlite { .. } => self.clone(),
            Database::Postgres(options) => {
                Database::Postgres(Box::new((**options).clone().options(WRITING)))
            }
        }
    }

    /// The time limit for a write. `None` for SQLite, whose busy timeout applies.
    pub fn write_within(&self, has_failed: bool) -> Option<Duration> {
        match (self, has_failed) {
            (Database::Sqlite { .. }, _) => None,
            (Database::Postgres(_), false) => Some(WRITE_WITHIN),
            (Database::Postgres(_), true) => Some(AGAIN_WITHIN),
        }
    }
}

/// Limits the time of `work`: a response that the network lost never arrives.
pub(crate) async fn in_time<T>(
    within: Option<Duration>,
    work: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, sqlx::Error> {
    match within {
        None => work.await,
        Some(within) => tokio::time::timeout(within, work)
            .await
            .unwrap_or_else(|_| Err(too_slow(within))),
    }
}

/// The connection that writes.
pub(crate) enum Connection {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

/// Connections that cannot write.
pub(crate) enum Readers {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

impl Connection {
    /// Begins a transaction. On PostgreSQL, fails if another model-pool has raised the generation.
    pub async fn begin(&mut self, generation: Option<i64>) -> Result<(), sqlx::Error> {
        match self {
            Connection::Sqlite(connection) => {
                connection.execute("BEGIN IMMEDIATE").await?;
            }
            Connection::Postgres(connection) => {
                let Some(generation) = generation else {
                    connection.execute("BEGIN").await?;
                    return Ok(());
                };
                // A single message to the server. `FOR SHARE` prevents a new generation before this transaction ends.
                let sql = "BEGIN; SELECT generation FROM leadership WHERE id = 1 FOR SHARE";
                let rows = sqlx::raw_sql(sql).fetch_all(connection).await?;
                let now: Option<i64> = rows.first().map(|row| row.get(0));
                if now != Some(generation) {
                    return Err(fenced());
                }
            }
        }
        Ok(())
    }

    /// Commits. Fails if the transaction no longer exists, to never report a lost change as stored.
    pub async fn commit(&mut self) -> Result<(), sqlx::Error> {
        match self {
            Connection::Sqlite(connection) => {
                connection.execute("COMMIT").await?;
            }
            // PostgreSQL's `COMMIT` alone succeeds without a transaction, and after a failed statement.
            Connection::Postgres(connection) => {
                let sql = "SAVEPOINT complete; COMMIT";
                connection.execute(sqlx::raw_sql(sql)).await?;
            }
        }
        Ok(())
    }

    pub async fn close(self) -> Result<(), sqlx::Error> {
        match self {
            Connection::Sqlite(connection) => connection.close().await,
            Connection::Postgres(connection) => connection.close().await,
        }
    }

    /// Closes without a message to the database.
    pub async fn close_hard(self) -> Result<(), sqlx::Error> {
        match self {
            Connection::Sqlite(connection) => connection.close_hard().await,
            Connection::Postgres(connection) => connection.close_hard().await,
        }
    }
}

impl Readers {
    pub async fn close(&self) {
        match self {
            Readers::Sqlite(pool) => pool.close().await,
            Readers::Postgres(pool) => {
                // Waits for reads in progress, whose responses may never arrive.
                let _ = tokio::time::timeout(CLOSE_WITHIN, pool.close()).await;
            }
        }
    }
}

/// The database's own code of an error.
pub(crate) fn code(error: &sqlx::Error) -> Option<String> {
    let error = error.as_database_error()?;
    error.code().map(|code| code.into_owned())
}

/// Another model-pool has taken over this database.
#[derive(Debug, thiserror::Error)]
#[error("another model-pool has taken over this database")]
pub(crate) struct FencedError;

pub(super) fn fenced() -> sqlx::Error {
    sqlx::Error::Io(std::io::Error::other(FencedError))
}

pub(crate) fn is_fenced(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(error) => error
            .get_ref()
            .is_some_and(|inner| inner.is::<FencedError>()),
        _ => false,
    }
}
