//! Conversations that clients create and name in requests, each visible only to its holder. The least recently used ones are
//! deleted completely.

use super::stored::{ResponseBounds, StoredItem, count, make_room};
use super::totals::{self, Table};
use crate::database::Store;
use crate::sql::integers::{from_integer, to_integer};
use crate::sql::query::query;
use crate::sql::{Connection, Row, StoreError};
use pool::Time;

/// The size of a row without its texts.
const ROW_BYTES: usize = 128;

/// A conversation without its items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedConversation {
    pub id: String,
    pub holder: String,
    pub created: Time,
    /// With its items.
    pub bytes: usize,
    /// A JSON object.
    pub metadata: String,
}

/// A page of a conversation's items.
#[derive(Clone, Copy, Debug)]
pub struct ItemPage<'a> {
    /// Begins with the first item.
    pub is_rising: bool,
    /// The items after this one.
    pub after: Option<&'a str>,
    pub limit: u32,
}

const COLUMNS: &str = "id, holder, created_at, bytes, metadata";

fn conversation(row: &Row) -> NamedConversation {
    NamedConversation {
        id: row.get("id"),
        holder: row.get("holder"),
        created: Time(from_integer(row.get("created_at"))),
        bytes: usize::try_from(row.get::<i64>("bytes")).unwrap_or(0),
        metadata: row.get("metadata"),
    }
}

fn item(row: &Row) -> StoredItem {
    StoredItem {
        id: row.get("id"),
        item: row.get("item"),
    }
}

/// The size of a stored item.
fn item_bytes(item: &StoredItem) -> usize {
    item.id.len() + item.item.len() + ROW_BYTES
}

impl Store {
    /// Stores a new conversation with its first items, and deletes what the holder has stored beyond the limits.
    pub async fn add_conversation(
        &self,
        new: &NamedConversation,
        items: &[StoredItem],
        bounds: ResponseBounds,
    ) -> Result<AddedItems, StoreError> {
        let own = new.id.len() + new.metadata.len() + ROW_BYTES;
        let bytes = own + items.iter().map(item_bytes).sum::<usize>();
        self.write("store a conversation", async |connection| {
            if !has_room(connection, &new.holder, bytes, bounds).await? {
                return Ok(AddedItems::NoRoom);
            }
            query(
                "INSERT INTO named_conversations (id, holder, created_at, used_at, bytes, metadata)
                 VALUES (?, ?, ?, ?, ?, ?)",
            )
            .bind(&new.id)
            .bind(&new.holder)
            .bind(to_integer(new.created.0))
            .bind(to_integer(new.created.0))
            .bind(count(own))
            .bind(&new.metadata)
            .execute(&mut *connection)
            .await?;
            totals::change(connection, Table::NamedConversations, 1, count(own)).await?;
            append(connection, (&new.holder, &new.id), items, new.created).await?;
            make_room(connection, &new.holder, bounds).await?;
            Ok(AddedItems::Added)
        })
        .await
    }

