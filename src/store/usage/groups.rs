//! Requests, waits and tokens of groups by hour and day, and the device time that groups held in a period.

use std::collections::BTreeMap;

use crate::database::Store;
use crate::sql::integers::{from_integer, saturating_sum, to_integer};
use crate::sql::query::query;
use crate::sql::{Row, StoreError};
use pool::Time;

/// The same period as for the usage of keys.
const DAYS_KEPT: i64 = 100;
const HOURS_KEPT: i64 = 24 * DAYS_KEPT;
const HOUR_MS: u64 = 3_600_000;

/// Requests and tokens of one group, without the groups below it, that are added to a day and an hour.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupUsage {
    /// From the top, as in `physics/lab`.
    pub path: String,
    /// Days since 1970, in the service's time zone.
    pub day: i64,
    /// Hours since 1970.
    pub hour: i64,
    /// Requests that got a seat.
    pub seated: u64,
    /// Number and total waiting time of requests that waited for their seat.
    pub waited: u64,
    pub waited_ms: u64,
    /// Requests that an engine processed.
    pub requests: u64,
    pub prompt_tokens: u64,
    pub completion_tokens: u64,
}

impl GroupUsage {
    /// Adds the counts of another part of the same group. Counts saturate.
    pub fn add(&mut self, other: &GroupUsage) {
        for (own, more) in [
            (&mut self.seated, other.seated),
            (&mut self.waited, other.waited),
            (&mut self.waited_ms, other.waited_ms),
            (&mut self.requests, other.requests),
            (&mut self.prompt_tokens, other.prompt_tokens),
            (&mut self.completion_tokens, other.completion_tokens),
        ] {
            *own = own.saturating_add(more);
        }
    }

    /// The tokens of prompts and responses.
    pub fn tokens(&self) -> u64 {
        self.prompt_tokens.saturating_add(self.completion_tokens)
    }
}

/// The requests of one group, without the groups below it, in a period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupUseCount {
    pub path: String,
    /// Requests that got a seat.
    pub requests: u64,
    pub waited: u64,
    pub waited_ms: u64,
    pub tokens: u64,
}

/// The sums of one group, without the groups below it, over a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupSum {
    /// Of prompts and responses.
    pub tokens: u64,
    /// Device time in which its requests ran, or for which it pays while a model loads or is idle.
    pub device_ms: u64,
}

const ADD: &str = concat!(
    "INSERT INTO group_usage (day, path, requests, prompt_tokens, completion_tokens) VALUES (?, ?, ?, ?, ?) \
     ON CONFLICT (day, path) DO UPDATE SET requests = ",
    saturating_sum!("group_usage.requests", "excluded.requests"),
    ", prompt_tokens = ",
    saturating_sum!("group_usage.prompt_tokens", "excluded.prompt_tokens"),
    ", completion_tokens = ",
    saturating_sum!(
        "group_usage.completion_tokens",
        "excluded.completion_tokens"
    )
);

const ADD_HOUR: &str = concat!(
    "INSERT INTO group_hours (hour, path, requests, waited, waited_ms, tokens) VALUES (?, ?, ?, ?, ?, ?) \
     ON CONFLICT (hour, path) DO UPDATE SET requests = ",
    saturating_sum!("group_hours.requests", "excluded.requests"),
    ", waited = ",
    saturating_sum!("group_hours.waited", "excluded.waited"),
    ", waited_ms = ",
    saturating_sum!("group_hours.waited_ms", "excluded.waited_ms"),
    ", tokens = ",
    saturating_sum!("group_hours.tokens", "excluded.tokens")
);

