//! Responses that clients requested to store, each visible only to its holder: the input, the output, and the response that it
//! continues. Deletes complete conversations, least recently used first.

use std::sync::Arc;

use super::named::{self, append};
use super::totals::{self, Table};
use crate::database::Store;
use crate::history::FORGOTTEN_AT_ONCE;
use crate::sql::integers::{from_integer, to_integer};
use crate::sql::query::query;
use crate::sql::{Connection, Row, StoreError};
use config::ResponsesSection;
use pool::{Bytes, Span, Time};

/// Rows per statement: each statement costs more than a row.
const ITEMS_AT_ONCE: usize = 50;
/// The size of a row without its texts.
const ROW_BYTES: usize = 128;

/// An item of a request or a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredItem {
    pub id: String,
    /// The JSON object.
    pub item: String,
}

/// A stored response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    pub id: String,
    /// The holder, who alone can read it.
    pub holder: String,
    /// The response that it continues.
    pub previous: Option<String>,
    /// The conversation to which its items are added. `None` in a response that was read.
    pub conversation: Option<String>,
    /// The number of the last event, if the events were kept while it ran.
    pub last_event: Option<u64>,
    /// The JSON object, with an empty output.
    pub response: String,
    pub input: Vec<StoredItem>,
    pub output: Vec<StoredItem>,
}

impl StoredResponse {
    /// The approximate size.
    pub fn bytes(&self) -> usize {
        let items = self.input.iter().chain(&self.output);
        let items: usize = items
            .map(|item| item.id.len() + item.item.len() + ROW_BYTES)
            .sum();
        self.id.len() + self.response.len() + items + ROW_BYTES
    }
}

/// Limits of the stored responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseBounds {
    /// Time after a conversation's last response.
    pub keep: Span,
    pub number_per_holder: u64,
    pub bytes_per_holder: Bytes,
    pub bytes: Bytes,
}

impl ResponseBounds {
    /// The configured limits. If storing is disabled, everything is too old.
    pub fn from_config(section: &ResponsesSection) -> ResponseBounds {
        ResponseBounds {
            keep: if section.store {
                section.keep.0
            } else {
                Span::ZERO
            },
            number_per_holder: u64::from(section.per_key),
            bytes_per_holder: section.per_key_size.0,
            bytes: section.size.0,
        }
    }
}

impl Store {
    /// Stores responses, and deletes their holders' responses beyond the limits.
    pub async fn add_responses(
        &self,
        responses: &[Arc<StoredResponse>],
        now: Time,
        bounds: ResponseBounds,
    ) -> Result<(), StoreError> {
        self.write("store responses", async |connection| {
            for response in responses {
                insert(connection, response, now).await?;
            }
            let mut holders: Vec<&str> = responses
                .iter()
                .map(|response| response.holder.as_str())
                .collect();
            holders.sort_unstable();
            holders.dedup();
            for holder in holders {
                make_room(connection, holder, bounds).await?;
            }
            Ok(())
        })
        .await
    }

    /// Deletes a response of this holder. Returns false if it does not exist.
    pub async fn delete_response(&self, holder: &str, id: &str) -> Result<bool, StoreError> {
        self.write("delete a stored response", async |connection| {
            let deleted = query(
                "DELETE FROM responses WHERE id = ?1
                 AND conversation IN (SELECT id FROM conversations WHERE holder = ?2) RETURNING bytes",
            )
            .bind(id)
            .bind(holder)
            .fetch_all(&mut *connection)
            .await?;
            let deleted = totals::subtract(connection, Table::Responses, deleted).await?;
            query(
                "DELETE FROM conversations WHERE holder = ?1
                 AND NOT EXISTS (SELECT 1 FROM responses WHERE conversation = conversations.id)",
            )
            .bind(holder)
            .execute(connection)
            .await?;
            Ok(deleted > 0)
        })
        .await
    }
}

/// Deletes a conversation with its responses.
pub(super) async fn delete_chain(connection: &mut Connection, id: i64) -> Result<(), sqlx::Error> {
    // No other process adds a response to a locked row.
    let lock = format!(
        "SELECT id FROM conversations WHERE id = ?{}",
        totals::for_change(connection)
    );
    query(lock).bind(id).fetch_all(&mut *connection).await?;
    let deleted = query("DELETE FROM responses WHERE conversation = ? RETURNING bytes")
        .bind(id)
        .fetch_all(&mut *connection)
        .await?;
    totals::subtract(connection, Table::Responses, deleted).await?;
    query("DELETE FROM conversations WHERE id = ?")
        .bind(id)
        .execute(connection)
        .await
        .map(|_| ())
}