    /// A conversation of this holder.
    pub async fn named_conversation(
        &self,
        holder: &str,
        id: &str,
    ) -> Result<Option<NamedConversation>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM named_conversations WHERE id = ? AND holder = ?");
        let row = query(sql).bind(id).bind(holder);
        let row = row.fetch_optional(&self.readers).await;
        let row = row.map_err(self.failed("read a conversation"))?;
        Ok(row.as_ref().map(conversation))
    }

    /// Replaces the metadata of a conversation of this holder, and returns the conversation. Deletes what the holder has stored
    /// beyond the limits.
    pub async fn set_conversation_metadata(
        &self,
        (holder, id): (&str, &str),
        metadata: &str,
        now: Time,
        bounds: ResponseBounds,
    ) -> Result<Option<NamedConversation>, StoreError> {
        self.write("change a conversation", async |connection| {
            let before = query(format!(
                "SELECT CAST(octet_length(metadata) AS BIGINT) AS bytes FROM named_conversations
                 WHERE id = ? AND holder = ?{}",
                totals::for_change(connection)
            ));
            let before = before.bind(id).bind(holder);
            let Some(before) = before.fetch_optional(&mut *connection).await? else {
                return Ok(None);
            };
            let more = count(metadata.len()) - before.get::<i64>("bytes");
            let sql = format!(
                "UPDATE named_conversations SET bytes = bytes + ?, metadata = ?, used_at = ?
                 WHERE id = ? RETURNING {COLUMNS}"
            );
            let row = query(sql)
                .bind(more)
                .bind(metadata)
                .bind(to_integer(now.0))
                .bind(id)
                .fetch_optional(&mut *connection)
                .await?;
            totals::change(connection, Table::NamedConversations, 0, more).await?;
            make_room(connection, holder, bounds).await?;
            Ok(row.as_ref().map(conversation))
        })
        .await
    }

    /// Deletes a conversation of this holder. Returns false if it does not exist.
    pub async fn delete_conversation(&self, holder: &str, id: &str) -> Result<bool, StoreError> {
        self.write("delete a conversation", async |connection| {
            delete(connection, holder, id).await
        })
        .await
    }

    /// Adds items to a conversation of this holder, unless it would then have more than `bytes_max`. Returns `None` if it does not
    /// exist.
    pub async fn add_conversation_items(
        &self,
        (holder, id): (&str, &str),
        items: &[StoredItem],
        now: Time,
        bytes_max: usize,
        bounds: ResponseBounds,
    ) -> Result<Option<AddedItems>, StoreError> {
        self.write("add items to a conversation", async |connection| {
            let bytes: Option<i64> =
                query("SELECT bytes FROM named_conversations WHERE id = ? AND holder = ?")
                    .bind(id)
                    .bind(holder)
                    .fetch_optional(&mut *connection)
                    .await?
                    .map(|row| row.get("bytes"));
            let Some(bytes) = bytes else {
                return Ok(None);
            };
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            let more: usize = items.iter().map(item_bytes).sum();
            if bytes.saturating_add(more) > bytes_max {
                return Ok(Some(AddedItems::TooLarge));
            }
            if !has_room(connection, holder, bytes + more, bounds).await? {
                return Ok(Some(AddedItems::NoRoom));
            }
            append(connection, (holder, id), items, now).await?;
            make_room(connection, holder, bounds).await?;
            Ok(Some(AddedItems::Added))
        })
        .await
    }

    /// The items of a conversation of this holder, oldest first.
    pub async fn all_conversation_items(
        &self,
        holder: &str,
        id: &str,
    ) -> Result<Vec<StoredItem>, StoreError> {
        let rows = query(
            "SELECT i.id, i.item FROM conversation_items i
             JOIN named_conversations c ON c.id = i.conversation
             WHERE i.conversation = ? AND c.holder = ? ORDER BY i.nth",
        )
        .bind(id)
        .bind(holder)
        .fetch_all(&self.readers)
        .await
        .map_err(self.failed("read the items of a conversation"))?;
        Ok(rows.iter().map(item).collect())
    }

    /// A page of the items of a conversation of this holder.
    pub async fn conversation_items(
        &self,
        (holder, id): (&str, &str),
        page: ItemPage<'_>,
    ) -> Result<Vec<StoredItem>, StoreError> {
        let (side, order) = if page.is_rising {
            (">", "ASC")
        } else {
            ("<", "DESC")
        };
        let sql = format!(
            "SELECT i.id, i.item FROM conversation_items i
             JOIN named_conversations c ON c.id = i.conversation
             WHERE i.conversation = ?1 AND c.holder = ?2 AND (?3 = '' OR
             i.nth {side} (SELECT nth FROM conversation_items WHERE conversation = ?1 AND id = ?3))
             ORDER BY i.nth {order} LIMIT ?4"
        );
        let rows = query(sql)
            .bind(id)
            .bind(holder)
            .bind(page.after.unwrap_or_default())
            .bind(i64::from(page.limit))
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("list the items of a conversation"))?;
        Ok(rows.iter().map(item).collect())
    }

    /// An item of a conversation of this holder.
    pub async fn conversation_item(
        &self,
        (holder, id): (&str, &str),
        wanted: &str,
    ) -> Result<Option<StoredItem>, StoreError> {
        let row = query(
            "SELECT i.id, i.item FROM conversation_items i
             JOIN named_conversations c ON c.id = i.conversation
             WHERE i.conversation = ? AND c.holder = ? AND i.id = ?",
        )
        .bind(id)
        .bind(holder)
        .bind(wanted)
        .fetch_optional(&self.readers)
        .await
        .map_err(self.failed("read an item of a conversation"))?;
        Ok(row.as_ref().map(item))
    }

    /// Deletes an item of a conversation of this holder. Returns false if it does not exist.
    pub async fn delete_conversation_item(
        &self,
        (holder, id): (&str, &str),
        wanted: &str,
    ) -> Result<bool, StoreError> {
        self.write("delete an item of a conversation", async |connection| {
            let row = query(
                "DELETE FROM conversation_items WHERE conversation = ?1 AND id = ?2
                 AND conversation IN (SELECT id FROM named_conversations WHERE holder = ?3)
                 RETURNING id, item",
            )
            .bind(id)
            .bind(wanted)
            .bind(holder)
            .fetch_optional(&mut *connection)
            .await?;
            let Some(deleted) = row.as_ref().map(item) else {
                return Ok(false);
            };
            grow(connection, id, -count(item_bytes(&deleted))).await?;
            Ok(true)
        })
        .await
    }
}

