//! Figures of the pool for each minute: tokens, device time, and requests by the time to their first token. One row a minute,
//! however many models and callers there are.

use std::collections::BTreeMap;

use crate::database::Store;
use crate::sql::integers::{from_integer, saturating_sum, to_integer};
use crate::sql::query::query;
use crate::sql::{Connection, Row, StoreError};
use pool::Time;

const MINUTE_MS: u64 = 60_000;
/// The same period as for the minutes of models.
const MINUTES_KEPT: u64 = 100 * 24 * 60;

/// The figures of a minute, or a part of them that is added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolMinute {
    /// Minutes since 1970.
    pub minute: u64,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
    /// Device time used by requests, and the time of all devices.
    pub used_ms: u64,
    pub device_ms: u64,
    /// The number of requests by the bucket of the time to their first token. The writer knows the bounds of the buckets.
    pub first_tokens: BTreeMap<usize, u64>,
}

const ADD: &str = concat!(
    "INSERT INTO pool_minutes (minute, prompt_tokens, completion_tokens, used_ms, device_ms, first_tokens) \
     VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (minute) DO UPDATE SET prompt_tokens = ",
    saturating_sum!("pool_minutes.prompt_tokens", "excluded.prompt_tokens"),
    ", completion_tokens = ",
    saturating_sum!(
        "pool_minutes.completion_tokens",
        "excluded.completion_tokens"
    ),
    ", used_ms = ",
    saturating_sum!("pool_minutes.used_ms", "excluded.used_ms"),
    ", device_ms = ",
    saturating_sum!("pool_minutes.device_ms", "excluded.device_ms"),
    ", first_tokens = excluded.first_tokens"
);

impl Store {
    /// Adds to the stored minute, and deletes minutes older than a hundred days.
    pub async fn add_pool_minute(&self, more: &PoolMinute) -> Result<(), StoreError> {
        self.write("save a minute of the pool", async |connection| {
            add(more, connection).await
        })
        .await
    }

    /// The minutes from `from` until before `to`, oldest first. Minutes without a row are missing.
    pub async fn pool_minutes(&self, from: Time, to: Time) -> Result<Vec<PoolMinute>, StoreError> {
        let rows = query(
            "SELECT minute, prompt_tokens, completion_tokens, used_ms, device_ms, first_tokens FROM pool_minutes \
             WHERE minute >= ? AND minute < ? ORDER BY minute",
        )
        .bind(to_integer(from.0 / MINUTE_MS))
        .bind(to_integer(to.0.div_ceil(MINUTE_MS)))
        .fetch_all(&self.readers)
        .await
        .map_err(self.failed("read the minutes of the pool"))?;
        Ok(rows.iter().map(read).collect())
    }
}

