//! The records of files, each visible to its holder only.

use std::collections::BTreeSet;

use crate::database::Store;
use crate::sql::integers::{from_integer, to_integer};
use crate::sql::query::query;
use crate::sql::{Row, StoreError};
use pool::{Bytes, Time};

/// The record of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    pub id: String,
    pub holder: String,
    pub purpose: String,
    /// The name that the client gave it.
    pub name: String,
    /// The name on disk, without an extension.
    pub stored_as: String,
    pub bytes: Bytes,
    pub created: Time,
    pub expires: Option<Time>,
    /// JSON.
    pub summary: Option<String>,
    /// The folder in a bucket that has its bytes, such as `s3://name/folder`; `None`: they are only on disk.
    pub bucket: Option<String>,
}

/// A page of a holder's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct FilePage<'a> {
    pub purpose: Option<&'a str>,
    /// No files with this purpose.
    pub hidden_purpose: &'a str,
    /// The files after this one.
    pub after: Option<&'a str>,
    pub is_ascending: bool,
    pub limit: u32,
}

const COLUMNS: &str =
    "id, holder, purpose, name, stored_as, bytes, created_at, expires_at, summary, bucket";

fn file(row: &Row) -> StoredFile {
    let expires: Option<i64> = row.get("expires_at");
    StoredFile {
        id: row.get("id"),
        holder: row.get("holder"),
        purpose: row.get("purpose"),
        name: row.get("name"),
        stored_as: row.get("stored_as"),
        bytes: Bytes(from_integer(row.get("bytes"))),
        created: Time(from_integer(row.get("created_at"))),
        expires: expires.map(|at| Time(from_integer(at))),
        summary: row.get("summary"),
        bucket: row.get("bucket"),
    }
}

impl Store {
    /// Stores a file's record. Its object in a bucket is in use from then on. A file that is stored again has other bytes.
    pub async fn add_file(&self, file: &StoredFile) -> Result<(), StoreError> {
        let bucket = file.bucket.clone().unwrap_or_default();
        self.write("store a file's record", async |connection| {
            // The object of an earlier record in another bucket.
            query(
                "INSERT INTO unused_objects (bucket, name, due_at) SELECT bucket, stored_as, 0 FROM files \
                 WHERE id = ? AND bucket <> ? ON CONFLICT (bucket, name) DO NOTHING",
            )
            .bind(&file.id)
            .bind(&bucket)
            .execute(&mut *connection)
            .await?;
            query("DELETE FROM unused_objects WHERE bucket = ? AND name = ?")
                .bind(&bucket)
                .bind(&file.stored_as)
                .execute(&mut *connection)
                .await?;
            query(
                "INSERT INTO files (id, holder, purpose, name, stored_as, bytes, created_at, expires_at, summary, bucket) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) \
                 ON CONFLICT (id) DO UPDATE SET bytes = excluded.bytes, bucket = excluded.bucket",
            )
            .bind(&file.id)
            .bind(&file.holder)
            .bind(&file.purpose)
            .bind(&file.name)
            .bind(&file.stored_as)
            .bind(to_integer(file.bytes.0))
            .bind(to_integer(file.created.0))
            .bind(file.expires.map(|at| to_integer(at.0)))
            .bind(file.summary.clone())
            .bind(file.bucket.clone())
            .execute(connection)
            .await
        })
        .await
        .map(|_| ())
    }