/// The outcome of adding items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddedItems {
    Added,
    /// The conversation would be too large.
    TooLarge,
    /// The conversation would exceed the limit of its holder together with the background responses that have not ended.
    NoRoom,
}

/// Returns true if a conversation of this size fits into the limit of its holder after everything else but background responses is
/// deleted.
async fn has_room(
    connection: &mut Connection,
    holder: &str,
    bytes: usize,
    bounds: ResponseBounds,
) -> Result<bool, sqlx::Error> {
    let rows: i64 = query(
        "SELECT CAST(coalesce(sum(bytes), 0) AS BIGINT) FROM background_responses WHERE holder = ?",
    )
    .bind(holder)
    .fetch_value(connection)
    .await?;
    Ok(from_integer(rows).saturating_add(bytes as u64) <= bounds.bytes_per_holder.0)
}

/// Adds items to a conversation, if it still exists. An item whose id it has already is left out.
pub(super) async fn append(
    connection: &mut Connection,
    (holder, id): (&str, &str),
    items: &[StoredItem],
    now: Time,
) -> Result<(), sqlx::Error> {
    let exists = query("UPDATE named_conversations SET used_at = ? WHERE id = ? AND holder = ?")
        .bind(to_integer(now.0))
        .bind(id)
        .bind(holder)
        .execute(&mut *connection)
        .await?;
    if exists == 0 {
        return Ok(());
    }
    let mut bytes = 0;
    for new in items {
        let added = query(
            "INSERT INTO conversation_items (conversation, id, item) VALUES (?, ?, ?)
             ON CONFLICT (conversation, id) DO NOTHING",
        )
        .bind(id)
        .bind(&new.id)
        .bind(&new.item)
        .execute(&mut *connection)
        .await?;
        if added > 0 {
            bytes += item_bytes(new);
        }
    }
    grow(connection, id, count(bytes)).await
}

/// Adds to the size of a conversation that exists.
async fn grow(connection: &mut Connection, id: &str, bytes: i64) -> Result<(), sqlx::Error> {
    let grown = query("UPDATE named_conversations SET bytes = bytes + ? WHERE id = ?")
        .bind(bytes)
        .bind(id)
        .execute(&mut *connection)
        .await?;
    let bytes = if grown > 0 { bytes } else { 0 };
    totals::change(connection, Table::NamedConversations, 0, bytes).await
}

/// Deletes a conversation with its items. Returns false if it does not exist.
pub(super) async fn delete(
    connection: &mut Connection,
    holder: &str,
    id: &str,
) -> Result<bool, sqlx::Error> {
    let sql = "DELETE FROM named_conversations WHERE id = ? AND holder = ? RETURNING bytes";
    let deleted = query(sql)
        .bind(id)
        .bind(holder)
        .fetch_all(&mut *connection)
        .await?;
    let deleted = totals::subtract(connection, Table::NamedConversations, deleted).await?;
    Ok(deleted > 0)
}

#[cfg(test)]
mod tests;
