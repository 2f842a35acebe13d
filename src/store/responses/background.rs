//! Background responses that have not ended. The row of a response is deleted in the transaction that stores its result.

use super::stored::{ResponseBounds, StoredResponse, count, insert, make_room};
use crate::database::Store;
use crate::sql::integers::{from_integer, to_integer};
use crate::sql::query::query;
use crate::sql::{Row, StoreError};
use pool::{Bytes, Time};

/// Smallest size that a background response counts with.
const BYTES_MIN: usize = 4 << 10;

/// A background response that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundResponse {
    pub id: String,
    pub holder: String,
    pub created: Time,
    /// Runs in which an engine began to respond.
    pub runs: u32,
    /// Events are kept while it runs.
    pub is_streamed: bool,
    /// The JSON body of the request.
    pub request: String,
    /// The JSON object, queued.
    pub response: String,
}

/// A background response without its texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundHead {
    pub id: String,
    pub holder: String,
    pub created: Time,
    pub runs: u32,
    pub is_streamed: bool,
}

/// Limits of the background responses that have not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackgroundBounds {
    pub number_per_holder: u64,
    pub bytes_per_holder: Bytes,
    pub number: u64,
    pub bytes: Bytes,
}

/// A limit that a further background response would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundLimit {
    NumberOfHolder,
    BytesOfHolder,
    Number,
    Bytes,
}

const COLUMNS: &str = "id, holder, created_at, runs, streamed";

fn head(row: &Row) -> BackgroundHead {
    BackgroundHead {
        id: row.get("id"),
        holder: row.get("holder"),
        created: Time(from_integer(row.get("created_at"))),
        runs: u32::try_from(row.get::<i64>("runs")).unwrap_or(u32::MAX),
        is_streamed: row.get::<i64>("streamed") != 0,
    }
}

impl Store {
    /// Stores a new background response, or returns the limit that prevents it.
    pub async fn add_background(
        &self,
        response: &BackgroundResponse,
        bounds: BackgroundBounds,
    ) -> Result<Option<BackgroundLimit>, StoreError> {
        let bytes = (response.request.len() + response.response.len()).max(BYTES_MIN);
        self.write("store a background response", async |connection| {
            let row = query(
                "SELECT count(*) AS number, CAST(coalesce(sum(bytes), 0) AS BIGINT) AS bytes,
                 count(CASE WHEN holder = ?1 THEN 1 END) AS own_number,
                 CAST(coalesce(sum(CASE WHEN holder = ?1 THEN bytes END), 0) AS BIGINT) AS own_bytes
                 FROM background_responses",
            )
            .bind(&response.holder)
            .fetch_one(&mut *connection)
            .await?;
            let sum = |name: &str| from_integer(row.get(name));
            let more = bytes as u64;
            let limits = [
                (sum("own_number") >= bounds.number_per_holder, BackgroundLimit::NumberOfHolder),
                (sum("own_bytes") + more > bounds.bytes_per_holder.0, BackgroundLimit::BytesOfHolder),
                (sum("number") >= bounds.number, BackgroundLimit::Number),
                (sum("bytes") + more > bounds.bytes.0, BackgroundLimit::Bytes),
            ];
            let reached = limits.into_iter().find(|(is_reached, _)| *is_reached);
            if let Some((_, limit)) = reached {
                return Ok(Some(limit));
            }
            query(
                "INSERT INTO background_responses (id, holder, created_at, runs, streamed, bytes, request, response)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            )
            .bind(&response.id)
            .bind(&response.holder)
            .bind(to_integer(response.created.0))
            .bind(i64::from(response.runs))
            .bind(i64::from(response.is_streamed))
            .bind(count(bytes))
            .bind(&response.request)
            .bind(&response.response)
            .execute(connection)
            .await?;
            Ok(None)
        })
        .await
    }

    /// All background responses that have not ended, oldest first.
    pub async fn background_heads(&self) -> Result<Vec<BackgroundHead>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM background_responses ORDER BY created_at, id");
        let rows = query(sql).fetch_all(&self.readers).await;
        let rows = rows.map_err(self.failed("list the background responses"))?;
        Ok(rows.iter().map(head).collect())
    }

