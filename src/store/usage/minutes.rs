//! Requests per model and minute, with the seconds of their arrival, for replays of the past. Contains no request's content or
//! owner.

use std::path::Path;

use super::seconds::Seconds;
use crate::database::Store;
use crate::database::open::read_only;
use crate::sql::integers::{from_integer, saturating_sum, to_integer};
use crate::sql::query::query;
use crate::sql::{Query, Row, StoreError};

/// Limit of stored minutes: a hundred days.
const MINUTES_KEPT: u64 = 100 * 24 * 60;

/// PostgreSQL's code of the error.
const UNDEFINED_COLUMN: &str = "42703";

/// The usage of one model in one minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageMinute {
    /// Minutes since 1970.
    pub minute: u64,
    pub model: String,
    /// Requests that got a seat.
    pub requests: u64,
    /// Seats taken, summed over the minute, in milliseconds.
    pub busy_ms: u64,
    /// Number and total waiting time of requests that waited for their seat.
    pub waited: u64,
    pub waited_ms: u64,
    /// Requests with a target whose first token came in time, and those whose first token came later or that were refused.
    pub in_time: u64,
    pub late: u64,
    /// The seconds in which requests arrived, at most as many as `requests`. `None` if they are not known.
    pub seconds: Option<Seconds>,
}

/// Tokens that one bucket of limits has used in a day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DayUsage {
    /// Days since 1970, in the service's time zone.
    pub day: i64,
    pub bucket: String,
    pub tokens: u64,
}

// Adding NULL gives NULL: if a part's seconds are not known, the sum's are not known either.
const ADD: &str = concat!(
    "UPDATE usage SET requests = ",
    saturating_sum!("requests", "?3"),
    ", busy_ms = ",
    saturating_sum!("busy_ms", "?4"),
    ", waited = ",
    saturating_sum!("waited", "?5"),
    ", waited_ms = ",
    saturating_sum!("waited_ms", "?6"),
    ", seconds = seconds | ?7, in_time = ",
    saturating_sum!("in_time", "?8"),
    ", late = ",
    saturating_sum!("late", "?9"),
    " WHERE minute = ?1 AND model = ?2"
);
const INSERT: &str = "INSERT INTO usage (minute, model, requests, busy_ms, waited, waited_ms, seconds, in_time, late) \
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

/// Reads the minutes of this version's stores, then of older ones: without the seconds, and without the waiting times. PostgreSQL
/// gives a plain 0 a smaller type than the columns.
const MINUTES: [&str; 3] = [
    "SELECT minute, model, requests, busy_ms, waited, waited_ms, seconds \
     FROM usage ORDER BY minute, model",
    "SELECT minute, model, requests, busy_ms, waited, waited_ms, \
     CAST(NULL AS BIGINT) AS seconds FROM usage ORDER BY minute, model",
    "SELECT minute, model, requests, busy_ms, CAST(0 AS BIGINT) AS waited, \
     CAST(0 AS BIGINT) AS waited_ms, CAST(NULL AS BIGINT) AS seconds \
     FROM usage ORDER BY minute, model",
];

fn minute(statement: &'static str, usage: &UsageMinute) -> Query {
    query(statement)
        .bind(to_integer(usage.minute))
        .bind(&usage.model)
        .bind(to_integer(usage.requests))
        .bind(to_integer(usage.busy_ms))
        .bind(to_integer(usage.waited))
        .bind(to_integer(usage.waited_ms))
        .bind(usage.seconds.map(|seconds| to_integer(seconds.bits())))
        .bind(to_integer(usage.in_time))
        .bind(to_integer(usage.late))
}

