//! The only way to write: one transaction on the only writing connection. Discards the connection after a failure, because SQLite
//! may have rolled back automatically and the next write would join a transaction that is never committed, or because PostgreSQL
//! may be gone. Also tracks whether the state can be written, and the reason if not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use super::store::Store;
use super::tenure::Tenure;
use crate::sql::connection::{in_time, is_fenced};
use crate::sql::query::query;
use crate::sql::write_problem::{advice, is_trouble};
use crate::sql::{Connection, Database, FileWatch, StoreError, WriteTrouble};

pub(crate) struct Writer {
    database: Database,
    /// Set for SQLite's files.
    files: Option<FileWatch>,
    /// Set on PostgreSQL, where only writes of its generation count.
    tenure: Option<Arc<Tenure>>,
    /// SQLite has one writer, and a queue here is fairer than its busy timeout. On PostgreSQL this makes ids follow the order of
    /// writes.
    connection: tokio::sync::Mutex<WriterConnection>,
    trouble: Mutex<Option<Arc<WriteTrouble>>>,
    /// Failed writes since the start.
    failures: AtomicU64,
    /// Records of the history that could not be written and were dropped from memory.
    history_lost: AtomicU64,
}

enum WriterConnection {
    Open(Connection),
    /// The last connection was discarded; the next write opens another.
    Nothing,
    Closed,
}

impl Writer {
    pub fn new(
        database: Database,
        files: Option<FileWatch>,
        connection: Connection,
        tenure: Option<Arc<Tenure>>,
    ) -> Writer {
        Writer {
            database,
            files,
            tenure,
            connection: tokio::sync::Mutex::new(WriterConnection::Open(connection)),
            trouble: Mutex::default(),
            failures: AtomicU64::new(0),
            history_lost: AtomicU64::new(0),
        }
    }

    async fn write<T>(
        &self,
        within: Option<Duration>,
        work: impl AsyncFnOnce(&mut Connection) -> Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        let failures = self.failures.load(Ordering::Relaxed);
        let mut held = self.connection.lock().await;
        // If an attempt may take seconds, writes that waited behind a failed one give up without trying.
        if within.is_some() && failures != self.failures.load(Ordering::Relaxed) {
            return Err(sqlx::Error::Io(std::io::Error::other(
                "the previous write has just failed",
            )));
        }
        // Put back only on success: a cancelled write leaves no open transaction.
        let former = std::mem::replace(&mut *held, WriterConnection::Nothing);
        if matches!(former, WriterConnection::Closed) {
            *held = WriterConnection::Closed;
            return Err(sqlx::Error::PoolClosed);
        }
        let written = in_time(within, async {
            let mut connection = match former {
                WriterConnection::Open(connection) => connection,
                _ => self.connect().await?,
            };
            let generation = self.tenure.as_ref().map(|tenure| tenure.generation);
            let written = async {
                if let Some(files) = &self.files {
                    files.before_write(&mut connection).await?;
                }
                let value = in_transaction(&mut connection, generation, work).await?;
                if let Some(files) = &self.files {
                    files.after_write(&mut connection).await?;
                }
                Ok(value)
            };
            match written.await {
                Ok(value) => Ok((connection, value)),
                Err(error) => {
                    // The connection must release the file before another one writes.
                    let _ = connection.close_hard().await;
                    Err(error)
                }
            }
        });
        match written.await {
            Ok((connection, value)) => {
                *held = WriterConnection::Open(connection);
                Ok(value)
            }
            Err(error) => {
                self.failed(&error);
                Err(error)
            }
        }
    }

    async fn connect(&self) -> Result<Connection, sqlx::Error> {
        if let Some(files) = &self.files {
            files.before_connect()?;
        }
        self.database.connect().await
    }

    /// Folds the log into the file as far as readers allow. SQLite cannot do this in a transaction.
    async fn fold_log(&self) -> Result<(), sqlx::Error> {
        let mut held = self.connection.lock().await;
        let mut connection = match std::mem::replace(&mut *held, WriterConnection::Nothing) {
            WriterConnection::Open(connection) => connection,
            other => {
                *held = other;
                return Ok(());
            }
        };
        match query("PRAGMA wal_checkpoint(PASSIVE)")
            .execute(&mut connection)
            .await
        {
            Ok(_) => {
                // The file may have become shorter.
                self.files.iter().for_each(FileWatch::wrote);
                *held = WriterConnection::Open(connection);
            }
            Err(error) => {
                let _ = connection.close_hard().await;
                self.failed(&error);
                return Err(error);
            }
        }
        Ok(())
    }

    pub async fn close(&self) {
        let held = std::mem::replace(&mut *self.connection.lock().await, WriterConnection::Closed);
        if let WriterConnection::Open(connection) = held {
            let _ = connection.close().await;
        }
    }

    fn failed(&self, error: &sqlx::Error) {
        if let Some(tenure) = self.tenure.as_ref().filter(|_| is_fenced(error)) {
            tenure.end(&error_words(error));
        }
        if !is_trouble(self.database.dialect(), error) {
            return;
        }
        self.failures.fetch_add(1, Ordering::Relaxed);
        let reason = format!("{error}; {}", advice(&self.database, error));
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if trouble.is_none() {
            tracing::error!(
                "the state cannot be written, so administrators' orders are refused: {reason}"
            );
        }
        let since = trouble
            .as_ref()
            .map_or_else(SystemTime::now, |trouble| trouble.since);
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
}

/// The error's message without its wrapper's.
fn error_words(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Io(error) => error.to_string(),
        error => error.to_string(),
    }
}

