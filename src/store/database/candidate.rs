//! A standby process for a database on PostgreSQL. It tries to get the lock, reads the current leader, and becomes the leader once
//! the lock is free and the former leader gives no more orders (`tenure`). Each look is a short exchange with the server, and the
//! caller decides how often to look. Becoming the leader may take longer, because it migrates the schema to this version.
//!
//! ```text
//!   Follows ──▶ the lock is free ──▶ Leaderless, until the former one has given up ──▶ MayLead ──▶ lead
//!      ▲                                                   │
//!      └─ another one was quicker, or the former one is back ─┘
//! ```

use std::time::Duration;

use sqlx::Executor;
use sqlx::Row as _;
use sqlx::postgres::PgConnection;
use tokio::time::Instant;

use super::leadership::{LeaderAddress, is_claimed, try_lock, unlock};
use super::migrations;
use super::open::parse;
use super::open_postgres::{check_server, lead};
use super::store::Store;
use super::tenure::{WAIT_FOR_FORMER, now};
use crate::sql::connection::in_time;
use crate::sql::{Connection, Database, StoreError};

/// Time limit of one look, without the start as leader.
const LOOK_WITHIN: Duration = Duration::from_secs(3);
/// The first schema version with columns for the leader's address.
const SCHEMA_WITH_ADDRESS: i64 = 15;

/// A process that waits to become the leader.
pub struct Candidate {
    database: Database,
    own: LeaderAddress,
    /// True if it takes over from a process on this machine, which reserves the lock for it.
    is_successor: bool,
    session: Option<Connection>,
    /// The time since which this connection has the lock.
    locked: Option<Instant>,
}

/// The result of a look.
#[derive(Debug)]
pub enum CandidateStatus {
    /// This process has the lock, and the former leader gives no more orders. Call [`Candidate::lead`] next.
    MayLead,
    Follows(Leader),
    /// No known leader, with the reason.
    Leaderless(String),
}

/// The current leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    pub at: LeaderAddress,
    /// Its host and process id.
    pub holder: String,
    pub generation: i64,
}

/// The row of the table `leadership`.
struct LeadershipRow {
    leader: Leader,
    has_released: bool,
    /// True while the lock is reserved for a successor on the leader's machine.
    is_reserved: bool,
}

impl Candidate {
    /// Creates a candidate without connecting.
    ///
    /// # Errors
    /// If the URL is not valid, or is not a PostgreSQL URL.
    pub fn new(database_url: &str, own: LeaderAddress) -> Result<Candidate, StoreError> {
        let database = parse(database_url)?;
        if matches!(database, Database::Sqlite { .. }) {
            return Err(StoreError::PostgresUrl {
                problem:
                    "a standby process needs PostgreSQL; a SQLite file allows only one service"
                        .to_owned(),
            });
        }
        Ok(Candidate {
            database,
            own,
            is_successor: false,
            session: None,
            locked: None,
        })
    }

    /// Makes this process the successor of a process on this machine, which reserves the lock for it.
    pub fn takes_over(&mut self) {
        self.is_successor = true;
    }

    /// Tries once to get the lock, and reads the current leader. Releases the lock if it is cancelled.
    ///
    /// # Errors
    /// Errors that a retry does not fix: the database has another version's schema, or is unsuitable. An unreachable server is
    /// [`CandidateStatus::Leaderless`] instead.
    pub async fn look(&mut self) -> Result<CandidateStatus, StoreError> {
        // Put back at the end: a cancelled or failed look closes the session, and with it releases the lock.
        let (session, locked) = (self.session.take(), self.locked.take());
        let mut session = match session {
            Some(session) => session,
            None => match self.connect().await? {
                Ok(session) => session,
                Err(why) => return Ok(CandidateStatus::Leaderless(why)),
            },
        };
        let (since, wait) = match self.look_with(&mut session, locked).await? {
            Ok(LockAttempt::Locked { since, wait }) => (since, wait),
            Ok(LockAttempt::Taken(standing)) => {
                self.session = Some(session);
                return Ok(standing);
            }
            Err(error) => {
                let _ = session.close_hard().await;
                let fault = self.database.refused(error);
                return Ok(CandidateStatus::Leaderless(fault.to_string()));
            }
        };
        let waited = now().saturating_duration_since(since);
        if waited < wait {
            self.session = Some(session);
            self.locked = Some(since);
            return Ok(CandidateStatus::Leaderless(format!(
                "the leader is gone, and this process takes over within {} s",
                wait.as_secs()
            )));
        }
        self.session = Some(session);
        self.locked = Some(since);
        Ok(CandidateStatus::MayLead)
    }

    /// Becomes the leader, after a look that returned [`CandidateStatus::MayLead`]. The inner error is the reason for failing temporarily:
    /// the server became unreachable, and the next look starts over. Releases the lock if it is cancelled.
    ///
    /// # Errors
    /// As for [`Candidate::look`].
    pub async fn lead(&mut self) -> Result<Result<Store, String>, StoreError> {
        self.locked = None;
        let Some(session) = self.session.take() else {
            return Ok(Err("the session with the database is closed".to_owned()));
        };
        let database = self.database.clone();
        match lead(database, session, Some(&self.own)).await {
            Ok(store) => Ok(Ok(store)),
            Err(error @ (StoreError::Open { .. } | StoreError::Unreachable { .. })) => {
                Ok(Err(error.to_string()))
            }
            Err(error) => Err(error),
        }
    }

