//! The only way to write: one transaction on the only writing connection. After a failure the connection is
//! discarded, since SQLite may have rolled back by itself and the next write would join a transaction that is
//! never committed. This file also tracks whether the state can be written, and why not.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use nix::sys::statvfs::{FsFlags, statvfs};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};

use super::{Store, StoreFault};
use pool::Bytes;

/// Recommended free space: a day of a busy pool's history.
const ROOM: Bytes = Bytes(16 << 20);

/// Why the state cannot be written now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteTrouble {
    pub since: SystemTime,
    /// What failed, what to do about it, and how much space is free.
    pub reason: String,
}

pub(super) struct Writer {
    path: PathBuf,
    options: SqliteConnectOptions,
    /// SQLite has one writer, and a queue here is fairer than its busy timeout.
    connection: tokio::sync::Mutex<Held>,
    trouble: Mutex<Option<Arc<WriteTrouble>>>,
    /// Records of the history that could not be written and were dropped from memory.
    history_lost: AtomicU64,
}

enum Held {
    Open(SqliteConnection),
    /// The last one was discarded; the next write opens another.
    Nothing,
    Closed,
}

impl Writer {
    pub fn new(path: &Path, options: SqliteConnectOptions, connection: SqliteConnection) -> Writer {
        Writer {
            path: path.to_owned(),
            options,
            connection: tokio::sync::Mutex::new(Held::Open(connection)),
            trouble: Mutex::default(),
            history_lost: AtomicU64::new(0),
        }
    }

    async fn write<T>(
        &self,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        let mut held = self.connection.lock().await;
        // It is put back only on success, so that a cancelled write leaves no open transaction.
        let mut connection = match std::mem::replace(&mut *held, Held::Nothing) {
            Held::Open(connection) => connection,
            Held::Nothing => match self.options.connect().await {
                Ok(connection) => connection,
                Err(error) => {
                    self.failed(&error);
                    return Err(error);
                }
            },
            Held::Closed => {
                *held = Held::Closed;
                return Err(sqlx::Error::PoolClosed);
            }
        };
        match in_transaction(&mut connection, work).await {
            Ok(value) => {
                *held = Held::Open(connection);
                Ok(value)
            }
            Err(error) => {
                // It must release the file before another one writes.
                let _ = connection.close_hard().await;
                self.failed(&error);
                Err(error)
            }
        }
    }

    /// Folds the log into the file as far as no reader needs it; SQLite cannot do this in a transaction.
    async fn fold_log(&self) -> Result<(), sqlx::Error> {
        let mut held = self.connection.lock().await;
        let mut connection = match std::mem::replace(&mut *held, Held::Nothing) {
            Held::Open(connection) => connection,
            other => {
                *held = other;
                return Ok(());
            }
        };
        let folded = sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").execute(&mut connection);
        match folded.await {
            Ok(_) => *held = Held::Open(connection),
            Err(error) => {
                let _ = connection.close_hard().await;
                self.failed(&error);
                return Err(error);
            }
        }
        Ok(())
    }

    pub async fn close(&self) {
        let held = std::mem::replace(&mut *self.connection.lock().await, Held::Closed);
        if let Held::Open(connection) = held {
            let _ = connection.close().await;
        }
    }

    fn failed(&self, error: &sqlx::Error) {
        if !is_trouble(error) {
            return;
        }
        let reason = format!("{error}; {}", self.advice());
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if trouble.is_none() {
            tracing::error!(
                "the state cannot be written, so administrators' orders are refused: {reason}"
            );
        }
        let since = trouble.as_ref().map_or_else(SystemTime::now, |it| it.since);
        *trouble = Some(Arc::new(WriteTrouble { since, reason }));
    }

    fn wrote(&self) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(trouble) = trouble.take() {
            let lasted = trouble.since.elapsed().unwrap_or_default();
            let lasted = Duration::from_secs(lasted.as_secs().max(1));
            tracing::warn!("the state can be written again, after {lasted:?}");
        }
    }

    /// What to do, with the disk's figures.
    fn advice(&self) -> String {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let (shown, path) = (folder.display(), self.path.display());
        match statvfs(folder) {
            Ok(disk) if disk.flags().contains(FsFlags::ST_RDONLY) => {
                format!("{shown} is mounted read-only: mount it for writing")
            }
            Ok(disk) => {
                let free = Bytes(disk.blocks_available().saturating_mul(disk.fragment_size()));
                let total = Bytes(disk.blocks().saturating_mul(disk.fragment_size()));
                if free < ROOM {
                    format!(
                        "the disk of {shown} has {free} free of {total}: free {ROOM} there, or move state.dir to another disk"
                    )
                } else {
                    format!(
                        "the disk of {shown} has {free} free of {total}; check that this user can write {path} and that its disk has no errors"
                    )
                }
            }
            Err(error) => format!("cannot read {shown} ({error}); check that it is mounted"),
        }
    }
}

/// `COMMIT` fails if the transaction no longer exists, so a lost change is never reported as stored.
async fn in_transaction<T>(
    connection: &mut SqliteConnection,
    work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
) -> Result<T, sqlx::Error> {
    sqlx::query("BEGIN IMMEDIATE")
        .execute(&mut *connection)
        .await?;
    let value = work(&mut *connection).await?;
    sqlx::query("COMMIT").execute(&mut *connection).await?;
    Ok(value)
}

