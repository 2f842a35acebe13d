//! Leadership on PostgreSQL: one model-pool per database. A separate session holds an advisory lock, and every start raises the
//! generation in the table `leadership`. Writes check the generation in their own transaction, so a process that has lost the lock
//! unknowingly can no longer write. `tenure` decides which orders it may still give.
//!
//! ```text
//!   Held ──▶ the session ends ──▶ lock taken again, generation unchanged ──▶ Held
//!                     │            generation is another's ──▶ gone for good
//!                     └─ a standby process has the lock ──▶ claimed; it gives the lock back at its next look
//! ```

use std::sync::Arc;
use std::time::Duration;

use chrono::Utc;
use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Executor, Row as _};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::tenure::{Tenure, UNCONFIRMED_MAX, now};
use crate::sql::connection::in_time;
use crate::sql::{Connection, Database, StoreError};

/// One lock per schema, which lets several pools share a database.
const LOCK: &str = "hashtextextended('model-pool ' || current_schema(), 0)";

/// A second lock, with which a leader that has lost its session claims the first one back.
const CLAIM: &str = "hashtextextended('model-pool returns ' || current_schema(), 0)";

/// Interval for using the session, to notice its loss.
const EVERY: Duration = Duration::from_secs(1);
/// Interval for attempts to get the lock back.
const RETURN_EVERY: Duration = Duration::from_millis(100);
/// Time limit for the session's response.
const RESPOND_WITHIN: Duration = Duration::from_secs(5);
/// Time limit for a leader's first statement, which may have to wait for a write of the former leader. Longer than such a write
/// waits for a table lock.
const BEGIN_WITHIN: Duration = Duration::from_secs(10);
/// With standby processes, makes the server end the session of a frozen process, which has given up by that time. Requires
/// PostgreSQL 14; older servers do not have the setting.
const END_WHEN_IDLE: &str =
    "SELECT set_config(name, '5s', false) FROM pg_settings WHERE name = 'idle_session_timeout'";
/// Time limit for the final statement.
const LAST_WORD_WITHIN: Duration = Duration::from_secs(2);
/// Time for which the lock is reserved for a takeover on the same machine.
const RESERVED_MS: i64 = 10_000;

/// Attempts to get the lock at a start, and the pause between them: the server needs some time to notice that a killed process is
/// gone.
const TRIES: u32 = 30;
const PAUSE: Duration = Duration::from_millis(100);

/// The address at which standby processes reach the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaderAddress {
    /// Scheme, host and port.
    pub address: String,
    /// The fingerprint of its certificate; `None` if an authority has signed it.
    pub fingerprint: Option<String>,
}

/// The lock and its generation. Dropping it releases the lock.
pub(crate) struct Leadership {
    pub tenure: Arc<Tenure>,
    stop: Option<oneshot::Sender<Release>>,
    task: JoinHandle<()>,
}

/// The processes that may take the lock next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    ToAny,
    /// For a short time only a successor on this machine.
    ToSuccessor,
}

