//! The history (D3): every decision with its reason, in the JSON form of the admin API and the event stream.
//! Rows are only appended; [`Store::forget_history`] deletes old ones.

use std::future::Future;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize, Serializer};
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use sqlx::{QueryBuilder, Row, Sqlite};

use super::{Store, StoreFault, from_integer, from_small, to_integer};
use pool::Record;
use pool::{DeviceId, OrderId, ReplicaId, Span, Time};

/// One stored line of the history. Serialises to the event object of the admin API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredRecord {
    /// Ascending, never reused: `after` of the next query, and the `id:` of the event stream.
    pub id: i64,
    #[serde(serialize_with = "as_rfc3339")]
    pub at: Time,
    /// [`pool::RecordKind::name`].
    pub kind: String,
    pub model: Option<String>,
    /// Like `r3`.
    pub replica: Option<String>,
    /// Like `o5`.
    pub order: Option<String>,
    pub reason: String,
    pub priority: Option<u32>,
    pub placement: Vec<StoredShare>,
    pub candidates: Vec<String>,
    pub memory: Vec<StoredMemory>,
    pub took_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredShare {
    pub device: String,
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredMemory {
    pub device: String,
    pub before_bytes: u64,
    pub after_bytes: u64,
}

/// Which part of the history. Results are in ascending order of id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Only records with a larger id; `None` means the newest ones.
    pub after: Option<i64>,
    /// At most this many; values outside of 1 to [`HistoryQuery::LIMIT_MAX`] are clamped.
    pub limit: u32,
    pub model: Option<String>,
    pub kind: Option<String>,
}

impl HistoryQuery {
    /// About 1 MiB of JSON.
    pub const LIMIT_MAX: u32 = 1000;
}

/// How much history is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub age: Span,
    pub rows: u64,
}

impl Default for Retention {
    fn default() -> Retention {
        Retention {
            age: Span::from_secs(90 * 24 * 3600),
            rows: 1_000_000,
        }
    }
}

/// Rows deleted at once: few enough that a wish waiting to be written is not noticeably delayed.
pub(super) const FORGOTTEN_AT_ONCE: i64 = 500;

impl Store {
    /// Appends the records in order, all or none, and returns them as stored.
    ///
    /// `device_name` gives a device's display name. The name is stored because a device's id means nothing
    /// after a restart.
    pub fn append<'a>(
        &'a self,
        records: &[Record],
        device_name: &dyn Fn(DeviceId) -> String,
    ) -> impl Future<Output = Result<Vec<StoredRecord>, StoreFault>> + Send + use<'a> {
        let records = records
            .iter()
            .map(|record| stored(record, device_name))
            .collect();
        async move {
            let records: Vec<StoredRecord> = records;
            if records.is_empty() {
                return Ok(records);
            }
            self.write("append to the history", async |connection| {
                append_stored(connection, records).await
            })
            .await
        }
    }

    /// A part of the history, in ascending order of id.
    pub async fn history(&self, query: HistoryQuery) -> Result<Vec<StoredRecord>, StoreFault> {
        // Adds only the conditions that are needed, so that the index of each can serve it.
        let mut sql =
            QueryBuilder::<Sqlite>::new("SELECT * FROM (SELECT * FROM history WHERE id > ");
        sql.push_bind(query.after.unwrap_or(0));
        if let Some(model) = query.model {
            sql.push(" AND model = ").push_bind(model);
        }
        if let Some(kind) = query.kind {
            sql.push(" AND kind = ").push_bind(kind);
        }
        let order = if query.after.is_some() {
            " ORDER BY id LIMIT "
        } else {
            " ORDER BY id DESC LIMIT "
        };
        sql.push(order)
            .push_bind(i64::from(query.limit.clamp(1, HistoryQuery::LIMIT_MAX)));
        let rows = sql
            .push(") ORDER BY id")
            .build()
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("read the history"))?;
        rows.iter().map(|row| self.read_record(row)).collect()
    }

    /// The largest numbers of a replica and of an order in the history; 0 where there are none. A number
    /// assigned in the last moment before a `kill -9` may be missing.
    pub async fn last_numbers(&self) -> Result<(u64, u64), StoreFault> {
        let row = sqlx::query(
            "SELECT (SELECT last FROM numbers WHERE name = 'replica') AS replica,
                    (SELECT last FROM numbers WHERE name = 'order') AS order_id",
        )
        .fetch_one(&self.readers)
        .await
        .map_err(self.failed("read the history"))?;
        Ok((
            from_integer(row.get("replica")),
            from_integer(row.get("order_id")),
        ))
    }

    /// The id of the newest record ever appended; 0 before the first.
    pub async fn last_id(&self) -> Result<i64, StoreFault> {
        sqlx::query_scalar(
            "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'history'",
        )
        .fetch_one(&self.readers)
        .await
        .map_err(self.failed("read the end of the history"))
    }

    /// Deletes some records that are too old or too many; returns how many, at most [`FORGOTTEN_AT_ONCE`]. Call
    /// it again until it returns 0: other writes can run in between.
    pub async fn forget_history(&self, now: Time, retention: Retention) -> Result<u64, StoreFault> {
        let last = self.last_id().await?;
        let query = sqlx::query(
            "DELETE FROM history WHERE id IN (SELECT id FROM history WHERE id <= ?1 OR at < ?2 LIMIT ?3)",
        )
        .bind(last.saturating_sub(to_integer(retention.rows)))
        .bind(to_integer(now.0.saturating_sub(retention.age.0)))
        .bind(FORGOTTEN_AT_ONCE);
        self.write("delete old history", async |connection| {
            query.execute(connection).await
        })
        .await
        .map(|done| done.rows_affected())
    }

    fn read_record(&self, row: &SqliteRow) -> Result<StoredRecord, StoreFault> {
        let id: i64 = row.get("id");
        let bad = |error: serde_json::Error| self.bad_row("history", id, error);
        Ok(StoredRecord {
            id,
            at: Time(from_integer(row.get("at"))),
            kind: row.get("kind"),
            model: row.get("model"),
            replica: row
                .get::<Option<i64>, _>("replica")
                .map(|id| ReplicaId(from_integer(id)).to_string()),
            order: row
                .get::<Option<i64>, _>("order_id")
                .map(|id| OrderId(from_integer(id)).to_string()),
            reason: row.get("reason"),
            priority: row.get::<Option<i64>, _>("priority").map(from_small),
            placement: serde_json::from_str(row.get("placement")).map_err(bad)?,
            candidates: serde_json::from_str(row.get("candidates")).map_err(bad)?,
            memory: serde_json::from_str(row.get("memory")).map_err(bad)?,
            took_ms: row.get::<Option<i64>, _>("took_ms").map(from_integer),
        })
    }
}