impl Store {
    /// Adds to the stored days and hours, all or nothing, and deletes those older than a hundred days.
    pub async fn add_group_usage(&self, used: &[GroupUsage]) -> Result<(), StoreError> {
        self.write("save the usage of groups", async |connection| {
            for usage in used {
                query(ADD)
                    .bind(usage.day)
                    .bind(&usage.path)
                    .bind(to_integer(usage.requests))
                    .bind(to_integer(usage.prompt_tokens))
                    .bind(to_integer(usage.completion_tokens))
                    .execute(&mut *connection)
                    .await?;
                query(ADD_HOUR)
                    .bind(usage.hour)
                    .bind(&usage.path)
                    .bind(to_integer(usage.seated))
                    .bind(to_integer(usage.waited))
                    .bind(to_integer(usage.waited_ms))
                    .bind(to_integer(usage.tokens()))
                    .execute(&mut *connection)
                    .await?;
            }
            if let Some(newest) = used.iter().map(|usage| usage.hour).max() {
                query("DELETE FROM group_hours WHERE hour <= ?")
                    .bind(newest.saturating_sub(HOURS_KEPT))
                    .execute(&mut *connection)
                    .await?;
            }
            if let Some(newest) = used.iter().map(|usage| usage.day).max() {
                query("DELETE FROM group_usage WHERE day <= ?")
                    .bind(newest.saturating_sub(DAYS_KEPT))
                    .execute(&mut *connection)
                    .await?;
            }
            Ok(())
        })
        .await
    }

    /// The requests of groups in the hours that overlap the time from `from` until before `to`, in the order of paths.
    pub async fn count_group_use(
        &self,
        from: Time,
        to: Time,
    ) -> Result<Vec<GroupUseCount>, StoreError> {
        let rows = query(
            "SELECT path, requests, waited, waited_ms, tokens FROM group_hours WHERE hour >= ? AND hour < ? ORDER BY path",
        )
        .bind(to_integer(from.0 / HOUR_MS))
        .bind(to_integer(to.0.div_ceil(HOUR_MS)))
        .fetch_all(&self.readers)
        .await
        .map_err(self.failed("count the use of groups"))?;
        // Hours may hold the largest integer, which a sum in the database would exceed.
        let mut counts: Vec<GroupUseCount> = Vec::new();
        for row in &rows {
            let path: String = row.get("path");
            if counts.last().is_none_or(|last| last.path != path) {
                counts.push(GroupUseCount {
                    path,
                    ..GroupUseCount::default()
                });
            }
            let Some(sum) = counts.last_mut() else {
                continue;
            };
            for (own, column) in [
                (&mut sum.requests, "requests"),
                (&mut sum.waited, "waited"),
                (&mut sum.waited_ms, "waited_ms"),
                (&mut sum.tokens, "tokens"),
            ] {
                *own = own.saturating_add(from_integer(row.get(column)));
            }
        }
        Ok(counts)
    }

