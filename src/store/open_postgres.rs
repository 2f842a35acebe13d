//! Opens the database on PostgreSQL: the URL, the lock, what the server must be able to do, and the schema.

use std::str::FromStr;
use std::time::Duration;

use config::DatabaseUrl;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions, Connection as _};

use super::connection::{Connection, Database, Readers, in_time};
use super::database::Lock;
use super::leadership::{Advertised, Leadership, own_name};
use super::query::query;
use super::{Store, StoreFault, migrations};

/// `WITH … AS MATERIALIZED`.
const OLDEST_SERVER: i64 = 12;

/// Connections that read: people who page the history do not block other readers.
const READERS: u32 = 4;
/// How long a reader waits for a connection.
const READER_WITHIN: Duration = Duration::from_secs(5);
/// How long a connection may take to answer after a read, before it is closed instead of used again.
const RELEASE_WITHIN: Duration = Duration::from_secs(3);
/// How long the server may take to say what it is.
const CHECK_WITHIN: Duration = Duration::from_secs(10);

/// Of every session. What was acknowledged is on the server's disk, and a session whose client has vanished or is frozen
/// soon holds nothing any more.
const SESSION: [(&str, &str); 6] = [
    ("synchronous_commit", "on"),
    ("idle_in_transaction_session_timeout", "5s"),
    ("tcp_keepalives_idle", "5"),
    ("tcp_keepalives_interval", "2"),
    ("tcp_keepalives_count", "3"),
    ("client_min_messages", "warning"),
];

/// A session that is given up while it waits for a lock goes on waiting on the server, which does not look at its client
/// meanwhile: without an end such sessions would add up until the server takes no more. Longer than a read is waited for.
const READ_ONLY: [(&str, &str); 2] = [
    ("default_transaction_read_only", "on"),
    ("lock_timeout", "30s"),
];

/// # Errors
/// [`StoreFault::PostgresUrl`], without the password.
pub(super) fn parse(database_url: &str) -> Result<Database, StoreFault> {
    let wrong = |problem: String| StoreFault::PostgresUrl { problem };
    let url = DatabaseUrl::from_str(database_url).map_err(|error| wrong(error.to_string()))?;
    let options =
        PgConnectOptions::from_str(&url.reveal()).map_err(|error| wrong(error.to_string()))?;
    let options = options
        .application_name(&own_name())
        .options(SESSION)
        .disable_statement_logging();
    Ok(Database::Postgres(Box::new(options)))
}

/// Takes the lock, brings the schema to this version, and raises the generation.
pub(super) async fn open(options: PgConnectOptions) -> Result<Store, StoreFault> {
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

/// The lock is held on this connection. Brings the schema to this version, and raises the generation.
pub(super) async fn lead(
    database: Database,
    mut first: Connection,
    own: Option<&Advertised>,
) -> Result<Store, StoreFault> {
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

pub(super) async fn readers(options: &PgConnectOptions) -> Result<Readers, sqlx::Error> {
    PgPoolOptions::new()
        .max_connections(READERS)
        .acquire_timeout(READER_WITHIN)
        // A read that was given up may leave a session that never answers. The connection pool would wait for it without end,
        // and after a few of them it would have none left.
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

/// Without the lock, and for reading alone.
pub(super) async fn read_only(database_url: &str) -> Result<Connection, sqlx::Error> {
    let wrong = |fault: StoreFault| sqlx::Error::Configuration(fault.into());
    let Database::Postgres(options) = parse(database_url).map_err(wrong)? else {
        return Err(sqlx::Error::PoolClosed);
    };
    Database::Postgres(Box::new(options.options(READ_ONLY)))
        .connect()
        .await
}

/// What the server must be able to do, in words instead of a statement that fails.
pub(super) async fn check_server(
    database: &Database,
    first: &mut Connection,
) -> Result<(), StoreFault> {
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
    Err(StoreFault::Unsuitable {
        place: database.place(),
        problem,
    })
}