    /// Opens a session, or returns the reason that none can be opened.
    async fn connect(&self) -> Result<Result<Connection, String>, StoreError> {
        let mut session = match self.database.connect().await {
            Ok(session) => session,
            Err(error) => return Ok(Err(self.database.refused(error).to_string())),
        };
        match in_time_fault(check_server(&self.database, &mut session)).await {
            Ok(()) => Ok(Ok(session)),
            // The server may become the primary, or the primary again.
            Err(Some(fault @ (StoreError::Unreachable { .. } | StoreError::Unsuitable { .. }))) => {
                Ok(Err(fault.to_string()))
            }
            Err(Some(fault)) => Err(fault),
            Err(None) => {
                let slow = crate::sql::query::too_slow(LOOK_WITHIN);
                Ok(Err(self.database.refused(slow).to_string()))
            }
        }
    }

    /// The inner error is the server's.
    async fn look_with(
        &self,
        session: &mut Connection,
        locked: Option<Instant>,
    ) -> Result<Result<LockAttempt, sqlx::Error>, StoreError> {
        let schema = match in_time_fault(migrations::check_version(&self.database, session)).await {
            Ok(schema) => schema,
            Err(Some(StoreError::Unreachable { source, .. })) => return Ok(Err(source)),
            Err(Some(error)) => return Err(error),
            Err(None) => return Ok(Err(crate::sql::query::too_slow(LOOK_WITHIN))),
        };
        let Connection::Postgres(connection) = session else {
            return Ok(Err(sqlx::Error::PoolClosed));
        };
        let looked = in_time(
            Some(LOOK_WITHIN),
            self.look_in(connection, schema.unwrap_or(0), locked),
        );
        Ok(looked.await)
    }

    async fn look_in(
        &self,
        connection: &mut PgConnection,
        schema: i64,
        locked: Option<Instant>,
    ) -> Result<LockAttempt, sqlx::Error> {
        let known = if schema < SCHEMA_WITH_ADDRESS {
            None
        } else {
            known(connection).await?
        };
        // A leader whose session was interrupted still leads, and no other process may before its time is over.
        if is_claimed(connection).await? {
            if locked.is_some() {
                unlock(connection).await?;
            }
            return Ok(LockAttempt::Taken(standing_behind(known)));
        }
        let is_reserved =
            known.as_ref().is_some_and(|known| known.is_reserved) && !self.is_successor;
        let since = match locked {
            Some(since) => since,
            None => {
                // While the lock is reserved, the leader's socket stays open, and requests wait there for the new process.
                if is_reserved || !try_lock(connection).await? {
                    return Ok(LockAttempt::Taken(standing_behind(known)));
                }
                now()
            }
        };
        // A leader that has recorded its end gives no orders, and a new database has had no leader.
        let is_over = match &known {
            Some(known) => known.has_released || known.leader.generation == 0,
            None => schema == 0,
        };
        let wait = if is_over {
            Duration::ZERO
        } else {
            WAIT_FOR_FORMER
        };
        Ok(LockAttempt::Locked { since, wait })
    }
}

enum LockAttempt {
    Taken(CandidateStatus),
    /// Locked by this connection, which has to wait this long from then on.
    Locked {
        since: Instant,
        wait: Duration,
    },
}

fn standing_behind(known: Option<LeadershipRow>) -> CandidateStatus {
    match known {
        Some(known) if !known.leader.at.address.is_empty() => {
            CandidateStatus::Follows(known.leader)
        }
        Some(known) => CandidateStatus::Leaderless(format!(
            "the leader ({}) has no address for others; set state.standby.advertise there and restart it",
            known.leader.holder
        )),
        None => CandidateStatus::Leaderless(
            "the leader has an older version, which does not report its address; upgrade it"
                .to_owned(),
        ),
    }
}

async fn known(connection: &mut PgConnection) -> Result<Option<LeadershipRow>, sqlx::Error> {
    let row = connection
        .fetch_optional(
            "SELECT generation, holder, address, fingerprint, released_at > 0 AS released, \
             reserved_until > CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT) AS reserved \
             FROM leadership WHERE id = 1",
        )
        .await?;
    let Some(row) = row else {
        return Ok(None);
    };
    let fingerprint: String = row.try_get("fingerprint")?;
    Ok(Some(LeadershipRow {
        leader: Leader {
            at: LeaderAddress {
                address: row.try_get("address")?,
                fingerprint: Some(fingerprint).filter(|text| !text.is_empty()),
            },
            holder: row.try_get("holder")?,
            generation: row.try_get("generation")?,
        },
        has_released: row.try_get("released")?,
        is_reserved: row.try_get("reserved")?,
    }))
}

/// Returns `None` after a timeout.
async fn in_time_fault<T>(
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, Option<StoreError>> {
    match tokio::time::timeout(LOOK_WITHIN, work).await {
        Ok(done) => done.map_err(Some),
        Err(_) => Err(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(address: &str) -> LeadershipRow {
        LeadershipRow {
            leader: Leader {
                at: LeaderAddress {
                    address: address.to_owned(),
                    fingerprint: None,
                },
                holder: "model-pool one process 7".to_owned(),
                generation: 3,
            },
            has_released: false,
            is_reserved: false,
        }
    }

    #[test]
    fn d4_a_leader_without_an_address_is_named_with_advice() {
        let CandidateStatus::Follows(leader) = standing_behind(Some(known("https://one:8443")))
        else {
            panic!("it has an address");
        };
        assert_eq!(leader.at.address, "https://one:8443");
        let CandidateStatus::Leaderless(why) = standing_behind(Some(known(""))) else {
            panic!("it has none");
        };
        assert!(
            why.contains("process 7") && why.contains("state.standby.advertise"),
            "{why}"
        );
    }

    #[test]
    fn d4_sqlite_does_not_support_a_standby() {
        let error = Candidate::new("sqlite://pool.db", LeaderAddress::default());
        let Err(error) = error else {
            panic!("SQLite has no standby");
        };
        assert!(error.to_string().contains("needs PostgreSQL"), "{error}");
    }
}
