//! PostgreSQL: one model-pool for one database. A session of its own holds an advisory lock, and every start raises the
//! generation in the table `leadership`. Writes check the generation in their own transaction, so that a process that has
//! lost the lock without knowing writes nothing any more.
//!
//! ```text
//!   Held ──▶ the session ends ──▶ lock taken again, generation unchanged ──▶ Held
//!                                  lock or generation is another's ──▶ gone for good
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use chrono::Utc;
use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Executor, Row as _};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::StoreFault;
use super::connection::{Connection, Database, in_time};

/// One lock for each schema, so that several pools may share a database.
const LOCK: &str = "hashtextextended('model-pool ' || current_schema(), 0)";

/// How often the session is used, so that its loss is noticed.
const EVERY: Duration = Duration::from_secs(1);
/// How long its answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How often a start tries to get the lock, and the pause: the server needs a moment to see that a killed process is gone.
const TRIES: u32 = 30;
const PAUSE: Duration = Duration::from_millis(100);

/// The lock and its generation; the lock is released when this is dropped.
pub(crate) struct Leadership {
    pub generation: i64,
    /// Whether the session that has the lock is lost at the moment.
    pub is_lost: Arc<AtomicBool>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Leadership {
    /// Takes the lock on this connection, or names who has it.
    pub async fn lock(
        database: &Database,
        connection: &mut PgConnection,
    ) -> Result<(), StoreFault> {
        let failed = |source| StoreFault::Open {
            place: database.place(),
            source,
        };
        for tried in 1.. {
            if try_lock(connection).await.map_err(failed)? {
                break;
            }
            if tried >= TRIES {
                let holder = holder(connection).await.map_err(failed)?;
                return Err(StoreFault::DatabaseInUse {
                    place: database.place(),
                    holder: holder.map_or_else(String::new, |it| format!(" ({it})")),
                });
            }
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Raises the generation, which ends the right of all others to write, and holds the lock from now on.
    pub async fn begin(
        database: &Database,
        mut connection: PgConnection,
    ) -> Result<Leadership, StoreFault> {
        let raised = sqlx::query(
            "UPDATE leadership SET generation = generation + 1, since_at = $1, holder = $2 WHERE id = 1 RETURNING generation",
        )
        .bind(Utc::now().timestamp_millis())
        .bind(own_name())
        .fetch_one(&mut connection)
        .await;
        let raised = raised.map_err(|source| StoreFault::Open {
            place: database.place(),
            source,
        })?;
        let generation: i64 = raised.get(0);
        let (stop, stopped) = oneshot::channel();
        let is_lost = Arc::new(AtomicBool::new(false));
        let task = hold(
            database.clone(),
            connection,
            generation,
            Arc::clone(&is_lost),
            stopped,
        );
        Ok(Leadership {
            generation,
            is_lost,
            stop: Some(stop),
            task: spawn(task),
        })
    }

    /// Ends the session, so that the next one finds the lock free.
    pub async fn release(mut self) {
        drop(self.stop.take());
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

/// The name of this process in the list of PostgreSQL's sessions.
pub(super) fn own_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = format!("model-pool {} process {}", host.trim(), std::process::id());
    // PostgreSQL cuts longer names.
    name.chars().filter(char::is_ascii).take(63).collect()
}

async fn try_lock(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let sql = format!("SELECT pg_try_advisory_lock({LOCK})");
    let row = connection
        .fetch_one(sqlx::query(sqlx::AssertSqlSafe(sql)))
        .await?;
    Ok(row.get(0))
}

/// Who has the lock.
async fn holder(connection: &mut PgConnection) -> Result<Option<String>, sqlx::Error> {
    let sql = format!(
        "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid \
         WHERE l.locktype = 'advisory' AND l.granted \
         AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) \
         AND ((CAST(l.classid AS bigint) << 32) | CAST(l.objid AS bigint)) = {LOCK}"
    );
    let row = connection
        .fetch_optional(sqlx::query(sqlx::AssertSqlSafe(sql)))
        .await?;
    Ok(row.and_then(|row| row.get::<Option<String>, _>(0)))
}

/// Keeps the session alive until it is to stop, and makes another when it is lost.
async fn hold(
    database: Database,
    connection: PgConnection,
    generation: i64,
    is_lost: Arc<AtomicBool>,
    mut stopped: oneshot::Receiver<()>,
) {
    let mut session = Some(connection);
    loop {
        tokio::select! {
            _ = &mut stopped => break,
            () = tokio::time::sleep(EVERY) => {}
        }
        let checked = match session.as_mut() {
            Some(connection) => answers(connection).await,
            None => match again(&database, generation).await {
                Ok(Again::Held(connection)) => {
                    tracing::info!(
                        "the lock of the database {} is held again",
                        database.place()
                    );
                    is_lost.store(false, Ordering::Relaxed);
                    session = Some(*connection);
                    Ok(())
                }
                Ok(Again::Later) => Ok(()),
                Ok(Again::Never) => {
                    tracing::error!(
                        "another model-pool has taken the database {} over; this one writes nothing any more: stop it",
                        database.place()
                    );
                    return;
                }
                // The writer says why the database cannot be reached.
                Err(_) => Ok(()),
            },
        };
        if let Err(error) = checked {
            tracing::warn!(
                "the session that holds the lock of the database {} is lost: {error}",
                database.place()
            );
            is_lost.store(true, Ordering::Relaxed);
            session = None;
        }
    }
    if let Some(connection) = session {
        let _ = connection.close().await;
    }
}

async fn answers(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let ping = tokio::time::timeout(ANSWER_WITHIN, connection.ping());
    ping.await
        .unwrap_or_else(|_| Err(super::query::too_slow(ANSWER_WITHIN)))
}

enum Again {
    Held(Box<PgConnection>),
    /// The server has not seen yet that the former session is gone.
    Later,
    Never,
}

/// The lock on a new session. Where another process has raised the generation meanwhile, it is never ours again.
async fn again(database: &Database, generation: i64) -> Result<Again, sqlx::Error> {
    let Connection::Postgres(mut connection) = database.connect().await? else {
        return Ok(Again::Never);
    };
    in_time(database.write_within(true), async {
        let locked = try_lock(&mut connection).await?;
        let row = connection
            .fetch_one("SELECT generation FROM leadership WHERE id = 1")
            .await?;
        if row.get::<i64, _>(0) != generation {
            return Ok(Again::Never);
        }
        Ok(match locked {
            true => Again::Held(Box::new(connection)),
            false => Again::Later,
        })
    })
    .await
}