/// Inserts a response, unless one with its id exists.
pub(super) async fn insert(
    connection: &mut Connection,
    response: &StoredResponse,
    now: Time,
) -> Result<(), sqlx::Error> {
    let exists = query("SELECT 1 AS found FROM responses WHERE id = ?")
        .bind(&response.id)
        .fetch_optional(&mut *connection)
        .await?;
    if exists.is_some() {
        return Ok(());
    }
    if let Some(id) = &response.conversation {
        let conversation = (response.holder.as_str(), id.as_str());
        append(connection, conversation, &response.input, now).await?;
        append(connection, conversation, &response.output, now).await?;
    }
    let now = to_integer(now.0);
    let continued = query(
        "UPDATE conversations SET used_at = CASE WHEN used_at < ?1 THEN ?1 ELSE used_at END
         WHERE holder = ?2 AND id = (SELECT conversation FROM responses WHERE id = ?3) RETURNING id",
    )
    .bind(now)
    .bind(&response.holder)
    .bind(response.previous.as_deref())
    .fetch_optional(&mut *connection)
    .await?;
    let conversation: i64 = match continued {
        Some(row) => row.get("id"),
        None => {
            query("INSERT INTO conversations (holder, used_at) VALUES (?, ?) RETURNING id")
                .bind(&response.holder)
                .bind(now)
                .fetch_value(&mut *connection)
                .await?
        }
    };
    let nth: i64 = query(
        "INSERT INTO responses (id, conversation, previous, bytes, last_event, response)
         VALUES (?, ?, ?, ?, ?, ?) RETURNING nth",
    )
    .bind(&response.id)
    .bind(conversation)
    .bind(response.previous.as_deref())
    .bind(count(response.bytes()))
    .bind(response.last_event.map(to_integer))
    .bind(&response.response)
    .fetch_value(&mut *connection)
    .await?;
    totals::change(
        &mut *connection,
        Table::Responses,
        1,
        count(response.bytes()),
    )
    .await?;
    let input = response.input.iter().map(|item| (false, item));
    let output = response.output.iter().map(|item| (true, item));
    let items: Vec<_> = input.chain(output).enumerate().collect();
    let whole = items.chunks_exact(ITEMS_AT_ONCE);
    // Single rows for the rest, which limits the number of prepared statements to two.
    let rest = whole.remainder().chunks(1);
    for rows in whole.chain(rest) {
        let mut statement =
            query("INSERT INTO response_items (response, place, is_output, id, item) VALUES ");
        for (nth_row, (place, (is_output, item))) in rows.iter().enumerate() {
            statement.push(if nth_row == 0 { "(" } else { ", (" });
            statement.push_bind(nth).push(", ");
            statement.push_bind(count(*place)).push(", ");
            statement.push_bind(*is_output).push(", ");
            statement.push_bind(&item.id).push(", ");
            statement.push_bind(&item.item).push(")");
        }
        statement.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Deletes the responses and conversations of a holder beyond the limits, least recently used first: complete conversations, and of
/// the last remaining chain of responses the oldest ones that no other continues. The sizes of responses, conversations and
/// background responses have one limit. Background responses are not deleted, and the last conversation that a client created stays.
pub(super) async fn make_room(
    connection: &mut Connection,
    holder: &str,
    bounds: ResponseBounds,
) -> Result<(), sqlx::Error> {
    for _ in 0..FORGOTTEN_AT_ONCE {
        let row = query(
            "SELECT
             (SELECT count(*) FROM conversations c JOIN responses r ON r.conversation = c.id
              WHERE c.holder = ?1) AS number,
             (SELECT count(*) FROM named_conversations WHERE holder = ?1) AS named,
             (SELECT CAST(coalesce(sum(r.bytes), 0) AS BIGINT)
              FROM conversations c JOIN responses r ON r.conversation = c.id WHERE c.holder = ?1) +
             (SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT)
              FROM named_conversations WHERE holder = ?1) +
             (SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT)
              FROM background_responses WHERE holder = ?1) AS bytes",
        )
        .bind(holder)
        .fetch_one(&mut *connection)
        .await?;
        let sum = |name: &str| from_integer(row.get(name));
        let has_too_many = sum("number") > bounds.number_per_holder;
        let has_too_many_named = sum("named") > bounds.number_per_holder;
        if !has_too_many && !has_too_many_named && sum("bytes") <= bounds.bytes_per_holder.0 {
            break;
        }
        let oldest = query(
            "SELECT id, used_at FROM conversations WHERE holder = ? ORDER BY used_at, id LIMIT 2",
        )
        .bind(holder)
        .fetch_all(&mut *connection)
        .await?;
        let oldest_named = query(
            "SELECT id, used_at FROM named_conversations WHERE holder = ? ORDER BY used_at, id LIMIT 1",
        )
        .bind(holder)
        .fetch_optional(&mut *connection)
        .await?;
        let used_at = |row: &Row| row.get::<i64>("used_at");
        let is_named_older = match (oldest.first(), &oldest_named) {
            (Some(first), Some(named)) => used_at(named) < used_at(first),
            (None, _) => true,
            (_, None) => false,
        };
        if !has_too_many && (has_too_many_named || is_named_older) {
            let is_last = oldest.is_empty() && sum("named") <= 1;
            let Some(named) = oldest_named.filter(|_| !is_last) else {
                break;
            };
            let id: String = named.get("id");
            named::delete(connection, holder, &id).await?;
            continue;
        }
        let Some(first) = oldest.first().map(|row| row.get::<i64>("id")) else {
            break;
        };
        let mut deleted = 0;
        if oldest.len() == 1 {
            let rows = query(
                "DELETE FROM responses WHERE nth = (
                     SELECT nth FROM responses r WHERE conversation = ?
                     AND NOT EXISTS (SELECT 1 FROM responses WHERE previous = r.id)
                     ORDER BY nth LIMIT 1) RETURNING bytes",
            )
            .bind(first)
            .fetch_all(&mut *connection)
            .await?;
            deleted = totals::subtract(connection, Table::Responses, rows).await?;
        }
        if deleted == 0 {
            delete_chain(connection, first).await?;
        }
    }
    Ok(())
}

pub(crate) fn count(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