    /// The file with this id; `None` if it does not exist or belongs to another holder.
    pub async fn file(&self, holder: &str, id: &str) -> Result<Option<StoredFile>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM files WHERE id = ? AND holder = ?");
        let row = query(sql).bind(id).bind(holder);
        let row = row.fetch_optional(&self.readers).await;
        let row = row.map_err(self.failed("read a file's record"))?;
        Ok(row.as_ref().map(file))
    }

    /// A page of a holder's files, by time.
    pub async fn files(
        &self,
        holder: &str,
        page: FilePage<'_>,
    ) -> Result<Vec<StoredFile>, StoreError> {
        let (order, than) = if page.is_ascending {
            ("ASC", ">")
        } else {
            ("DESC", "<")
        };
        let sql = format!(
            "SELECT {COLUMNS} FROM files WHERE holder = ?1 AND (?2 = '' OR purpose = ?2) AND purpose <> ?5 AND (?3 = '' OR \
             created_at {than} (SELECT created_at FROM files WHERE id = ?3 AND holder = ?1) OR \
             (created_at = (SELECT created_at FROM files WHERE id = ?3 AND holder = ?1) AND id {than} ?3)) \
             ORDER BY created_at {order}, id {order} LIMIT ?4"
        );
        let rows = query(sql)
            .bind(holder)
            .bind(page.purpose.unwrap_or_default())
            .bind(page.after.unwrap_or_default())
            .bind(i64::from(page.limit))
            .bind(page.hidden_purpose);
        let rows = rows.fetch_all(&self.readers).await;
        let rows = rows.map_err(self.failed("list files"))?;
        Ok(rows.iter().map(file).collect())
    }

    /// The number and size of a holder's files.
    pub async fn file_totals(&self, holder: &str) -> Result<(u64, Bytes), StoreError> {
        let row = query(
            "SELECT count(*) AS number, CAST(coalesce(sum(bytes), 0) AS BIGINT) AS bytes FROM files WHERE holder = ?",
        )
        .bind(holder)
        .fetch_one(&self.readers)
        .await
        .map_err(self.failed("read the size of files"))?;
        let (number, bytes): (i64, i64) = (row.get("number"), row.get("bytes"));
        Ok((from_integer(number), Bytes(from_integer(bytes))))
    }

    /// The names on disk of all files.
    pub async fn stored_files(&self) -> Result<BTreeSet<String>, StoreError> {
        let rows = query("SELECT stored_as FROM files");
        let rows = rows.fetch_all(&self.readers).await;
        let rows = rows.map_err(self.failed("list the names of files"))?;
        Ok(rows.iter().map(|row| row.get("stored_as")).collect())
    }

    /// Files with an id after `after` that have expired, and files of revoked keys, by id.
    pub async fn expired_files(
        &self,
        now: Time,
        after: &str,
        limit: u32,
    ) -> Result<Vec<StoredFile>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM files WHERE id > ?3 AND (expires_at <= ?1 \
             OR holder IN (SELECT 'key:' || CAST(id AS TEXT) FROM keys WHERE revoked <> 0)) ORDER BY id LIMIT ?2"
        );
        let rows = query(sql)
            .bind(to_integer(now.0))
            .bind(i64::from(limit))
            .bind(after);
        let rows = rows.fetch_all(&self.readers).await;
        let rows = rows.map_err(self.failed("list expired files"))?;
        Ok(rows.iter().map(file).collect())
    }

    /// Deletes a file's record, and notes its object in a bucket for deletion. Returns false if the record does not exist.
    pub async fn delete_file(&self, holder: &str, id: &str) -> Result<bool, StoreError> {
        self.write("delete a file's record", async |connection| {
            query(
                "INSERT INTO unused_objects (bucket, name, due_at) SELECT bucket, stored_as, 0 FROM files \
                 WHERE id = ? AND holder = ? AND bucket IS NOT NULL \
                 ON CONFLICT (bucket, name) DO UPDATE SET due_at = excluded.due_at",
            )
            .bind(id)
            .bind(holder)
            .execute(&mut *connection)
            .await?;
            query("DELETE FROM files WHERE id = ? AND holder = ?")
                .bind(id)
                .bind(holder)
                .execute(connection)
                .await
        })
        .await
        .map(|deleted| deleted > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stores;

    fn stored(id: &str, holder: &str, created: u64, expires: Option<u64>) -> StoredFile {
        StoredFile {
            id: id.to_owned(),
            holder: holder.to_owned(),
            purpose: "batch".to_owned(),
            name: "prompts.jsonl".to_owned(),
            stored_as: id.to_owned(),
            bytes: Bytes(100),
            created: Time(created),
            expires: expires.map(Time),
            summary: None,
            bucket: None,
        }
    }

    #[tokio::test]
    async fn a_holder_sees_own_files_page_by_page_in_both_orders() {
        for store in stores().await {
            let files = [("a", 1), ("b", 2), ("c", 2), ("d", 3)];
            for (id, created) in files {
                let file = stored(id, "key:1", created, None);
                store.add_file(&file).await.expect("stored");
            }
            let other = stored("x", "key:2", 2, None);
            store.add_file(&other).await.expect("stored");
            for (is_ascending, expected) in [(true, "abcd"), (false, "dcba")] {
                let (mut found, mut after) = (String::new(), None::<String>);
                loop {
                    let page = FilePage {
                        purpose: Some("batch"),
                        hidden_purpose: "messages",
                        after: after.as_deref(),
                        is_ascending,
                        limit: 3,
                    };
                    let files = store.files("key:1", page).await.expect("read");
                    let Some(last) = files.last() else { break };
                    after = Some(last.id.clone());
                    found.extend(files.iter().map(|file| file.id.as_str()));
                }
                assert_eq!(found, expected);
            }
            assert_eq!(store.file("key:2", "a").await.expect("read"), None);
            assert_eq!(
                store.file_totals("key:1").await.expect("read"),
                (4, Bytes(400))
            );
            assert!(!store.delete_file("key:2", "a").await.expect("write"));
            assert!(store.delete_file("key:1", "a").await.expect("write"));
            assert_eq!(store.file("key:1", "a").await.expect("read"), None);
        }
    }

    #[tokio::test]
    async fn files_expire_at_their_time_and_others_stay() {
        for store in stores().await {
            for (id, expires) in [("a", Some(10)), ("b", Some(20)), ("c", None)] {
                let file = stored(id, "address:127.0.0.1", 1, expires);
                store.add_file(&file).await.expect("stored");
            }
            let expired = store.expired_files(Time(10), "", 10).await.expect("read");
            let ids: Vec<&str> = expired.iter().map(|file| file.id.as_str()).collect();
            assert_eq!(ids, ["a"]);
        }
    }
}