impl Leadership {
    /// Takes the lock on this connection. The error names its holder.
    pub async fn lock(
        database: &Database,
        connection: &mut PgConnection,
    ) -> Result<(), StoreError> {
        let failed = |source| StoreError::Open {
            place: database.place(),
            source,
        };
        for tried in 1.. {
            if try_lock(connection).await.map_err(failed)? {
                break;
            }
            if tried >= TRIES {
                let holder = holder(connection).await.map_err(failed)?;
                return Err(StoreError::DatabaseInUse {
                    place: database.place(),
                    holder: holder.map_or_else(String::new, |name| format!(" ({name})")),
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Raises the generation, which ends the right of all others to write, and holds the lock from now on. With an address, standby
    /// processes are possible and leadership has to be confirmed.
    ///
    /// Nodes remember the highest generation. It is at least the Unix time in seconds, which keeps a new or restored database from
    /// falling behind their memory.
    pub async fn begin(
        database: &Database,
        mut connection: PgConnection,
        own: Option<&LeaderAddress>,
    ) -> Result<Leadership, StoreError> {
        let (address, fingerprint) = match own {
            None => ("", ""),
            Some(own) => (
                own.address.as_str(),
                own.fingerprint.as_deref().unwrap_or_default(),
            ),
        };
        let raised = sqlx::query(
            "UPDATE leadership SET generation = GREATEST(generation + 1, CAST($1 AS BIGINT) / 1000), \
             since_at = CAST($1 AS BIGINT), holder = $2, address = $3, fingerprint = $4, \
             released_at = 0, reserved_until = 0 WHERE id = 1 RETURNING generation",
        )
        .bind(Utc::now().timestamp_millis())
        .bind(own_name())
        .bind(address.to_owned())
        .bind(fingerprint.to_owned());
        let failed = |source| StoreError::Open {
            place: database.place(),
            source,
        };
        let raised = in_time(Some(BEGIN_WITHIN), raised.fetch_one(&mut connection)).await;
        let raised = raised.map_err(failed)?;
        if own.is_some() {
            end_when_idle(&mut connection).await.map_err(failed)?;
        }
        // The statement may have waited for a write of the former leader, so this asks again.
        let question_at = now();
        check_alive(&mut connection).await.map_err(failed)?;
        let limit = own.map(|_| UNCONFIRMED_MAX);
        let tenure = Arc::new(Tenure::new(raised.get(0), limit, question_at));
        let (stop, stopped) = oneshot::channel();
        let task = hold(database.clone(), connection, Arc::clone(&tenure), stopped);
        Ok(Leadership {
            tenure,
            stop: Some(stop),
            task: spawn(task),
        })
    }

    /// Ends the session, which frees the lock.
    pub async fn release(mut self, to: Release) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(to);
        }
        let _ = (&mut self.task).await;
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the task that holds the lock; it ends with the store that owns it"
)]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(task)
}

/// The name of this process in PostgreSQL's list of sessions.
pub(super) fn own_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = format!("model-pool {} process {}", host.trim(), std::process::id());
    // PostgreSQL truncates longer names.
    name.chars().filter(char::is_ascii).take(63).collect()
}

pub(super) async fn try_lock(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let sql = format!("SELECT pg_try_advisory_lock({LOCK})");
    let row = connection
        .fetch_one(sqlx::query(sqlx::AssertSqlSafe(sql)))
        .await?;
    Ok(row.get(0))
}

/// Gives back the lock of a process that does not lead yet.
pub(super) async fn unlock(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let sql = format!("SELECT pg_advisory_unlock({LOCK})");
    let unlock = connection.execute(sqlx::query(sqlx::AssertSqlSafe(sql)));
    unlock.await.map(|_| ())
}

/// Returns true if a leader that has lost its session claims the lock.
pub(super) async fn is_claimed(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let sql = format!(
        "SELECT EXISTS (SELECT 1 FROM pg_locks l WHERE {})",
        held(CLAIM)
    );
    let row = connection
        .fetch_one(sqlx::query(sqlx::AssertSqlSafe(sql)))
        .await?;
    Ok(row.get(0))
}

/// The condition on `pg_locks l` that a session holds this lock.
fn held(lock: &str) -> String {
    format!(
        "l.locktype = 'advisory' AND l.granted \
         AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
         AND ((CAST(l.classid AS bigint) << 32) | CAST(l.objid AS bigint)) = {lock}"
    )
}

/// The name of the process that has the lock.
async fn holder(connection: &mut PgConnection) -> Result<Option<String>, sqlx::Error> {
    let sql = format!(
        "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid WHERE {}",
        held(LOCK)
    );
    let row = connection
        .fetch_optional(sqlx::query(sqlx::AssertSqlSafe(sql)))
        .await?;
    Ok(row.and_then(|row| row.get::<Option<String>, _>(0)))
}

/// Keeps the session alive until the release, and opens a new one if it is lost.
async fn hold(
    database: Database,
    connection: PgConnection,
    tenure: Arc<Tenure>,
    mut stopped: oneshot::Receiver<Release>,
) {
    let mut session = Some(connection);
    // The session that claims the lock, while another process has it.
    let mut claiming = None;
    let release = loop {
        let pause = if session.is_some() {
            EVERY
        } else {
            RETURN_EVERY
        };
        tokio::select! {
            release = &mut stopped => break release.unwrap_or(Release::ToAny),
            () = tokio::time::sleep(pause) => {}
        }
        // A response proves that the lock was held at some time after the question was sent.
        let question_at = now();
        let checked = match session.as_mut() {
            Some(connection) => check_alive(connection)
                .await
                .map(|()| tenure.confirm(question_at)),
            None => match again(&database, &tenure, claiming.take()).await {
                Ok(ReconnectResult::Held(connection)) => {
                    tracing::info!(
                        "the lock of the database {} is held again",
                        database.place()
                    );
                    tenure.confirm(question_at);
                    session = Some(*connection);
                    Ok(())
                }
                Ok(ReconnectResult::Later(connection)) => {
                    claiming = Some(connection);
                    Ok(())
                }
                Ok(ReconnectResult::Never) => {
                    let why = format!(
                        "another model-pool has taken over the database {}",
                        database.place()
                    );
                    tracing::error!("{why}; this process no longer writes");
                    tenure.end(&why);
                    return;
                }
                // The writer reports the reason that the database is unreachable.
                Err(_) => Ok(()),
            },
        };
        if let Err(error) = checked {
            tracing::warn!(
                "the session that holds the lock of the database {} is lost: {error}",
                database.place()
            );
            tenure.lost_its_session();
            session = None;
        }
    };
    // From here on, another process may become the leader immediately.
    tenure.end("it has given up the leadership");
    if let Some(mut connection) = session {
        let noted = in_time(
            Some(LAST_WORD_WITHIN),
            note_release(&mut connection, tenure.generation, release),
        );
        if let Err(error) = noted.await {
            tracing::debug!(%error, "the next leader has to wait");
        }
        let _ = connection.close().await;
    }
}

/// Records that this process gives no more orders, which spares the next leader the wait.
async fn note_release(
    connection: &mut PgConnection,
    generation: i64,
    release: Release,
) -> Result<(), sqlx::Error> {
    let reserved_ms = match release {
        Release::ToAny => 0,
        Release::ToSuccessor => RESERVED_MS,
    };
    sqlx::query(
        "UPDATE leadership SET released_at = CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT), \
         reserved_until = CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT) + CAST($2 AS BIGINT) \
         WHERE id = 1 AND generation = $1",
    )
    .bind(generation)
    .bind(reserved_ms)
    .execute(connection)
    .await
    .map(|_| ())
}

/// Checks that the session responds in time.
async fn check_alive(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let ping = tokio::time::timeout(RESPOND_WITHIN, connection.ping());
    ping.await
        .unwrap_or_else(|_| Err(crate::sql::query::too_slow(RESPOND_WITHIN)))
}

async fn end_when_idle(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let set = connection.execute(sqlx::query(END_WHEN_IDLE));
    in_time(Some(RESPOND_WITHIN), set).await.map(|_| ())
}

enum ReconnectResult {
    Held(Box<PgConnection>),
    /// A standby process has the lock, or the server has not noticed yet that the former session is gone. This session claims the
    /// lock.
    Later(Box<PgConnection>),
    Never,
}

/// Takes the lock on a new session, or on the session that claims it. If another process has raised the generation in the meantime, this
/// process can never hold it again.
async fn again(
    database: &Database,
    tenure: &Tenure,
    claiming: Option<Box<PgConnection>>,
) -> Result<ReconnectResult, sqlx::Error> {
    let claims = claiming.is_some();
    let mut connection = match claiming {
        Some(connection) => connection,
        None => match database.connect().await? {
            Connection::Postgres(connection) => Box::new(connection),
            Connection::Sqlite(_) => return Ok(ReconnectResult::Never),
        },
    };
    in_time(database.write_within(true), async {
        let locked = try_lock(&mut connection).await?;
        let row = connection
            .fetch_one("SELECT generation FROM leadership WHERE id = 1")
            .await?;
        if row.get::<i64, _>(0) != tenure.generation {
            return Ok(ReconnectResult::Never);
        }
        if !claims && tenure.is_watched() {
            end_when_idle(&mut connection).await?;
        }
        if locked {
            // A claim that stays would keep standby processes from a lock that is free.
            if claims {
                set_claim(&mut connection, "pg_advisory_unlock").await?;
            }
            return Ok(ReconnectResult::Held(connection));
        }
        if !claims {
            set_claim(&mut connection, "pg_try_advisory_lock").await?;
        }
        Ok(ReconnectResult::Later(connection))
    })
    .await
}

async fn set_claim(connection: &mut PgConnection, function: &str) -> Result<(), sqlx::Error> {
    let sql = format!("SELECT {function}({CLAIM})");
    let claim = connection.execute(sqlx::query(sqlx::AssertSqlSafe(sql)));
    claim.await.map(|_| ())
}