async fn append_stored(
    connection: &mut SqliteConnection,
    mut records: Vec<StoredRecord>,
) -> Result<Vec<StoredRecord>, sqlx::Error> {
    for record in &mut records {
        let done = sqlx::query(
            "INSERT INTO history (at, kind, model, replica, order_id, reason, priority, placement, candidates, memory, took_ms)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(to_integer(record.at.0))
        .bind(record.kind.as_str())
        .bind(record.model.as_deref())
        .bind(record.replica.as_deref().map(number_of))
        .bind(record.order.as_deref().map(number_of))
        .bind(record.reason.as_str())
        .bind(record.priority.map(i64::from))
        .bind(json(&record.placement)?)
        .bind(json(&record.candidates)?)
        .bind(json(&record.memory)?)
        .bind(record.took_ms.map(to_integer))
        .execute(&mut *connection)
        .await?;
        record.id = done.last_insert_rowid();
    }
    let replicas = records.iter().filter_map(|it| it.replica.as_deref());
    let orders = records.iter().filter_map(|it| it.order.as_deref());
    let given = [
        ("replica", replicas.map(number_of).max()),
        ("order", orders.map(number_of).max()),
    ];
    for (name, last) in given {
        let Some(last) = last else { continue };
        sqlx::query("UPDATE numbers SET last = ?1 WHERE name = ?2 AND last < ?1")
            .bind(last)
            .bind(name)
            .execute(&mut *connection)
            .await?;
    }
    Ok(records)
}

fn stored(record: &Record, device_name: &dyn Fn(DeviceId) -> String) -> StoredRecord {
    StoredRecord {
        id: 0,
        at: record.at,
        kind: record.kind.name().to_string(),
        model: record.model.clone(),
        replica: record.replica.map(|id| id.to_string()),
        order: record.order.map(|id| id.to_string()),
        reason: record.reason.clone(),
        priority: record.priority.map(|priority| priority.0),
        placement: record
            .placement
            .iter()
            .map(|share| StoredShare {
                device: device_name(share.device),
                bytes: share.bytes.0,
            })
            .collect(),
        candidates: record.candidates.clone(),
        memory: record
            .memory
            .iter()
            .map(|change| StoredMemory {
                device: device_name(change.device),
                before_bytes: change.before.0,
                after_bytes: change.after.0,
            })
            .collect(),
        took_ms: record.took.map(|span| span.0),
    }
}

/// `r3` is stored as 3.
fn number_of(id: &str) -> i64 {
    id.get(1..)
        .and_then(|digits| digits.parse().ok())
        .map(to_integer)
        .unwrap_or(0)
}

fn json(value: &impl Serialize) -> Result<String, sqlx::Error> {
    serde_json::to_string(value).map_err(|error| sqlx::Error::Encode(error.into()))
}

fn as_rfc3339<S: Serializer>(at: &Time, serializer: S) -> Result<S::Ok, S::Error> {
    let time = DateTime::<Utc>::from_timestamp_millis(to_integer(at.0))
        .unwrap_or(DateTime::<Utc>::MAX_UTC);
    serializer.serialize_str(&time.to_rfc3339_opts(SecondsFormat::Millis, true))
}