/// False for errors of the statement or its values: SQLite's codes 19 (a constraint), 20 (a type) and 25 (a
/// parameter).
fn is_trouble(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Encode(_) | sqlx::Error::PoolClosed => false,
        sqlx::Error::Database(error) => {
            let code = error.code().and_then(|code| code.parse::<i32>().ok());
            !matches!(code.map(|code| code & 0xff), Some(19 | 20 | 25))
        }
        _ => true,
    }
}

impl Store {
    /// Shrinks the file by the released pages.
    pub(super) async fn fold_log(&self) -> Result<(), StoreFault> {
        let folded = self.writer.fold_log().await;
        folded.map_err(self.failed("fold SQLite's log into the database"))
    }

    /// All writes go through here: all of the change is on disk when this returns, or none.
    pub(super) async fn write<T>(
        &self,
        doing: &'static str,
        work: impl AsyncFnOnce(&mut SqliteConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreFault> {
        self.writer.write(work).await.map_err(|source| {
            let path = self.path.clone();
            if is_trouble(&source) {
                let advice = self.writer.advice();
                StoreFault::Unwritable {
                    doing,
                    path,
                    source,
                    advice,
                }
            } else {
                StoreFault::Query {
                    doing,
                    path,
                    source,
                }
            }
        })
    }

    /// Why nothing can be stored now, if the last write failed.
    pub fn trouble(&self) -> Option<Arc<WriteTrouble>> {
        let trouble = self.writer.trouble.lock();
        trouble.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts records of the history that will never be written.
    pub fn history_lost(&self, records: u64) {
        self.writer
            .history_lost
            .fetch_add(records, Ordering::Relaxed);
    }

    /// Their number since the start.
    pub fn history_lost_total(&self) -> u64 {
        self.writer.history_lost.load(Ordering::Relaxed)
    }

    /// Writes as much as a batch of the history needs and deletes it again, to test whether writing works
    /// again.
    pub async fn probe(&self) -> Result<(), StoreFault> {
        const KEY: &str = "probe of the disk";
        self.write("write", async |connection| {
            sqlx::query("REPLACE INTO meta (key, value) VALUES (?, hex(zeroblob(262144)))")
                .bind(KEY)
                .execute(connection)
                .await
        })
        .await?;
        self.write("write", async |connection| {
            sqlx::query("DELETE FROM meta WHERE key = ?")
                .bind(KEY)
                .execute(connection)
                .await
        })
        .await?;
        // A small write, or one that changes nothing, is no proof that the disk works.
        self.writer.wrote();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn store(folder: &Path) -> Store {
        let url = format!("sqlite://{}/state.db", folder.display());
        Store::open(&url).await.expect("a store")
    }

    #[tokio::test]
    async fn a_transaction_that_sqlite_rolled_back_by_itself_costs_its_connection_and_nothing_else()
    {
        let folder = tempfile::tempdir().expect("a folder");
        let store = store(folder.path()).await;
        // As on a full disk: the transaction no longer exists.
        let broken = store.write("break", async |connection| {
            sqlx::query("ROLLBACK").execute(&mut *connection).await?;
            sqlx::query("SELECT * FROM nothing")
                .execute(connection)
                .await
        });
        assert!(broken.await.is_err());
        assert!(store.trouble().is_some());
        let lost = store.write("lose", async |connection| {
            sqlx::query("ROLLBACK").execute(connection).await
        });
        lost.await.expect_err("there was nothing to commit");
        store.save_meta("a", "kept").await.expect("kept");
        assert!(store.trouble().is_some(), "one small row shows nothing");
        store.probe().await.expect("there is room");
        assert!(store.trouble().is_none());
        // Readers have their own connections: they see what is committed.
        assert_eq!(
            store.meta("a").await.expect("read").as_deref(),
            Some("kept")
        );
    }

    #[tokio::test]
    async fn a_write_that_is_given_up_in_the_middle_leaves_no_transaction_behind() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = store(folder.path()).await;
        let endless = store.write("never end", async |connection| {
            sqlx::query("REPLACE INTO meta (key, value) VALUES ('a', 'half')")
                .execute(connection)
                .await?;
            std::future::pending::<Result<(), sqlx::Error>>().await
        });
        let given_up = tokio::time::timeout(Duration::from_millis(50), endless).await;
        assert!(given_up.is_err());
        store.save_meta("b", "whole").await.expect("kept");
        assert_eq!(store.meta("a").await.expect("read"), None);
        assert_eq!(
            store.meta("b").await.expect("read").as_deref(),
            Some("whole")
        );
    }

    #[tokio::test]
    async fn a_constraint_is_no_trouble_of_the_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = store(folder.path()).await;
        let fault = store.write("break a rule", async |connection| {
            sqlx::query("INSERT INTO meta (key, value) VALUES ('a', NULL)")
                .execute(connection)
                .await
        });
        assert!(matches!(fault.await, Err(StoreFault::Query { .. })));
        assert!(store.trouble().is_none());
    }

    #[tokio::test]
    async fn a_probe_leaves_nothing_and_nothing_is_written_after_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = store(folder.path()).await;
        store.probe().await.expect("it can be written");
        assert_eq!(store.meta("probe of the disk").await.expect("read"), None);
        store.close().await;
        store.save_meta("a", "b").await.expect_err("closed");
    }
}
