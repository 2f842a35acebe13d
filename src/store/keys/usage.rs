//! Usage of each model by each key per day, for the people who have the key.

use crate::database::Store;
use crate::sql::integers::{from_integer, saturating_sum, to_integer};
use crate::sql::query::query;
use crate::sql::{Row, StoreError};
use pool::KeyId;

/// The same period as for the minutes of `usage`.
const DAYS_KEPT: i64 = 100;

/// The usage of one model by one key in one day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyUsage {
    pub holder: KeyId,
    /// Days since 1970, in the service's time zone.
    pub day: i64,
    pub model: String,
    /// Requests that an engine accepted.
    pub requests: u64,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    pub batches: BatchUsage,
}

/// The part of a usage that requests of batches took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchUsage {
    pub requests: u64,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
}

/// If the database refuses more rows than this, the rows are not the cause, and the remaining ones are not tried individually.
const REFUSED_MAX: usize = 64;

/// Usage that was not stored, and the reason.
#[derive(Debug, Default)]
pub struct UnsavedUsage {
    pub rows: Vec<KeyUsage>,
    pub last_error: Option<StoreError>,
}

const ADD: &str = concat!(
    "INSERT INTO key_usage (holder, day, model, requests, prompt_tokens, completion_tokens, batch_requests, batch_prompt_tokens, \
     batch_completion_tokens) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) \
     ON CONFLICT (holder, day, model) DO UPDATE SET requests = ",
    saturating_sum!("key_usage.requests", "excluded.requests"),
    ", prompt_tokens = ",
    saturating_sum!("key_usage.prompt_tokens", "excluded.prompt_tokens"),
    ", completion_tokens = ",
    saturating_sum!("key_usage.completion_tokens", "excluded.completion_tokens"),
    ", batch_requests = ",
    saturating_sum!("key_usage.batch_requests", "excluded.batch_requests"),
    ", batch_prompt_tokens = ",
    saturating_sum!(
        "key_usage.batch_prompt_tokens",
        "excluded.batch_prompt_tokens"
    ),
    ", batch_completion_tokens = ",
    saturating_sum!(
        "key_usage.batch_completion_tokens",
        "excluded.batch_completion_tokens"
    )
);

impl Store {
    /// Adds to the stored days, and deletes days older than a hundred. Rows that the database refuses do not affect other rows.
    /// Stops if the database takes no writes at all.
    pub async fn add_key_usage(&self, used: &[KeyUsage]) -> UnsavedUsage {
        let mut unsaved = UnsavedUsage::default();
        let mut parts = vec![used];
        while let Some(part) = parts.pop() {
            let Err(last_error) = self.add_together(part).await else {
                continue;
            };
            if last_error.is_of_a_value() && part.len() > 1 {
                let (one, other) = part.split_at(part.len() / 2);
                parts.extend([other, one]);
                continue;
            }
            unsaved.rows.extend_from_slice(part);
            if !last_error.is_of_a_value() || unsaved.rows.len() >= REFUSED_MAX {
                unsaved.rows.extend(parts.drain(..).flatten().cloned());
            }
            unsaved.last_error = Some(last_error);
        }
        unsaved
    }

    async fn add_together(&self, used: &[KeyUsage]) -> Result<(), StoreError> {
        self.write("save the usage of keys", async |connection| {
            for usage in used {
                query(ADD)
                    .bind(usage.holder.to_string())
                    .bind(usage.day)
                    .bind(&usage.model)
                    .bind(to_integer(usage.requests))
                    .bind(to_integer(usage.prompt_tokens))
                    .bind(to_integer(usage.completion_tokens))
                    .bind(to_integer(usage.batches.requests))
                    .bind(to_integer(usage.batches.prompt_tokens))
                    .bind(to_integer(usage.batches.completion_tokens))
                    .execute(&mut *connection)
                    .await?;
            }
            if let Some(newest) = used.iter().map(|usage| usage.day).max() {
                query("DELETE FROM key_usage WHERE day <= ?")
                    .bind(newest.saturating_sub(DAYS_KEPT))
                    .execute(&mut *connection)
                    .await?;
            }
            Ok(())
        })
        .await
    }