fn read(row: &Row) -> UsageMinute {
    let seconds: Option<i64> = row.get("seconds");
    UsageMinute {
        minute: from_integer(row.get("minute")),
        model: row.get("model"),
        requests: from_integer(row.get("requests")),
        busy_ms: from_integer(row.get("busy_ms")),
        waited: from_integer(row.get("waited")),
        waited_ms: from_integer(row.get("waited_ms")),
        // A replay counts them itself.
        in_time: 0,
        late: 0,
        seconds: seconds.map(|bits| Seconds::from_bits(from_integer(bits))),
    }
}

/// Returns true if the statement names a column that its table does not have.
fn lacks_a_column(error: &sqlx::Error) -> bool {
    // SQLite has a single code for all errors in statements.
    error.as_database_error().is_some_and(|error| {
        error.code().as_deref() == Some(UNDEFINED_COLUMN)
            || error.message().starts_with("no such column")
    })
}

impl Store {
    /// Adds to the stored minutes, and deletes minutes older than a hundred days.
    pub async fn add_usage(&self, minutes: &[UsageMinute]) -> Result<(), StoreError> {
        self.write("save usage", async |connection| {
            for usage in minutes {
                // Two statements: on PostgreSQL a conflict would use up a row number, and upkeep counts by them.
                let changed = minute(ADD, usage).execute(&mut *connection).await?;
                if changed == 0 {
                    minute(INSERT, usage).execute(&mut *connection).await?;
                }
            }
            if let Some(newest) = minutes.iter().map(|usage| usage.minute).max() {
                query("DELETE FROM usage WHERE minute < ?")
                    .bind(to_integer(newest.saturating_sub(MINUTES_KEPT)))
                    .execute(&mut *connection)
                    .await?;
            }
            Ok(())
        })
        .await
    }

    /// Stores the tokens that the limits' buckets have used in a day, and deletes the days before `today`.
    pub async fn keep_day_tokens(&self, used: &[DayUsage], today: i64) -> Result<(), StoreError> {
        self.write("save the tokens of a day", async |connection| {
            for usage in used {
                query(
                    "INSERT INTO tokens_by_day (day, bucket, tokens) VALUES (?, ?, ?) \
                     ON CONFLICT (day, bucket) DO UPDATE SET tokens = excluded.tokens",
                )
                .bind(usage.day)
                .bind(&usage.bucket)
                .bind(to_integer(usage.tokens))
                .execute(&mut *connection)
                .await?;
            }
            query("DELETE FROM tokens_by_day WHERE day < ?")
                .bind(today)
                .execute(&mut *connection)
                .await?;
            Ok(())
        })
        .await
    }

