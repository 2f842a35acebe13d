//! Opens the database on PostgreSQL: the URL, the lock, checks of the server, and the schema.

use std::str::FromStr;
use std::time::Duration;

use config::DatabaseUrl;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection as _};

use super::leadership::{LeaderAddress, Leadership, own_name};
use super::migrations;
use super::store::{Lock, Store};
use crate::sql::connection::in_time;
use crate::sql::query::query;
use crate::sql::{Connection, Database, Readers, StoreError};

/// Required for `WITH … AS MATERIALIZED`.
const OLDEST_SERVER: i64 = 12;

/// Number of reading connections: paging through the history must not block other readers.
const READERS: u32 = 4;
/// Time limit for a reader to get a connection.
const READER_WITHIN: Duration = Duration::from_secs(5);
/// Time limit for a connection to respond after a read. After it, the connection is closed instead of reused.
const RELEASE_WITHIN: Duration = Duration::from_secs(3);
/// Time limit for checking the server.
const CHECK_WITHIN: Duration = Duration::from_secs(10);

/// Options of every session. Acknowledged changes are on the server's disk, and a session whose client has vanished or is frozen
/// soon releases its locks.
const SESSION: [(&str, &str); 6] = [
    ("synchronous_commit", "on"),
    ("idle_in_transaction_session_timeout", "5s"),
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "2"),
    ("tcp_keepalives_count", "3"),
    ("client_min_messages", "warning"),
];

/// Options of sessions that read. An abandoned session that waits for a lock keeps waiting on the server, which does not check its
/// client in that state. Without a timeout such sessions would accumulate up to the server's limit. Longer than the time limit of a
/// read.
const READ_ONLY: [(&str, &str); 2] = [
    ("default_transaction_read_only", "on"),
    ("lock_timeout", "30s"),
];

/// # Errors
/// [`StoreError::PostgresUrl`], without the password.
pub(crate) fn parse(database_url: &str) -> Result<Database, StoreError> {
    let wrong = |problem: String| StoreError::PostgresUrl { problem };
    let url = DatabaseUrl::from_str(database_url).map_err(|error| wrong(error.to_string()))?;
    let options =
        PgConnectOptions::from_str(&url.reveal()).map_err(|error| wrong(error.to_string()))?;
    let options = options
        .application_name(&own_name())
        .options(SESSION)
        .disable_statement_logging();
    Ok(Database::Postgres(Box::new(options)))
}

/// Takes the lock, migrates the schema, and raises the generation.
pub(crate) async fn open(options: PgConnectOptions) -> Result<Store, StoreError> {
    let database = Database::Postgres(Box::new(options));
    let refused = |source| database.refused(source);
    let mut first = database.connect().await.map_err(refused)?;
    check_server(&database, &mut first).await?;
    let Connection::Postgres(session) = &mut first else {
        return Err(refused(sqlx::Error::PoolClosed));
    };
    Leadership::lock(&database, session).await?;
    lead(database, first, None).await
}

/// Migrates the schema and raises the generation on a connection that holds the lock.
pub(super) async fn lead(
    database: Database,
    mut first: Connection,
    own: Option<&LeaderAddress>,
) -> Result<Store, StoreError> {
    let refused = |source| database.refused(source);
    migrations::check_version(&database, &mut first).await?;
    migrations::run(&database, &mut first).await?;
    let Connection::Postgres(session) = first else {
        return Err(refused(sqlx::Error::PoolClosed));
    };
    let leadership = Leadership::begin(&database, session, own).await?;
    let writer = database.for_writes().connect().await.map_err(refused)?;
    Store::connected(database, writer, Some(Lock::Session(leadership))).await
}

pub(crate) async fn readers(options: &PgConnectOptions) -> Result<Readers, sqlx::Error> {
    PgPoolOptions::new()
        .max_connections(READERS)
        .acquire_timeout(READER_WITHIN)
        // An abandoned read may leave a session that never responds. The connection pool would wait for it indefinitely, and soon
        // have no session left.
        .after_release(|session, _| {
            Box::pin(async move {
                in_time(Some(RELEASE_WITHIN), session.ping()).await?;
                Ok(true)
            })
        })
        .connect_with(options.clone().options(READ_ONLY))
        .await
        .map(Readers::Postgres)
}

/// Opens a connection only for reading, without the lock.
pub(crate) async fn read_only(database_url: &str) -> Result<Connection, sqlx::Error> {
    let wrong = |fault: StoreError| sqlx::Error::Configuration(fault.into());
    let Database::Postgres(options) = parse(database_url).map_err(wrong)? else {
        return Err(sqlx::Error::PoolClosed);
    };
    Database::Postgres(Box::new(options.options(READ_ONLY)))
        .connect()
        .await
}

/// Checks the server's abilities, with clear messages in place of failing statements.
pub(super) async fn check_server(
    database: &Database,
    first: &mut Connection,
) -> Result<(), StoreError> {
    let row = query(
        "SELECT CAST(current_setting('server_version_num') AS BIGINT) / 10000 AS version, \
         CAST(current_setting('server_encoding') AS TEXT) AS encoding, \
         CAST(CAST(pg_is_in_recovery() AS int) AS BIGINT) AS standby",
    )
    .fetch_one(first);
    let row = in_time(Some(CHECK_WITHIN), row)
        .await
        .map_err(|source| database.refused(source))?;
    let (version, encoding): (i64, String) = (row.get("version"), row.get("encoding"));
    let problem = if version < OLDEST_SERVER {
        format!("its server is PostgreSQL {version}, and {OLDEST_SERVER} or later is needed")
    } else if encoding != "UTF8" {
        format!(
            "its encoding is {encoding}: create it with `CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0`"
        )
    } else if row.get::<i64>("standby") != 0 {
        "its server is a standby, which takes no writes: name the primary in state.database_url"
            .to_owned()
    } else {
        return Ok(());
    };
    Err(StoreError::Unsuitable {
        place: database.place(),
        problem,
    })
}
