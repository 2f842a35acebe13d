//! Background responses that have not ended. The row of a response is deleted in the transaction that stores its result. The
//! transaction that deletes the row ends the response.

use super::stored::{ResponseBounds, StoredResponse, count, insert, make_room};
use super::totals::{self, Table};
use crate::database::Store;
use crate::sql::integers::{from_integer, to_integer};
use crate::sql::query::query;
use crate::sql::{Connection, Row, StoreError};
use pool::Time;

/// Smallest size that a background response counts with.
const BYTES_MIN: usize = 4 << 10;

/// A background response that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackgroundResponse {
    pub id: String,
    pub holder: String,
    /// A JSON object that describes the holder, if the holder is a person.
    pub person: Option<String>,
    pub created: Time,
    /// Runs in which an engine began to respond.
    pub runs: u32,
    /// Runs that a crash or a restart has cut. The present run counts from its first event until it ends.
    pub cuts: u32,
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
    pub person: Option<String>,
    pub created: Time,
    pub runs: u32,
    pub cuts: u32,
    pub is_streamed: bool,
}

/// Limits of the background responses that have not ended. [`ResponseBounds`] has the limits of their sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackgroundBounds {
    pub number_per_holder: u64,
    pub number: u64,
}

/// A limit that a further background response would exceed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundLimit {
    NumberOfHolder,
    BytesOfHolder,
    Number,
    Bytes,
}

const COLUMNS: &str = "id, holder, person, created_at, runs, cuts, streamed";

fn head(row: &Row) -> BackgroundHead {
    let number = |name: &str| u32::try_from(row.get::<i64>(name)).unwrap_or(u32::MAX);
    BackgroundHead {
        id: row.get("id"),
        holder: row.get("holder"),
        person: row.get("person"),
        created: Time(from_integer(row.get("created_at"))),
        runs: number("runs"),
        cuts: number("cuts"),
        is_streamed: row.get::<i64>("streamed") != 0,
    }
}

impl Store {
    /// Stores a new background response and deletes what the holder has stored beyond the limits, or returns the limit that prevents
    /// it.
    pub async fn add_background(
        &self,
        response: &BackgroundResponse,
        bounds: BackgroundBounds,
        sizes: ResponseBounds,
    ) -> Result<Option<BackgroundLimit>, StoreError> {
        let bytes = (response.request.len() + response.response.len()).max(BYTES_MIN);
        self.write("store a background response", async |connection| {
            let all = totals::total(connection, Table::BackgroundResponses).await?;
            let row = query(
                "SELECT count(*) AS own_number, CAST(coalesce(sum(bytes), 0) AS BIGINT) AS own_bytes,
                 CAST(coalesce((SELECT bytes FROM named_conversations WHERE holder = ?1
                     ORDER BY used_at DESC, id DESC LIMIT 1), 0) AS BIGINT) AS staying
                 FROM background_responses WHERE holder = ?1",
            )
            .bind(&response.holder)
            .fetch_one(&mut *connection)
            .await?;
            let sum = |name: &str| from_integer(row.get(name));
            let more = bytes as u64;
            let limits = [
                (sum("own_number") >= bounds.number_per_holder, BackgroundLimit::NumberOfHolder),
                (sum("own_bytes") + sum("staying") + more > sizes.bytes_per_holder.0, BackgroundLimit::BytesOfHolder),
                (all.number >= bounds.number, BackgroundLimit::Number),
                (all.bytes + more > sizes.bytes.0, BackgroundLimit::Bytes),
            ];
            let reached = limits.into_iter().find(|(is_reached, _)| *is_reached);
            if let Some((_, limit)) = reached {
                return Ok(Some(limit));
            }
            query(
                "INSERT INTO background_responses
                 (id, holder, person, created_at, runs, cuts, streamed, bytes, request, response)
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )
            .bind(&response.id)
            .bind(&response.holder)
            .bind(response.person.as_deref())
            .bind(to_integer(response.created.0))
            .bind(i64::from(response.runs))
            .bind(i64::from(response.cuts))
            .bind(i64::from(response.is_streamed))
            .bind(count(bytes))
            .bind(&response.request)
            .bind(&response.response)
            .execute(&mut *connection)
            .await?;
            totals::change(connection, Table::BackgroundResponses, 1, count(bytes)).await?;
            make_room(connection, &response.holder, sizes).await?;
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
                person: head.person,
                created: head.created,
                runs: head.runs,
                cuts: head.cuts,
                is_streamed: head.is_streamed,
                request: row.get("request"),
                response: row.get("response"),
            }
        }))
    }

    /// Sets the numbers of runs, and of runs that were cut. Returns false if the response has ended.
    pub async fn set_background_runs(
        &self,
        id: &str,
        runs: u32,
        cuts: u32,
    ) -> Result<bool, StoreError> {
        self.write("count a run of a background response", async |connection| {
            query("UPDATE background_responses SET runs = ?, cuts = ? WHERE id = ?")
                .bind(i64::from(runs))
                .bind(i64::from(cuts))
                .bind(id)
                .execute(connection)
                .await
        })
        .await
        .map(|updated| updated > 0)
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
                if !delete(connection, &result.holder, &result.id).await? {
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
            delete(connection, holder, id).await
        })
        .await
    }

    /// Returns the responses of these that have ended.
    pub async fn ended_backgrounds(&self, ids: &[&str]) -> Result<Vec<String>, StoreError> {
        let rows = query(format!(
            "SELECT wanted.value AS id FROM {} WHERE NOT EXISTS
             (SELECT 1 FROM background_responses b WHERE b.id = wanted.value)",
            self.dialect().wanted()
        ))
        .bind(self.list_of(ids))
        .fetch_all(&self.readers)
        .await
        .map_err(self.failed("find ended background responses"))?;
        Ok(rows.iter().map(|row| row.get("id")).collect())
    }
}

/// Deletes the row of a response. Returns false if it does not exist.
async fn delete(connection: &mut Connection, holder: &str, id: &str) -> Result<bool, sqlx::Error> {
    let sql = "DELETE FROM background_responses WHERE id = ? AND holder = ? RETURNING bytes";
    let deleted = query(sql)
        .bind(id)
        .bind(holder)
        .fetch_all(&mut *connection)
        .await?;
    let deleted = totals::subtract(connection, Table::BackgroundResponses, deleted).await?;
    Ok(deleted > 0)
}

#[cfg(test)]
mod tests;