/// Adds to the stored minute within a transaction.
pub(super) async fn add(more: &PoolMinute, connection: &mut Connection) -> Result<(), sqlx::Error> {
    let minute = to_integer(more.minute);
    let known = query("SELECT first_tokens FROM pool_minutes WHERE minute = ?")
        .bind(minute)
        .fetch_all(&mut *connection)
        .await?;
    let mut first_tokens = more.first_tokens.clone();
    for row in &known {
        for (bucket, count) in buckets(row.get("first_tokens")) {
            let sum = first_tokens.entry(bucket).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    query(ADD)
        .bind(minute)
        .bind(to_integer(more.prompt_tokens))
        .bind(to_integer(more.completion_tokens))
        .bind(to_integer(more.used_ms))
        .bind(to_integer(more.device_ms))
        .bind(text(&first_tokens))
        .execute(&mut *connection)
        .await?;
    query("DELETE FROM pool_minutes WHERE minute < ?")
        .bind(to_integer(more.minute.saturating_sub(MINUTES_KEPT)))
        .execute(connection)
        .await?;
    Ok(())
}

fn read(row: &Row) -> PoolMinute {
    let figure = |column| from_integer(row.get(column));
    PoolMinute {
        minute: figure("minute"),
        prompt_tokens: figure("prompt_tokens"),
        completion_tokens: figure("completion_tokens"),
        used_ms: figure("used_ms"),
        device_ms: figure("device_ms"),
        first_tokens: buckets(row.get("first_tokens")),
    }
}

/// For example `3:12 5:1`.
fn text(first_tokens: &BTreeMap<usize, u64>) -> String {
    let parts = first_tokens
        .iter()
        .map(|(bucket, count)| format!("{bucket}:{count}"));
    parts.collect::<Vec<_>>().join(" ")
}

/// Parts that are not of this form are left out.
fn buckets(text: &str) -> BTreeMap<usize, u64> {
    let part = |part: &str| {
        let (bucket, count) = part.split_once(':')?;
        Some((bucket.parse().ok()?, count.parse().ok()?))
    };
    text.split(' ').filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stores;
    use crate::{LedgerAmount, LedgerBatch, LedgerKey};

    fn minute(minute: u64, tokens: u64, first_tokens: &[(usize, u64)]) -> PoolMinute {
        PoolMinute {
            minute,
            prompt_tokens: tokens,
            completion_tokens: 2 * tokens,
            first_tokens: first_tokens.iter().copied().collect(),
            ..PoolMinute::default()
        }
    }

    #[tokio::test]
    async fn parts_of_a_minute_are_added_and_old_minutes_are_deleted() {
        for store in stores().await {
            for part in [
                minute(9, 10, &[(3, 2), (18, 1)]),
                minute(9, 1, &[(3, 1), (0, 4)]),
                minute(10, 5, &[]),
            ] {
                store.add_pool_minute(&part).await.expect("written");
            }
            let read = async |from: u64, to: u64| {
                let time = |minute| Time(minute * MINUTE_MS);
                store
                    .pool_minutes(time(from), time(to))
                    .await
                    .expect("read")
            };
            let ninth = minute(9, 11, &[(0, 4), (3, 3), (18, 1)]);
            assert_eq!(read(0, 20).await, [ninth, minute(10, 5, &[])]);
            assert_eq!(read(10, 11).await.len(), 1);
            let later = minute(10 + MINUTES_KEPT, 0, &[]);
            store.add_pool_minute(&later).await.expect("written");
            assert_eq!(read(0, 20).await, [minute(10, 5, &[])]);
        }
    }

    #[tokio::test]
    async fn a_batch_of_the_ledger_counts_for_its_minute_once() {
        for store in stores().await {
            let part = |hour, state: &str, ms| {
                let key = LedgerKey {
                    hour,
                    day: 1,
                    device: "gpu0".into(),
                    model: "m".into(),
                    payer: String::new(),
                    state: state.into(),
                };
                let amount = LedgerAmount {
                    device_ms: ms,
                    ..LedgerAmount::default()
                };
                (key, amount)
            };
            let mut batch = LedgerBatch::default();
            for (key, amount) in [
                part(2, "used", 20_000),
                part(2, "idle", 40_000),
                part(1, "not_known", 3_600_000),
            ] {
                batch.add(key, amount);
            }
            let batch = batch.numbered(7).of_minute(125);
            for _ in 0..2 {
                store.add_ledger(&batch).await.expect("written");
            }
            let found = store.pool_minutes(Time(0), Time(200 * MINUTE_MS)).await;
            let expected = PoolMinute {
                minute: 125,
                used_ms: 20_000,
                device_ms: 60_000,
                ..PoolMinute::default()
            };
            assert_eq!(found.expect("read"), [expected]);
        }
    }

    #[test]
    fn buckets_in_another_form_are_left_out() {
        assert_eq!(buckets("3:4 x 5: :6 7:8"), BTreeMap::from([(3, 4), (7, 8)]));
        assert!(buckets("").is_empty());
    }
}
