//! What each key used of each model in a day, for the people who have the key.

use super::query::{Row, query};
use super::{Store, StoreFault, from_integer, to_integer};
use pool::KeyId;

/// As many as of the minutes of `usage`.
const DAYS_KEPT: i64 = 100;

/// One model in one day of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyUsage {
    pub holder: KeyId,
    /// Days since 1970, in the service's time zone.
    pub day: i64,
    pub model: String,
    /// Requests that an engine took.
    pub requests: u64,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
}

impl Store {
    /// Adds to the stored days, and deletes those older than a hundred days.
    pub async fn add_key_usage(&self, used: &[KeyUsage]) -> Result<(), StoreFault> {
        self.write("save the usage of keys", async |connection| {
            for it in used {
                query(
                    "INSERT INTO key_usage (holder, day, model, requests, prompt_tokens, completion_tokens) VALUES (?, ?, ?, ?, ?, ?) \
                     ON CONFLICT (holder, day, model) DO UPDATE SET requests = key_usage.requests + excluded.requests, \
                     prompt_tokens = key_usage.prompt_tokens + excluded.prompt_tokens, \
                     completion_tokens = key_usage.completion_tokens + excluded.completion_tokens",
                )
                .bind(it.holder.to_string())
                .bind(it.day)
                .bind(&it.model)
                .bind(to_integer(it.requests))
                .bind(to_integer(it.prompt_tokens))
                .bind(to_integer(it.completion_tokens))
                .execute(&mut *connection)
                .await?;
            }
            if let Some(newest) = used.iter().map(|it| it.day).max() {
                query("DELETE FROM key_usage WHERE day <= ?")
                    .bind(newest.saturating_sub(DAYS_KEPT))
                    .execute(&mut *connection)
                    .await?;
            }
            Ok(())
        })
        .await
    }

    /// The days of one key from `day` on, the oldest first; at most `limit` rows, of the newest days.
    pub async fn key_usage(
        &self,
        holder: KeyId,
        day: i64,
        limit: u32,
    ) -> Result<Vec<KeyUsage>, StoreFault> {
        let rows = query(
            "SELECT day, model, requests, prompt_tokens, completion_tokens FROM key_usage \
             WHERE holder = ? AND day >= ? ORDER BY day DESC, model LIMIT ?",
        )
        .bind(holder.to_string())
        .bind(day)
        .bind(limit)
        .fetch_all(&self.readers)
        .await
        .map_err(self.failed("read the usage of a key"))?;
        let usage = |row: &Row| KeyUsage {
            holder,
            day: row.get("day"),
            model: row.get("model"),
            requests: from_integer(row.get("requests")),
            prompt_tokens: from_integer(row.get("prompt_tokens")),
            completion_tokens: from_integer(row.get("completion_tokens")),
        };
        let mut rows: Vec<KeyUsage> = rows.iter().map(usage).collect();
        rows.sort_by(|one, other| (one.day, &one.model).cmp(&(other.day, &other.model)));
        Ok(rows)
    }
}
