//! The history (D3): every decision with its reason, in the JSON form of the admin API and the event stream.
//! Rows are only appended; [`Store::forget_history`] deletes old ones.

use std::collections::BTreeMap;
use std::future::Future;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize, Serializer};

use super::decisions::{StoredDecision, insert_decision};
use crate::database::Store;
use crate::sql::integers::{from_integer, to_integer};
use crate::sql::query::query;
use crate::sql::{Connection, StoreError};
use pool::{DeviceId, MemoryChange, Record, Span, Time};

/// A stored record of the history. Serializes to the event object of the admin API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoredRecord {
    /// Ascending and never reused: the `after` of the next query, and the `id:` of the event stream.
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
    /// The name of the reason, such as `preempted`.
    pub cause: Option<String>,
    /// The id of the key or the person, such as `k3`; `k0` stands for a client without one.
    pub asked_by: Option<String>,
    /// The path of the caller's group at that time, such as `physics/lab`.
    pub group: Option<String>,
    pub priority: Option<u32>,
    pub placement: Vec<StoredShare>,
    pub candidates: Vec<String>,
    pub memory: Vec<StoredMemory>,
    pub took_ms: Option<u64>,
    /// The decision's comparison. Set only on the way into the store; [`Store::decision`] reads it.
    #[serde(skip)]
    pub decision: Option<Box<StoredDecision>>,
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

impl StoredMemory {
    pub(super) fn all(
        changes: &[MemoryChange],
        device_name: &dyn Fn(DeviceId) -> String,
    ) -> Vec<StoredMemory> {
        let stored = changes.iter().map(|change| StoredMemory {
            device: device_name(change.device),
            before_bytes: change.before.0,
            after_bytes: change.after.0,
        });
        stored.collect()
    }
}

/// The limits of the history by age and number.
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

const HOUR_MS: u64 = 3_600_000;

/// Maximum number of rows per deletion, small enough to keep waiting writes from a noticeable delay.
pub(crate) const FORGOTTEN_AT_ONCE: i64 = 500;