    /// The days of one key from `day` on, oldest first; at most the `limit` newest rows.
    pub async fn key_usage(
        &self,
        holder: KeyId,
        day: i64,
        limit: u32,
    ) -> Result<Vec<KeyUsage>, StoreError> {
        let rows = query(
            "SELECT day, model, requests, prompt_tokens, completion_tokens, batch_requests, batch_prompt_tokens, \
             batch_completion_tokens FROM key_usage \
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
            batches: BatchUsage {
                requests: from_integer(row.get("batch_requests")),
                prompt_tokens: from_integer(row.get("batch_prompt_tokens")),
                completion_tokens: from_integer(row.get("batch_completion_tokens")),
            },
        };
        let mut rows: Vec<KeyUsage> = rows.iter().map(usage).collect();
        rows.sort_by(|one, other| (one.day, &one.model).cmp(&(other.day, &other.model)));
        Ok(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::Dialect;
    use crate::testing::stores;

    fn used(model: &str, tokens: u64) -> KeyUsage {
        KeyUsage {
            holder: KeyId(1),
            day: 200,
            model: model.to_owned(),
            requests: 1,
            prompt_tokens: tokens,
            completion_tokens: tokens / 2,
            batches: BatchUsage::default(),
        }
    }

    #[tokio::test]
    async fn usage_sums_saturate_at_the_largest_integer() {
        const LARGEST: u64 = i64::MAX as u64;
        for store in stores().await {
            for tokens in [7, u64::MAX, LARGEST, 1] {
                let unsaved = store.add_key_usage(&[used("a", tokens)]).await;
                assert!(unsaved.rows.is_empty(), "{tokens}: {unsaved:?}");
            }
            let sum = KeyUsage {
                requests: 4,
                completion_tokens: LARGEST,
                ..used("a", LARGEST)
            };
            let read = store.key_usage(KeyId(1), 200, 9).await.expect("read");
            assert_eq!(read, [sum]);
        }
    }

    #[tokio::test]
    async fn the_part_of_batches_is_summed_too() {
        for store in stores().await {
            let batches = BatchUsage {
                requests: 1,
                prompt_tokens: 5,
                completion_tokens: 2,
            };
            let of_batch = KeyUsage {
                batches,
                ..used("a", 5)
            };
            for usage in [&of_batch, &used("a", 7), &of_batch] {
                let unsaved = store.add_key_usage(std::slice::from_ref(usage)).await;
                assert!(unsaved.rows.is_empty(), "{unsaved:?}");
            }
            let read = store.key_usage(KeyId(1), 200, 9).await.expect("read");
            let sum = BatchUsage {
                requests: 2,
                prompt_tokens: 10,
                completion_tokens: 4,
            };
            assert_eq!((read[0].requests, read[0].batches), (3, sum));
        }
    }

    #[tokio::test]
    async fn a_refused_row_does_not_affect_other_rows() {
        for store in stores().await {
            let rule = match store.dialect() {
                Dialect::Sqlite => {
                    "CREATE TRIGGER refuse BEFORE INSERT ON key_usage WHEN NEW.model LIKE 'refused%' \
                     BEGIN SELECT RAISE(ABORT, 'refused'); END"
                }
                Dialect::Postgres => {
                    "ALTER TABLE key_usage ADD CONSTRAINT refuse CHECK (model NOT LIKE 'refused%')"
                }
            };
            let ruled = store.write("make a rule", async |connection| {
                query(rule).execute(connection).await
            });
            ruled.await.expect("a rule");
            let models = ["a", "refused 1", "b", "c", "refused 2", "d"];
            let unsaved = store
                .add_key_usage(&models.map(|model| used(model, 2)))
                .await;
            let names = |rows: &[KeyUsage]| -> Vec<String> {
                rows.iter().map(|row| row.model.clone()).collect()
            };
            assert_eq!(names(&unsaved.rows), ["refused 1", "refused 2"]);
            assert!(
                unsaved
                    .last_error
                    .is_some_and(|last_error| last_error.is_of_a_value())
            );
            let read = store.key_usage(KeyId(1), 200, 9).await.expect("read");
            assert_eq!(names(&read), ["a", "b", "c", "d"]);
            assert!(read.iter().all(|row| row.requests == 1), "{read:?}");
            assert!(store.trouble().is_none());
        }
    }

    #[tokio::test]
    async fn usage_that_cannot_be_written_is_returned_completely() {
        for store in stores().await {
            store.close().await;
            let rows = [used("a", 1), used("b", 1)];
            let unsaved = store.add_key_usage(&rows).await;
            assert_eq!(unsaved.rows, rows);
            assert!(
                unsaved
                    .last_error
                    .is_some_and(|last_error| last_error.is_closed())
            );
        }
    }
}
