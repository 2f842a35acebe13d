//! Requests per model and minute, for replays of the past. Counts only; no request's content or owner.

use std::path::Path;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Row};

use super::{Store, StoreFault, from_integer, to_integer};

/// Minutes that are kept: a hundred days.
const MINUTES_KEPT: u64 = 100 * 24 * 60;

/// One model in one minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageMinute {
    /// Minutes since 1970.
    pub minute: u64,
    pub model: String,
    /// Requests that got a seat.
    pub requests: u64,
    /// Seats taken, summed over the minute, in milliseconds.
    pub busy_ms: u64,
    /// Requests that waited for their seat, and for how long together.
    pub waited: u64,
    pub waited_ms: u64,
}

/// Tokens that one bucket of limits has used in a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DayUsage {
    /// Days since 1970, in the service's time zone.
    pub day: i64,
    pub bucket: String,
    pub tokens: u64,
}

impl Store {
    /// Adds to the stored minutes, and deletes those older than a hundred days.
    pub async fn add_usage(&self, minutes: &[UsageMinute]) -> Result<(), StoreFault> {
        self.write("save usage", async |connection| {
            for it in minutes {
                sqlx::query(
                    "INSERT INTO usage (minute, model, requests, busy_ms, waited, waited_ms) VALUES (?, ?, ?, ?, ?, ?) \
                     ON CONFLICT (minute, model) DO UPDATE SET \
                     requests = requests + excluded.requests, busy_ms = busy_ms + excluded.busy_ms, \
                     waited = waited + excluded.waited, waited_ms = waited_ms + excluded.waited_ms",
                )
                .bind(to_integer(it.minute))
                .bind(&it.model)
                .bind(to_integer(it.requests))
                .bind(to_integer(it.busy_ms))
                .bind(to_integer(it.waited))
                .bind(to_integer(it.waited_ms))
                .execute(&mut *connection)
                .await?;
            }
            if let Some(newest) = minutes.iter().map(|it| it.minute).max() {
                sqlx::query("DELETE FROM usage WHERE minute < ?")
                    .bind(to_integer(newest.saturating_sub(MINUTES_KEPT)))
                    .execute(&mut *connection)
                    .await?;
            }
            Ok(())
        })
        .await
    }

    /// Stores how many tokens the limits' buckets have used in a day, and deletes the days before `today`.
    pub async fn keep_day_tokens(&self, used: &[DayUsage], today: i64) -> Result<(), StoreFault> {
        self.write("save the tokens of a day", async |connection| {
            for it in used {
                sqlx::query(
                    "INSERT INTO tokens_by_day (day, bucket, tokens) VALUES (?, ?, ?) \
                     ON CONFLICT (day, bucket) DO UPDATE SET tokens = excluded.tokens",
                )
                .bind(it.day)
                .bind(&it.bucket)
                .bind(to_integer(it.tokens))
                .execute(&mut *connection)
                .await?;
            }
            sqlx::query("DELETE FROM tokens_by_day WHERE day < ?")
                .bind(today)
                .execute(&mut *connection)
                .await?;
            Ok(())
        })
        .await
    }

    /// The usage of the stored days.
    pub async fn day_tokens(&self) -> Result<Vec<DayUsage>, StoreFault> {
        let rows = sqlx::query("SELECT day, bucket, tokens FROM tokens_by_day")
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("read the tokens of a day"))?;
        let used = |row: &sqlx::sqlite::SqliteRow| DayUsage {
            day: row.get("day"),
            bucket: row.get("bucket"),
            tokens: from_integer(row.get("tokens")),
        };
        Ok(rows.iter().map(used).collect())
    }

    /// All minutes of a store's file, which a running pool may be using; nothing is written.
    pub async fn read_usage(path: &Path) -> Result<Vec<UsageMinute>, sqlx::Error> {
        let options = SqliteConnectOptions::new().filename(path).read_only(true);
        let mut connection: SqliteConnection = options.connect().await?;
        let rows = sqlx::query(
            "SELECT minute, model, requests, busy_ms FROM usage ORDER BY minute, model",
        )
        .fetch_all(&mut connection)
        .await?;
        let minute = |row: &sqlx::sqlite::SqliteRow| UsageMinute {
            minute: from_integer(row.get("minute")),
            model: row.get("model"),
            requests: from_integer(row.get("requests")),
            busy_ms: from_integer(row.get("busy_ms")),
            // Stores of older versions have none, and a replay does not ask.
            waited: 0,
            waited_ms: 0,
        };
        Ok(rows.iter().map(minute).collect())
    }
}