    /// The usage of the stored days.
    pub async fn day_tokens(&self) -> Result<Vec<DayUsage>, StoreError> {
        let rows = query("SELECT day, bucket, tokens FROM tokens_by_day")
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("read the tokens of a day"))?;
        let used = |row: &Row| DayUsage {
            day: row.get("day"),
            bucket: row.get("bucket"),
            tokens: from_integer(row.get("tokens")),
        };
        Ok(rows.iter().map(used).collect())
    }

    /// All minutes of a store's file, or of a PostgreSQL URL. A running pool may be using it; nothing is written.
    pub async fn read_usage(path: &Path) -> Result<Vec<UsageMinute>, sqlx::Error> {
        let mut connection = read_only(path).await?;
        let [newest, older @ ..] = MINUTES;
        let mut found = query(newest).fetch_all(&mut connection).await;
        for statement in older {
            if !found.as_ref().is_err_and(lacks_a_column) {
                break;
            }
            found = query(statement).fetch_all(&mut connection).await;
        }
        Ok(found?.iter().map(read).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::file_after;

    fn used(model: &str, requests: u64, seconds: Option<u64>) -> UsageMinute {
        UsageMinute {
            minute: 7,
            model: model.to_owned(),
            requests,
            busy_ms: 300,
            waited: 0,
            waited_ms: 0,
            in_time: 0,
            late: 0,
            seconds: seconds.map(Seconds::from_bits),
        }
    }

    #[tokio::test]
    async fn usage_of_a_database_without_waits_and_seconds_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let statements = [
            "CREATE TABLE usage (minute INTEGER, model TEXT, requests INTEGER, busy_ms INTEGER)",
            "INSERT INTO usage VALUES (7, 'a', 2, 300)",
        ];
        let path = file_after(folder.path(), &statements).await;
        let minutes = Store::read_usage(&path).await.expect("read");
        assert_eq!(minutes, [used("a", 2, None)]);
    }

    #[tokio::test]
    async fn usage_of_a_database_with_waits_but_without_seconds_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let statements = [
            "CREATE TABLE usage (minute INTEGER, model TEXT, requests INTEGER, busy_ms INTEGER, \
             waited INTEGER, waited_ms INTEGER)",
            "INSERT INTO usage VALUES (7, 'a', 2, 300, 1, 50)",
        ];
        let path = file_after(folder.path(), &statements).await;
        let minute = UsageMinute {
            waited: 1,
            waited_ms: 50,
            ..used("a", 2, None)
        };
        assert_eq!(Store::read_usage(&path).await.expect("read"), [minute]);
    }

    #[tokio::test]
    async fn the_seconds_of_a_minute_written_twice_are_merged_or_unknown() {
        // The highest bit stands for requests from before the minute.
        let earlier = Seconds::EARLIER.bits();
        let first = [
            used("a", 2, Some(0b1001)),
            used("b", 1, Some(1)),
            used("c", 1, None),
        ];
        let second = [
            used("a", 3, Some(0b11 | earlier)),
            used("b", 1, None),
            used("c", 1, Some(1)),
            used("d", 0, Some(0)),
        ];
        for store in crate::testing::stores().await {
            store.add_usage(&first).await.expect("written");
            store.add_usage(&second).await.expect("written");
            let rows = query(MINUTES[0]).fetch_all(&store.readers).await;
            let minutes: Vec<UsageMinute> = rows.expect("read").iter().map(read).collect();
            let found: Vec<_> = minutes
                .iter()
                .map(|usage| {
                    (
                        usage.model.as_str(),
                        usage.requests,
                        usage.seconds.map(Seconds::bits),
                    )
                })
                .collect();
            let expected: [(&str, u64, Option<u64>); 4] = [
                ("a", 5, Some(0b1011 | earlier)),
                ("b", 2, None),
                ("c", 2, None),
                ("d", 0, Some(0)),
            ];
            assert_eq!(found, expected);
        }
    }

    #[tokio::test]
    async fn an_error_other_than_a_missing_column_is_not_retried_without_waits() {
        let folder = tempfile::tempdir().expect("a folder");
        // The waiting times cannot be read, but the rest can.
        let statements = [
            "CREATE TABLE counted (minute INTEGER, model TEXT, requests INTEGER, busy_ms INTEGER)",
            "INSERT INTO counted VALUES (7, 'a', 2, 300)",
            "CREATE VIEW usage AS SELECT minute, model, requests, busy_ms, \
             abs(-9223372036854775808) AS waited, 0 AS waited_ms FROM counted",
        ];
        let path = file_after(folder.path(), &statements).await;
        let error = Store::read_usage(&path).await.expect_err("it fails");
        assert!(!lacks_a_column(&error), "{error}");
    }

    #[tokio::test]
    async fn a_missing_column_is_recognized_on_both_databases() {
        for store in crate::testing::stores().await {
            let missing = query("SELECT absent FROM usage");
            let missing = missing.fetch_all(&store.readers).await;
            assert!(lacks_a_column(&missing.err().expect("no such column")));
            let no_table = query("SELECT minute FROM absent");
            let no_table = no_table.fetch_all(&store.readers).await;
            assert!(!lacks_a_column(&no_table.err().expect("no such table")));
            for statement in MINUTES {
                let minutes = query(statement).fetch_all(&store.readers).await;
                assert!(minutes.is_ok_and(|rows| rows.is_empty()));
            }
        }
    }
}
