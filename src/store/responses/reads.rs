//! Reads stored responses: a response, the conversation that leads to it, and single items. Sizes are read before texts, which lets
//! the reader bound the memory.

use super::stored::{StoredItem, StoredResponse, count};
use crate::database::Store;
use crate::sql::integers::from_integer;
use crate::sql::query::query;
use crate::sql::{Dialect, Row, StoreError};

/// Limits for following a conversation backwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainBounds {
    pub responses: usize,
    pub bytes: usize,
}

/// One response of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredLink {
    pub id: String,
    /// The response that it continues.
    pub previous: Option<String>,
    pub bytes: usize,
}

/// The location of a stored item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ItemPlace {
    pub id: String,
    pub bytes: usize,
    row: i64,
}

impl Store {
    /// A response of this holder.
    pub async fn response(
        &self,
        holder: &str,
        id: &str,
    ) -> Result<Option<StoredResponse>, StoreError> {
        let rows = query(
            "SELECT r.previous, r.last_event, r.response, i.id, i.item, i.is_output
             FROM responses r JOIN conversations c ON c.id = r.conversation
             LEFT JOIN response_items i ON i.response = r.nth
             WHERE r.id = ?1 AND c.holder = ?2 ORDER BY i.place",
        )
        .bind(id)
        .bind(holder)
        .fetch_all(&self.readers)
        .await
        .map_err(self.failed("read a stored response"))?;
        let Some(first) = rows.first() else {
            return Ok(None);
        };
        let mut found = StoredResponse {
            id: id.to_owned(),
            holder: holder.to_owned(),
            previous: first.get("previous"),
            conversation: None,
            last_event: first.get::<Option<i64>>("last_event").map(from_integer),
            response: first.get("response"),
            input: Vec::new(),
            output: Vec::new(),
        };
        for row in &rows {
            let (Some(id), Some(item)) = (row.get("id"), row.get("item")) else {
                continue;
            };
            let side = match row.get::<i64>("is_output") {
                0 => &mut found.input,
                _ => &mut found.output,
            };
            side.push(StoredItem { id, item });
        }
        Ok(Some(found))
    }

    /// A response of this holder and its predecessors, latest first. The last one still has a `previous` if that response is not
    /// stored, or if a limit was reached.
    pub async fn conversation(
        &self,
        holder: &str,
        id: &str,
        bounds: ChainBounds,
    ) -> Result<Vec<StoredLink>, StoreError> {
        let rows = query(
            "WITH RECURSIVE chain (id, previous, bytes, number, total) AS (
                 SELECT r.id, r.previous, r.bytes, 1, r.bytes
                 FROM responses r JOIN conversations c ON c.id = r.conversation
                 WHERE r.id = ?1 AND c.holder = ?2
                 UNION ALL
                 SELECT r.id, r.previous, r.bytes, chain.number + 1, chain.total + r.bytes
                 FROM chain JOIN responses r ON r.id = chain.previous
                 JOIN conversations c ON c.id = r.conversation AND c.holder = ?2
                 WHERE chain.number < ?3 AND chain.total <= ?4
             )
             SELECT id, previous, bytes FROM chain ORDER BY number",
        )
        .bind(id)
        .bind(holder)
        .bind(count(bounds.responses))
        .bind(count(bounds.bytes))
        .fetch_all(&self.readers)
        .await
        .map_err(self.failed("follow a stored conversation"))?;
        let link = |row: &Row| StoredLink {
            id: row.get("id"),
            previous: row.get("previous"),
            bytes: size(row),
        };
        Ok(rows.iter().map(link).collect())
    }

    /// The input and output items of these responses of this holder, in this order.
    pub async fn items_of(
        &self,
        holder: &str,
        responses: &[&str],
    ) -> Result<Vec<StoredItem>, StoreError> {
        let rows = query(format!(
            "SELECT i.id, i.item FROM {}
             JOIN responses r ON r.id = wanted.value
             JOIN conversations c ON c.id = r.conversation AND c.holder = ?2
             JOIN response_items i ON i.response = r.nth
             ORDER BY wanted.key, i.place",
            self.dialect().wanted()
        ))
        .bind(self.list_of(responses))
        .bind(holder)
        .fetch_all(&self.readers)
        .await
        .map_err(self.failed("read a stored conversation"))?;
        Ok(rows.iter().map(item).collect())
    }

    /// The locations of the items with these ids in this holder's responses, each once.
    pub async fn item_places(
        &self,
        holder: &str,
        ids: &[&str],
    ) -> Result<Vec<ItemPlace>, StoreError> {
        // Takes the latest of several: the others are the same item, sent again.
        let rows = query(format!(
            "SELECT id, rowid AS place, CAST(octet_length(item) AS BIGINT) AS bytes FROM response_items WHERE rowid IN (
                 SELECT max(i.rowid)
                 FROM {}
                 JOIN response_items i ON i.id = wanted.value
                 JOIN responses r ON r.nth = i.response
                 JOIN conversations c ON c.id = r.conversation
                 WHERE c.holder = ?2 GROUP BY i.id
             )",
            self.dialect().wanted()
        ))
        .bind(self.list_of(ids))
        .bind(holder)
        .fetch_all(&self.readers)
        .await
        .map_err(self.failed("find stored items"))?;
        let place = |row: &Row| ItemPlace {
            id: row.get("id"),
            bytes: size(row),
            row: row.get("place"),
        };
        Ok(rows.iter().map(place).collect())
    }

    /// The items at these locations, if they still exist.
    pub async fn items_at(&self, places: &[ItemPlace]) -> Result<Vec<StoredItem>, StoreError> {
        let rows: Vec<i64> = places.iter().map(|place| place.row).collect();
        let rows = query(format!(
            "SELECT i.id, i.item FROM {} JOIN response_items i ON i.rowid = CAST(wanted.value AS BIGINT)",
            self.dialect().wanted()
        ))
        .bind(as_json(&rows))
        .fetch_all(&self.readers)
        .await
        .map_err(self.failed("read stored items"))?;
        Ok(rows.iter().map(item).collect())
    }
}

impl Store {
    /// The ids as a JSON list, as stored: PostgreSQL's texts cannot contain NUL.
    pub(super) fn list_of(&self, ids: &[&str]) -> String {
        match self.dialect() {
            Dialect::Sqlite => as_json(&ids),
            Dialect::Postgres => {
                let ids: Vec<String> = ids.iter().map(|id| id.replace('\0', "\u{fffd}")).collect();
                as_json(&ids)
            }
        }
    }
}

fn item(row: &Row) -> StoredItem {
    StoredItem {
        id: row.get("id"),
        item: row.get("item"),
    }
}

fn size(row: &Row) -> usize {
    usize::try_from(row.get::<i64>("bytes")).unwrap_or(0)
}

/// Texts and figures can always be serialized.
fn as_json(values: &impl serde::Serialize) -> String {
    serde_json::to_string(values).unwrap_or_default()
}