impl Store {
    /// Appends the records in order, all or none, and returns them as stored.
    ///
    /// `device_name` gives a device's display name. The name is stored because a device's id means nothing
    /// after a restart.
    pub fn append<'a>(
        &'a self,
        records: &[Record],
        device_name: &dyn Fn(DeviceId) -> String,
    ) -> impl Future<Output = Result<Vec<StoredRecord>, StoreError>> + Send + use<'a> {
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

    /// The largest numbers of a replica and of an order in the history; 0 without any. A number assigned immediately before a `kill
    /// -9` may be missing.
    pub async fn last_numbers(&self) -> Result<(u64, u64), StoreError> {
        let row = query(
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
    pub async fn last_id(&self) -> Result<i64, StoreError> {
        self.last_id_of("history").await
    }

    /// The last id assigned by a table.
    pub(crate) async fn last_id_of(&self, table: &'static str) -> Result<i64, StoreError> {
        query(self.dialect().last_id())
            .bind(table)
            .fetch_value(&self.readers)
            .await
            .map_err(self.failed("read the last number of a table"))
    }

    /// Deletes some records that are too old or too many. Returns their number, at most [`FORGOTTEN_AT_ONCE`]. Call it until it
    /// returns 0; other writes can run in between.
    pub async fn forget_history(&self, now: Time, retention: Retention) -> Result<u64, StoreError> {
        let last = self.last_id().await?;
        let old = query(
            "DELETE FROM history WHERE id IN (SELECT id FROM history WHERE id <= ?1 OR at < ?2 LIMIT ?3)",
        )
        .bind(last.saturating_sub(to_integer(retention.rows)))
        .bind(to_integer(now.0.saturating_sub(retention.age.0)))
        .bind(FORGOTTEN_AT_ONCE);
        self.write("delete old history", async |connection| {
            let deleted = old.execute(&mut *connection).await?;
            // Also deletes their decisions, and hours without remaining rows.
            query("DELETE FROM history_hours WHERE last_id < (SELECT min(id) FROM history)")
                .execute(connection)
                .await?;
            Ok(deleted)
        })
        .await
    }
}

/// Rows per statement: each statement is a round trip to PostgreSQL.
const ROWS_AT_ONCE: usize = 64;

async fn append_stored(
    connection: &mut Connection,
    mut records: Vec<StoredRecord>,
) -> Result<Vec<StoredRecord>, sqlx::Error> {
    for some in records.chunks_mut(ROWS_AT_ONCE) {
        let mut insert = query(
            "INSERT INTO history (at, kind, model, replica, order_id, reason, priority, placement, candidates, memory, took_ms, cause, asked_by, asker_group) VALUES ",
        );
        for (nth, record) in some.iter().enumerate() {
            insert.push(if nth == 0 { "(" } else { ", (" });
            insert
                .push_bind(to_integer(record.at.0))
                .push(", ")
                .push_bind(record.kind.as_str())
                .push(", ")
                .push_bind(record.model.as_deref())
                .push(", ")
                .push_bind(record.replica.as_deref().map(number_of))
                .push(", ")
                .push_bind(record.order.as_deref().map(number_of))
                .push(", ")
                .push_bind(record.reason.as_str())
                .push(", ")
                .push_bind(record.priority.map(i64::from))
                .push(", ")
                .push_bind(json(&record.placement)?)
                .push(", ")
                .push_bind(json(&record.candidates)?)
                .push(", ")
                .push_bind(json(&record.memory)?)
                .push(", ")
                .push_bind(record.took_ms.map(to_integer))
                .push(", ")
                .push_bind(record.cause.as_deref())
                .push(", ")
                .push_bind(record.asked_by.as_deref())
                .push(", ")
                .push_bind(record.group.as_deref())
                .push(")");
        }
        insert.push(" RETURNING id");
        let rows = insert.fetch_all(&mut *connection).await?;
        // Rows get ascending ids in the order of the statement, but may be returned in another order.
        let mut ids: Vec<i64> = rows.iter().map(|row| row.get("id")).collect();
        ids.sort_unstable();
        for (record, id) in some.iter_mut().zip(ids) {
            record.id = id;
            if let Some(decision) = record.decision.take() {
                insert_decision(connection, record.id, &decision).await?;
            }
        }
    }
    add_hours(connection, &records).await?;
    add_groups(connection, &records).await?;
    let replicas = records
        .iter()
        .filter_map(|record| record.replica.as_deref());
    let orders = records.iter().filter_map(|record| record.order.as_deref());
    let filters = [
        ("replica", replicas.map(number_of).max()),
        ("order", orders.map(number_of).max()),
    ];
    for (name, last) in filters {
        let Some(last) = last else { continue };
        query("UPDATE numbers SET last = ?1 WHERE name = ?2 AND last < ?1")
            .bind(last)
            .bind(name)
            .execute(&mut *connection)
            .await?;
    }
    Ok(records)
}

/// Extends the id ranges of the hours that contain the records.
async fn add_hours(
    connection: &mut Connection,
    records: &[StoredRecord],
) -> Result<(), sqlx::Error> {
    let mut hours: BTreeMap<u64, (i64, i64)> = BTreeMap::new();
    for record in records {
        let ids = hours
            .entry(record.at.0 / HOUR_MS)
            .or_insert((record.id, record.id));
        ids.1 = record.id;
    }
    for (hour, (first, last)) in hours {
        query(
            "INSERT INTO history_hours (hour, first_id, last_id) VALUES (?, ?, ?) \
             ON CONFLICT (hour) DO UPDATE SET last_id = excluded.last_id",
        )
        .bind(to_integer(hour))
        .bind(first)
        .bind(last)
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Lists the records under each group of their caller's path.
async fn add_groups(
    connection: &mut Connection,
    records: &[StoredRecord],
) -> Result<(), sqlx::Error> {
    let paths = records.iter();
    let paths = paths.filter_map(|record| Some((record.id, record.group.as_deref()?)));
    let rows = paths.flat_map(|(id, path)| path.split('/').map(move |name| (name, id)));
    let rows: Vec<(&str, i64)> = rows.collect();
    for some in rows.chunks(ROWS_AT_ONCE) {
        let mut insert = query("INSERT INTO history_groups (name, event) VALUES ");
        for (nth, (name, id)) in some.iter().enumerate() {
            insert.push(if nth == 0 { "(" } else { ", (" });
            insert.push_bind(*name).push(", ").push_bind(*id).push(")");
        }
        insert.execute(&mut *connection).await?;
    }
    Ok(())
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
        memory: StoredMemory::all(&record.memory, device_name),
        took_ms: record.took.map(|span| span.0),
        cause: record.cause.map(str::to_owned),
        asked_by: record.asked_by.map(|key| key.to_string()),
        group: record.group.clone(),
        decision: record
            .explanation
            .as_ref()
            .map(|explanation| Box::new(StoredDecision::new(explanation, device_name))),
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
    serializer.serialize_str(&rfc3339(*at))
}

/// A time in the API's format.
pub(super) fn rfc3339(at: Time) -> String {
    let time = DateTime::<Utc>::from_timestamp_millis(to_integer(at.0))
        .unwrap_or(DateTime::<Utc>::MAX_UTC);
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}