    /// The sums of the days from `first` to `last` by the path of the group. Asleep models hold no device.
    pub async fn group_sums(
        &self,
        first: i64,
        last: i64,
    ) -> Result<BTreeMap<String, GroupSum>, StoreError> {
        let read = |statement| {
            let rows = query(statement).bind(first).bind(last);
            rows.fetch_all(&self.readers)
        };
        let failed = || self.failed("read the usage of groups");
        // Days may hold the largest integer, which a sum in the database would exceed.
        let days = read(
            "SELECT path, prompt_tokens, completion_tokens FROM group_usage WHERE day >= ? AND day <= ?",
        )
        .await
        .map_err(failed())?;
        let held = read(
            "SELECT p.name AS payer, sums.held AS held FROM \
             (SELECT payer, CAST(sum(device_ms) AS BIGINT) AS held FROM ledger_days WHERE day >= ? AND day <= ? \
              AND state IN (SELECT id FROM ledger_names WHERE name IN ('used', 'used_by_batches', 'idle', 'loading')) GROUP BY payer) AS sums \
             JOIN ledger_names AS p ON p.id = sums.payer",
        )
        .await
        .map_err(failed())?;
        let mut sums: BTreeMap<String, GroupSum> = BTreeMap::new();
        for row in &days {
            let figure = |name: &str| from_integer(row.get(name));
            let sum = sums.entry(row.get("path")).or_default();
            for name in ["prompt_tokens", "completion_tokens"] {
                sum.tokens = sum.tokens.saturating_add(figure(name));
            }
        }
        let payer = |row: &Row| -> String { row.get("payer") };
        for row in &held {
            if let Some((path, _)) = payer(row).rsplit_once('/') {
                let sum = sums.entry(path.to_owned()).or_default();
                let held = from_integer(row.get("held"));
                sum.device_ms = sum.device_ms.saturating_add(held);
            }
        }
        Ok(sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::stores;
    use crate::{LedgerAmount, LedgerBatch, LedgerKey};

    fn used(path: &str, day: i64, tokens: u64) -> GroupUsage {
        GroupUsage {
            path: path.to_owned(),
            day,
            hour: day * 24,
            seated: 1,
            waited: 1,
            waited_ms: 250,
            requests: 1,
            prompt_tokens: tokens,
            completion_tokens: 1,
        }
    }

    #[tokio::test]
    async fn tokens_and_held_time_of_a_group_are_summed_over_the_days() {
        for store in stores().await {
            let rows = [used("a/b", 200, 10), used("a", 201, 5)];
            store.add_group_usage(&rows).await.expect("written");
            let again = [used("a/b", 200, 2), used("a/b", 231, 100)];
            store.add_group_usage(&again).await.expect("written");
            let mut batch = LedgerBatch::default();
            for (payer, state, ms) in [
                ("a/b/k1", "used", 1_000),
                ("a/b/k2", "idle", 200),
                ("a/b/k2", "loading", 30),
                ("a/b/k2", "asleep", 4_000),
                ("k3", "used", 5_000),
            ] {
                let key = LedgerKey {
                    hour: 200 * 24,
                    day: 200,
                    device: "gpu0".into(),
                    model: "m".into(),
                    payer: payer.into(),
                    state: state.into(),
                };
                let amount = LedgerAmount {
                    device_ms: ms,
                    ..LedgerAmount::default()
                };
                batch.parts.insert(key, amount);
            }
            store.add_ledger(&batch).await.expect("written");
            let sums = store.group_sums(200, 230).await.expect("read");
            let sum = |tokens, device_ms| GroupSum { tokens, device_ms };
            let expected = [
                ("a".to_owned(), sum(6, 0)),
                ("a/b".to_owned(), sum(14, 1_230)),
            ];
            assert_eq!(sums, BTreeMap::from(expected));
            store
                .add_group_usage(&[used("a", 301, 1)])
                .await
                .expect("written");
            let sums = store.group_sums(0, 400).await.expect("read");
            assert_eq!(sums["a"].tokens, 2, "201 is older than a hundred days");
        }
    }

    #[tokio::test]
    async fn the_hours_of_a_period_are_summed_by_group_and_forgotten_after_a_hundred_days() {
        for store in stores().await {
            let at = |hour: i64, used: GroupUsage| GroupUsage { hour, ..used };
            let rows = [
                at(4_800, used("a", 200, 9)),
                at(4_801, used("a/b", 200, 19)),
                at(4_801, used("a", 200, u64::MAX)),
                at(4_802, used("a", 200, 4)),
            ];
            store.add_group_usage(&rows).await.expect("written");
            let hour = |hour: u64| Time(hour * HOUR_MS);
            let found = store.count_group_use(hour(4_800), Time(4_801 * HOUR_MS + 1));
            let found = found.await.expect("read");
            let count = |path: &str, requests, tokens| GroupUseCount {
                path: path.to_owned(),
                requests,
                waited: requests,
                waited_ms: 250 * requests,
                tokens,
            };
            assert_eq!(
                found,
                [count("a", 2, i64::MAX as u64 + 10), count("a/b", 1, 20)]
            );
            let later = at(4_801 + HOURS_KEPT, used("a", 300, 1));
            store.add_group_usage(&[later]).await.expect("written");
            let left = store.count_group_use(hour(0), hour(4_803)).await;
            assert_eq!(left.expect("read"), [count("a", 1, 5)]);
        }
    }

    #[tokio::test]
    async fn tokens_of_a_group_saturate_at_the_largest_integer() {
        for store in stores().await {
            for tokens in [u64::MAX, 7] {
                let written = store.add_group_usage(&[used("a", 5, tokens)]).await;
                written.expect("written");
            }
            let sums = store.group_sums(5, 5).await.expect("read");
            assert_eq!(sums["a"].tokens, i64::MAX as u64 + 2);
        }
    }
}
