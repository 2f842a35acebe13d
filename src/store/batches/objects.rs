//! Objects in buckets that no record of a file names: of uploads in progress or given up, and of deleted files.

use crate::database::Store;
use crate::sql::StoreError;
use crate::sql::integers::to_integer;
use crate::sql::query::query;
use pool::Time;

/// An object that is to be deleted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnusedObject {
    /// The folder in a bucket, such as `s3://name/folder`.
    pub bucket: String,
    /// As [`super::StoredFile::stored_as`].
    pub name: String,
}

impl Store {
    /// Notes an object for deletion at this time, or changes the time. A record of its file takes the note back.
    pub async fn note_object(&self, object: &UnusedObject, due: Time) -> Result<(), StoreError> {
        self.write("note an object of a bucket", async |connection| {
            query(
                "INSERT INTO unused_objects (bucket, name, due_at) VALUES (?, ?, ?) \
                 ON CONFLICT (bucket, name) DO UPDATE SET due_at = excluded.due_at",
            )
            .bind(&object.bucket)
            .bind(&object.name)
            .bind(to_integer(due.0))
            .execute(connection)
            .await
        })
        .await
        .map(|_| ())
    }

    /// Objects that are due for deletion, in their order, after `after`.
    pub async fn unused_objects(
        &self,
        now: Time,
        after: &UnusedObject,
        limit: u32,
    ) -> Result<Vec<UnusedObject>, StoreError> {
        let rows = query(
            "SELECT bucket, name FROM unused_objects WHERE due_at <= ?1 AND (bucket > ?2 OR (bucket = ?2 AND name > ?3)) \
             AND NOT EXISTS (SELECT 1 FROM files WHERE files.bucket = unused_objects.bucket \
             AND files.stored_as = unused_objects.name) ORDER BY bucket, name LIMIT ?4",
        )
        .bind(to_integer(now.0))
        .bind(&after.bucket)
        .bind(&after.name)
        .bind(i64::from(limit));
        let rows = rows.fetch_all(&self.readers).await;
        let rows = rows.map_err(self.failed("list unused objects of buckets"))?;
        let objects = rows.iter().map(|row| UnusedObject {
            bucket: row.get("bucket"),
            name: row.get("name"),
        });
        Ok(objects.collect())
    }

    /// Removes the note of an object that has been deleted.
    pub async fn forget_object(&self, object: &UnusedObject) -> Result<(), StoreError> {
        self.write("forget an object of a bucket", async |connection| {
            query("DELETE FROM unused_objects WHERE bucket = ? AND name = ?")
                .bind(&object.bucket)
                .bind(&object.name)
                .execute(connection)
                .await
        })
        .await
        .map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batches::StoredFile;
    use crate::testing::stores;
    use pool::Bytes;

    const LAB: &str = "s3://lab/files";

    fn object(bucket: &str, name: &str) -> UnusedObject {
        UnusedObject {
            bucket: bucket.to_owned(),
            name: name.to_owned(),
        }
    }

    fn stored(bucket: Option<&str>) -> StoredFile {
        StoredFile {
            id: "file-1".to_owned(),
            holder: "key:1".to_owned(),
            purpose: "batch".to_owned(),
            name: "prompts.jsonl".to_owned(),
            stored_as: "file-1".to_owned(),
            bytes: Bytes(100),
            created: Time(1),
            expires: None,
            summary: None,
            bucket: bucket.map(str::to_owned),
        }
    }

    async fn due(store: &Store, now: u64) -> Vec<UnusedObject> {
        let first = object("", "");
        let due = store.unused_objects(Time(now), &first, 10).await;
        due.expect("read")
    }

    #[tokio::test]
    async fn an_object_is_due_until_a_record_names_it_and_again_once_the_record_is_gone() {
        for store in stores().await {
            let uploaded = object(LAB, "file-1");
            store.note_object(&uploaded, Time(50)).await.expect("noted");
            assert!(due(&store, 49).await.is_empty());
            assert_eq!(due(&store, 50).await, std::slice::from_ref(&uploaded));
            store.add_file(&stored(Some(LAB))).await.expect("stored");
            assert!(due(&store, 99).await.is_empty());
            let found = store.file("key:1", "file-1").await.expect("read");
            assert_eq!(found, Some(stored(Some(LAB))));
            assert!(!store.delete_file("key:2", "file-1").await.expect("write"));
            assert!(due(&store, 99).await.is_empty());
            assert!(store.delete_file("key:1", "file-1").await.expect("write"));
            assert_eq!(due(&store, 0).await, std::slice::from_ref(&uploaded));
            store.forget_object(&uploaded).await.expect("forgotten");
            assert!(due(&store, 99).await.is_empty());
        }
    }

    #[tokio::test]
    async fn a_file_that_is_stored_again_elsewhere_leaves_its_earlier_object_for_deletion() {
        for store in stores().await {
            store.add_file(&stored(Some(LAB))).await.expect("stored");
            let longer = StoredFile {
                bytes: Bytes(120),
                ..stored(Some("gs://other"))
            };
            store.add_file(&longer).await.expect("stored");
            assert_eq!(due(&store, 0).await, [object(LAB, "file-1")]);
            let found = store.file("key:1", "file-1").await.expect("read");
            assert_eq!(found, Some(longer));
            // A file that is only on disk has no object.
            store.add_file(&stored(None)).await.expect("stored");
            let both = [object("gs://other", "file-1"), object(LAB, "file-1")];
            assert_eq!(due(&store, 0).await, both);
            let last = store.unused_objects(Time(0), &both[0], 10).await;
            assert_eq!(last.expect("read"), [object(LAB, "file-1")]);
            assert!(store.delete_file("key:1", "file-1").await.expect("write"));
            assert_eq!(due(&store, 0).await, both);
        }
    }
}