async fn in_transaction<T>(
    connection: &mut Connection,
    generation: Option<i64>,
    work: impl AsyncFnOnce(&mut Connection) -> Result<T, sqlx::Error>,
) -> Result<T, sqlx::Error> {
    connection.begin(generation).await?;
    let value = work(&mut *connection).await?;
    connection.commit().await?;
    Ok(value)
}

impl Store {
    /// Shrinks the file by the released pages.
    pub(crate) async fn fold_log(&self) -> Result<(), StoreError> {
        let folded = self.writer.fold_log().await;
        folded.map_err(self.failed("fold SQLite's log into the database"))
    }

    /// The entry point of all writes: when it returns, either the complete change is on disk or none of it.
    pub(crate) async fn write<T>(
        &self,
        doing: &'static str,
        work: impl AsyncFnOnce(&mut Connection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        let within = self.database.write_within(self.trouble().is_some());
        self.written(doing, within, work).await
    }

    /// Like [`Store::write`], without a time limit.
    pub(crate) async fn write_all<T>(
        &self,
        doing: &'static str,
        work: impl AsyncFnOnce(&mut Connection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        self.written(doing, None, work).await
    }

    async fn written<T>(
        &self,
        doing: &'static str,
        within: Option<Duration>,
        work: impl AsyncFnOnce(&mut Connection) -> Result<T, sqlx::Error>,
    ) -> Result<T, StoreError> {
        self.writer.write(within, work).await.map_err(|source| {
            let place = self.place();
            if is_trouble(self.dialect(), &source) {
                let advice = advice(&self.database, &source);
                StoreError::Unwritable {
                    doing,
                    place,
                    source,
                    advice,
                }
            } else {
                StoreError::Query {
                    doing,
                    place,
                    source,
                }
            }
        })
    }

    /// The reason that the state cannot be stored, if the last write failed.
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

    /// The number of lost records since the start.
    pub fn history_lost_total(&self) -> u64 {
        self.writer.history_lost.load(Ordering::Relaxed)
    }

    /// Writes as much as a batch of the history needs and deletes it again, to test whether writing works again.
    pub async fn probe(&self) -> Result<(), StoreError> {
        const KEY: &str = "probe of the disk";
        self.write("write", async |connection| {
            query(
                "INSERT INTO meta (key, value) VALUES (?, ?) \
                 ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            )
            .bind(KEY)
            .bind(incompressible(512 << 10))
            .execute(connection)
            .await
        })
        .await?;
        self.write("write", async |connection| {
            query("DELETE FROM meta WHERE key = ?")
                .bind(KEY)
                .execute(connection)
                .await
        })
        .await?;
        // A small write, or a write that changes nothing, does not prove that the disk works.
        self.writer.wrote();
        Ok(())
    }
}

/// Letters that PostgreSQL cannot compress.
fn incompressible(letters: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let letter = |_| {
        // Xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'0' + (state % 64) as u8)
    };
    (0..letters).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stores;

    #[tokio::test]
    async fn a_broken_transaction_discards_only_its_connection() {
        for store in stores().await {
            // As SQLite does on a full disk: the transaction no longer exists.
            let broken = store.write("break", async |connection| {
                query("ROLLBACK").execute(&mut *connection).await?;
                query("SELECT * FROM nothing").execute(connection).await
            });
            assert!(broken.await.is_err());
            let lost = store.write("lose", async |connection| {
                query("ROLLBACK").execute(connection).await
            });
            lost.await.expect_err("there was nothing to commit");
            assert!(store.trouble().is_some());
            store.save_meta("a", "kept").await.expect("kept");
            assert!(store.trouble().is_some(), "one small row shows nothing");
            store.probe().await.expect("there is room");
            assert!(store.trouble().is_none());
            // Readers have their own connections and see only committed changes.
            assert_eq!(
                store.meta("a").await.expect("read").as_deref(),
                Some("kept")
            );
        }
    }

    #[tokio::test]
    async fn an_abandoned_write_leaves_no_transaction_behind() {
        for store in stores().await {
            let endless = store.write("never end", async |connection| {
                query("INSERT INTO meta (key, value) VALUES ('a', 'half')")
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
    }

    #[tokio::test]
    async fn a_constraint_violation_is_not_reported_as_a_disk_failure() {
        for store in stores().await {
            let error = store.write("break a rule", async |connection| {
                query("INSERT INTO meta (key, value) VALUES ('a', NULL)")
                    .execute(connection)
                    .await
            });
            assert!(matches!(error.await, Err(StoreError::Query { .. })));
            assert!(store.trouble().is_none());
        }
    }

    #[tokio::test]
    async fn a_probe_leaves_no_rows_and_a_closed_store_cannot_write() {
        for store in stores().await {
            store.probe().await.expect("it can be written");
            assert_eq!(store.meta("probe of the disk").await.expect("read"), None);
            store.close().await;
            store.save_meta("a", "b").await.expect_err("closed");
        }
    }
}
