//! The records of batches. The state is JSON, whose form its owner defines.

use crate::database::Store;
use crate::sql::integers::{from_integer, to_integer};
use crate::sql::query::query;
use crate::sql::{Row, StoreError};
use pool::Time;

/// The record of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredBatch {
    pub id: String,
    pub holder: String,
    pub created: Time,
    /// `None` while it has requests without a result, or results that are not on disk.
    pub ended: Option<Time>,
    /// JSON.
    pub state: String,
}

/// A page of batches, latest first.
#[derive(Clone, Copy, Debug, Default)]
pub struct BatchPage<'a> {
    /// `None`: of all holders.
    pub holder: Option<&'a str>,
    /// The beginning of the ids.
    pub id_prefix: Option<&'a str>,
    /// The batches after this one.
    pub after: Option<&'a str>,
    pub limit: u32,
}

const COLUMNS: &str = "id, holder, created_at, ended_at, state";

fn batch(row: &Row) -> StoredBatch {
    let ended: Option<i64> = row.get("ended_at");
    StoredBatch {
        id: row.get("id"),
        holder: row.get("holder"),
        created: Time(from_integer(row.get("created_at"))),
        ended: ended.map(|at| Time(from_integer(at))),
        state: row.get("state"),
    }
}

impl Store {
    /// Stores a new batch, or the new state of a batch.
    pub async fn save_batch(&self, batch: &StoredBatch) -> Result<(), StoreError> {
        self.write("store a batch", async |connection| {
            query(
                "INSERT INTO batches (id, holder, created_at, ended_at, state) VALUES (?, ?, ?, ?, ?) \
                 ON CONFLICT (id) DO UPDATE SET ended_at = excluded.ended_at, state = excluded.state",
            )
            .bind(&batch.id)
            .bind(&batch.holder)
            .bind(to_integer(batch.created.0))
            .bind(batch.ended.map(|at| to_integer(at.0)))
            .bind(&batch.state)
            .execute(connection)
            .await
        })
        .await
        .map(|_| ())
    }

    /// The batch with this id, of any holder.
    pub async fn batch(&self, id: &str) -> Result<Option<StoredBatch>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM batches WHERE id = ?");
        let row = query(sql).bind(id).fetch_optional(&self.readers).await;
        let row = row.map_err(self.failed("read a batch"))?;
        Ok(row.as_ref().map(batch))
    }

    /// A page of batches, latest first.
    pub async fn batches(&self, page: BatchPage<'_>) -> Result<Vec<StoredBatch>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM batches WHERE (?1 = '' OR holder = ?1) AND (?4 = '' OR substr(id, 1, length(?4)) = ?4) AND (?2 = '' OR \
             created_at < (SELECT created_at FROM batches WHERE id = ?2) OR \
             (created_at = (SELECT created_at FROM batches WHERE id = ?2) AND id < ?2)) \
             ORDER BY created_at DESC, id DESC LIMIT ?3"
        );
        let rows = query(sql)
            .bind(page.holder.unwrap_or_default())
            .bind(page.after.unwrap_or_default())
            .bind(i64::from(page.limit))
            .bind(page.id_prefix.unwrap_or_default());
        let rows = rows.fetch_all(&self.readers).await;
        let rows = rows.map_err(self.failed("list batches"))?;
        Ok(rows.iter().map(batch).collect())
    }

    /// All batches that are not complete, oldest first.
    pub async fn open_batches(&self) -> Result<Vec<StoredBatch>, StoreError> {
        let sql =
            format!("SELECT {COLUMNS} FROM batches WHERE ended_at IS NULL ORDER BY created_at, id");
        let rows = query(sql).fetch_all(&self.readers).await;
        let rows = rows.map_err(self.failed("read the open batches"))?;
        Ok(rows.iter().map(batch).collect())
    }

    /// Deletes the record of a batch.
    pub async fn delete_batch(&self, id: &str) -> Result<(), StoreError> {
        self.write("delete a batch", async |connection| {
            query("DELETE FROM batches WHERE id = ?")
                .bind(id)
                .execute(connection)
                .await
        })
        .await
        .map(|_| ())
    }

    /// Deletes the records of batches that ended before this time.
    pub async fn forget_batches(&self, before: Time) -> Result<u64, StoreError> {
        self.write("delete old batches", async |connection| {
            query("DELETE FROM batches WHERE ended_at < ?")
                .bind(to_integer(before.0))
                .execute(connection)
                .await
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stores;

    fn stored(id: &str, holder: &str, created: u64) -> StoredBatch {
        StoredBatch {
            id: id.to_owned(),
            holder: holder.to_owned(),
            created: Time(created),
            ended: None,
            state: "{}".to_owned(),
        }
    }

    #[tokio::test]
    async fn a_batch_keeps_its_latest_state_and_open_ones_come_oldest_first() {
        for store in stores().await {
            let (first, second) = (stored("b1", "key:1", 1), stored("b2", "key:2", 2));
            for batch in [&second, &first] {
                store.save_batch(batch).await.expect("stored");
            }
            let open = store.open_batches().await.expect("read");
            assert_eq!(open, [first.clone(), second.clone()]);
            let done = StoredBatch {
                ended: Some(Time(4)),
                state: r#"{"status":"completed"}"#.to_owned(),
                ..first.clone()
            };
            store.save_batch(&done).await.expect("stored");
            let open = store.open_batches().await.expect("read");
            assert_eq!(open, std::slice::from_ref(&second));
            assert_eq!(store.batch("b1").await.expect("read"), Some(done.clone()));
            let page = |holder, after| BatchPage {
                holder,
                id_prefix: Some("b"),
                after,
                limit: 10,
            };
            let all = store.batches(page(None, None)).await.expect("read");
            assert_eq!(all, [second.clone(), done.clone()]);
            let own = store
                .batches(page(Some("key:1"), None))
                .await
                .expect("read");
            assert_eq!(own, std::slice::from_ref(&done));
            let rest = store.batches(page(None, Some("b2"))).await.expect("read");
            assert_eq!(rest, [done]);
            assert_eq!(store.forget_batches(Time(5)).await.expect("write"), 1);
            assert_eq!(store.open_batches().await.expect("read"), [second]);
        }
    }
}
