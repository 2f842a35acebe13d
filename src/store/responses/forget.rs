//! Deletes old conversations, and the least recently used conversations beyond the common limit of all holders.

use super::named;
use super::stored::{ResponseBounds, delete_chain};
use super::totals;
use crate::database::Store;
use crate::sql::integers::to_integer;
use crate::sql::query::query;
use crate::sql::{Connection, Row, StoreError};
use pool::Time;

/// Conversations per deletion. Each may have a thousand responses.
const CONVERSATIONS_AT_ONCE: i64 = 20;

impl Store {
    /// Deletes some conversations that are too old, belong to revoked keys, or exceed the space. Returns true if there may be more.
    pub async fn forget_responses(
        &self,
        now: Time,
        bounds: ResponseBounds,
    ) -> Result<bool, StoreError> {
        let before = now.0.saturating_sub(bounds.keep.0);
        self.write("delete old responses", async |connection| {
            let mut deleted = forgettable(connection, "conversations", before).await?;
            let named = forgettable(connection, "named_conversations", before).await?;
            deleted.extend(named);
            if deleted.is_empty() && totals::bytes(connection).await? > bounds.bytes.0 {
                let one = least_used(connection, "conversations").await?;
                let named = least_used(connection, "named_conversations").await?;
                deleted.extend(
                    one.into_iter()
                        .chain(named)
                        .min_by_key(|found| found.used_at),
                );
            }
            for conversation in &deleted {
                conversation.delete(connection).await?;
            }
            Ok(!deleted.is_empty())
        })
        .await
    }
}

/// A conversation to delete.
struct LeastUsed {
    id: ConversationId,
    used_at: i64,
}

/// The conversation of a chain of responses, or a conversation that a client created.
enum ConversationId {
    Chain(i64),
    Named { holder: String, id: String },
}

impl LeastUsed {
    fn from_row(table: &'static str, row: &Row) -> LeastUsed {
        LeastUsed {
            id: if table == "conversations" {
                ConversationId::Chain(row.get("id"))
            } else {
                ConversationId::Named {
                    holder: row.get("holder"),
                    id: row.get("id"),
                }
            },
            used_at: row.get("used_at"),
        }
    }

    async fn delete(&self, connection: &mut Connection) -> Result<(), sqlx::Error> {
        match &self.id {
            ConversationId::Chain(id) => delete_chain(connection, *id).await,
            ConversationId::Named { holder, id } => {
                named::delete(connection, holder, id).await.map(|_| ())
            }
        }
    }
}

/// Some conversations that were not used since `before`, or that belong to revoked keys.
async fn forgettable(
    connection: &mut Connection,
    table: &'static str,
    before: u64,
) -> Result<Vec<LeastUsed>, sqlx::Error> {
    let rows = query(format!(
        "SELECT id, holder, used_at FROM {table}
         WHERE used_at < ? OR holder IN (SELECT 'key:' || CAST(id AS TEXT) FROM keys WHERE revoked <> 0)
         ORDER BY used_at LIMIT ?"
    ))
    .bind(to_integer(before))
    .bind(CONVERSATIONS_AT_ONCE)
    .fetch_all(connection)
    .await?;
    let conversations = rows.iter().map(|row| LeastUsed::from_row(table, row));
    Ok(conversations.collect())
}

async fn least_used(
    connection: &mut Connection,
    table: &'static str,
) -> Result<Option<LeastUsed>, sqlx::Error> {
    let sql = format!("SELECT id, holder, used_at FROM {table} ORDER BY used_at LIMIT 1");
    let row = query(sql).fetch_optional(connection).await?;
    Ok(row.map(|row| LeastUsed::from_row(table, &row)))
}