    /// A background response of this holder that has not ended.
    pub async fn background(
        &self,
        holder: &str,
        id: &str,
    ) -> Result<Option<BackgroundResponse>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS}, request, response FROM background_responses WHERE id = ? AND holder = ?"
        );
        let row = query(sql).bind(id).bind(holder);
        let row = row.fetch_optional(&self.readers).await;
        let row = row.map_err(self.failed("read a background response"))?;
        Ok(row.map(|row| {
            let head = head(&row);
            BackgroundResponse {
                id: head.id,
                holder: head.holder,
                created: head.created,
                runs: head.runs,
                is_streamed: head.is_streamed,
                request: row.get("request"),
                response: row.get("response"),
            }
        }))
    }

    /// Counts a run whose engine has begun to respond.
    pub async fn count_background_run(&self, id: &str) -> Result<(), StoreError> {
        self.write("count a run of a background response", async |connection| {
            query("UPDATE background_responses SET runs = runs + 1 WHERE id = ?")
                .bind(id)
                .execute(connection)
                .await
        })
        .await
        .map(|_| ())
    }

    /// Replaces a background response with its result. Returns false if it has ended already.
    pub async fn end_background(
        &self,
        result: &StoredResponse,
        now: Time,
        bounds: ResponseBounds,
    ) -> Result<bool, StoreError> {
        self.write(
            "store the end of a background response",
            async |connection| {
                let sql = "DELETE FROM background_responses WHERE id = ? AND holder = ?";
                let deleted = query(sql)
                    .bind(&result.id)
                    .bind(&result.holder)
                    .execute(&mut *connection)
                    .await?;
                if deleted == 0 {
                    return Ok(false);
                }
                insert(connection, result, now).await?;
                make_room(connection, &result.holder, bounds).await?;
                Ok(true)
            },
        )
        .await
    }

    /// Deletes a background response that has not ended. Returns false if it does not exist.
    pub async fn delete_background(&self, holder: &str, id: &str) -> Result<bool, StoreError> {
        self.write("delete a background response", async |connection| {
            query("DELETE FROM background_responses WHERE id = ? AND holder = ?")
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
    use std::sync::Arc;

    use super::*;
    use crate::testing::stores;
    use pool::Span;

    const BOUNDS: BackgroundBounds = BackgroundBounds {
        number_per_holder: 2,
        bytes_per_holder: Bytes(3 * BYTES_MIN as u64),
        number: 3,
        bytes: Bytes(1 << 20),
    };
    const STORED: ResponseBounds = ResponseBounds {
        keep: Span::from_secs(1000),
        number_per_holder: 100,
        bytes_per_holder: Bytes(1 << 20),
        bytes: Bytes(1 << 20),
    };

    fn background(id: &str, holder: &str, created: u64) -> BackgroundResponse {
        BackgroundResponse {
            id: id.to_owned(),
            holder: holder.to_owned(),
            created: Time(created),
            runs: 0,
            is_streamed: created == 2,
            request: r#"{"background":true}"#.to_owned(),
            response: r#"{"status":"queued"}"#.to_owned(),
        }
    }

    fn result(id: &str, holder: &str) -> StoredResponse {
        StoredResponse {
            id: id.to_owned(),
            holder: holder.to_owned(),
            previous: None,
            conversation: None,
            response: r#"{"status":"cancelled"}"#.to_owned(),
            input: Vec::new(),
            output: Vec::new(),
        }
    }

    async fn ids(store: &Store) -> Vec<String> {
        let heads = store.background_heads().await.expect("read");
        heads.into_iter().map(|head| head.id).collect()
    }

    #[tokio::test]
    async fn a_background_response_ends_once_and_only_for_its_holder() {
        for store in stores().await {
            for (id, created) in [("b", 2), ("a", 1)] {
                let new = background(id, "key:1", created);
                assert_eq!(store.add_background(&new, BOUNDS).await.unwrap(), None);
            }
            assert_eq!(ids(&store).await, ["a", "b"]);
            store.count_background_run("b").await.unwrap();
            let found = store.background("key:1", "b").await.unwrap().unwrap();
            assert_eq!((found.runs, found.is_streamed), (1, true));
            assert_eq!(store.background("key:2", "b").await.unwrap(), None);
            assert!(!store.delete_background("key:2", "a").await.unwrap());
            let other = result("a", "key:2");
            assert!(!store.end_background(&other, Time(3), STORED).await.unwrap());
            let end = result("a", "key:1");
            assert!(store.end_background(&end, Time(3), STORED).await.unwrap());
            assert!(!store.end_background(&end, Time(3), STORED).await.unwrap());
            assert_eq!(store.response("key:1", "a").await.unwrap(), Some(end));
            assert!(store.delete_background("key:1", "b").await.unwrap());
            assert!(ids(&store).await.is_empty());
        }
    }

    #[tokio::test]
    async fn the_result_of_a_run_replaces_the_row_and_a_second_result_is_left_out() {
        for store in stores().await {
            let new = background("a", "key:1", 1);
            store.add_background(&new, BOUNDS).await.unwrap();
            let first = Arc::new(result("a", "key:1"));
            store
                .add_responses(&[Arc::clone(&first)], Time(2), STORED)
                .await
                .unwrap();
            assert!(ids(&store).await.is_empty());
            let mut second = result("a", "key:1");
            second.response = r#"{"status":"completed"}"#.to_owned();
            let again = [Arc::new(second)];
            store.add_responses(&again, Time(3), STORED).await.unwrap();
            let found = store.response("key:1", "a").await.unwrap();
            assert_eq!(found.as_ref(), Some(first.as_ref()));
        }
    }

    #[tokio::test]
    async fn each_limit_refuses_a_further_background_response() {
        for store in stores().await {
            for (id, holder, expected) in [
                ("a", "key:1", None),
                ("b", "key:1", None),
                ("c", "key:1", Some(BackgroundLimit::NumberOfHolder)),
                ("d", "key:2", None),
                ("e", "key:3", Some(BackgroundLimit::Number)),
            ] {
                let new = background(id, holder, 1);
                let added = store.add_background(&new, BOUNDS).await.unwrap();
                assert_eq!(added, expected, "{id}");
            }
            let wide = BackgroundBounds {
                number_per_holder: 9,
                number: 9,
                ..BOUNDS
            };
            let mut long = background("f", "key:1", 1);
            long.request = "x".repeat(BYTES_MIN + 1);
            let added = store.add_background(&long, wide).await.unwrap();
            assert_eq!(added, Some(BackgroundLimit::BytesOfHolder));
            let full = BackgroundBounds {
                bytes: Bytes(3 * BYTES_MIN as u64),
                ..wide
            };
            let last = background("g", "key:4", 1);
            let added = store.add_background(&last, full).await.unwrap();
            assert_eq!(added, Some(BackgroundLimit::Bytes));
        }
    }
}
