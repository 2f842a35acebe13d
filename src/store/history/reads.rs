//! Reads the history by filters. Each filter has its own index, and a time is a range of ids, so the first page costs the same for
//! any amount of history.

use super::records::StoredRecord;
use crate::database::Store;
use crate::sql::integers::{from_integer, from_small, to_integer};
use crate::sql::query::query;
use crate::sql::{Row, StoreError};
use pool::{OrderId, ReplicaId, Time};

const HOUR_MS: u64 = 3_600_000;

/// Selects a part of the history. Results are in ascending order of id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Only records with a larger id; `None` means the newest ones.
    pub after: Option<i64>,
    /// At most this many; values outside of 1 to [`HistoryQuery::LIMIT_MAX`] are clamped.
    pub limit: u32,
    pub model: Option<String>,
    pub kind: Option<String>,
    /// The name of the reason, such as `preempted`.
    pub cause: Option<String>,
    /// The id of the key or the person, such as `k3`.
    pub asked_by: Option<String>,
    /// The path of a group, or its name: includes the groups below it.
    pub group: Option<String>,
    pub since: Option<Time>,
    /// Only records before this time.
    pub until: Option<Time>,
}

impl HistoryQuery {
    /// About 1 MiB of JSON.
    pub const LIMIT_MAX: u32 = 1000;

    /// The index that is ordered by id and covers the most filters. Without statistics, SQLite would read the complete table in the
    /// order of ids for a selective filter.
    fn index(&self) -> Option<&'static str> {
        if self.group.is_some() {
            return None;
        }
        let has = |filter: &Option<String>| filter.is_some();
        match (
            has(&self.asked_by),
            has(&self.model),
            has(&self.cause),
            has(&self.kind),
        ) {
            (true, ..) => Some("history_by_asker"),
            (_, true, true, _) => Some("history_by_model_and_cause"),
            (_, true, _, true) => Some("history_by_model_and_kind"),
            (_, true, ..) => Some("history_by_model"),
            (_, _, true, _) => Some("history_by_cause"),
            (_, _, _, true) => Some("history_by_kind"),
            (false, false, false, false) => None,
        }
    }
}

/// The text with the wildcards of `LIKE` escaped by `!`.
fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        if matches!(letter, '%' | '_' | '!') {
            safe.push('!');
        }
        safe.push(letter);
    }
    safe
}

impl Store {
    /// A part of the history, in ascending order of id.
    pub async fn history(&self, wanted: HistoryQuery) -> Result<Vec<StoredRecord>, StoreError> {
        let (first, last) = self.ids_between(wanted.since, wanted.until).await?;
        let index = wanted.index().map(|index| self.dialect().indexed_by(index));
        let mut sql = query("SELECT * FROM (SELECT history.* FROM ");
        match &wanted.group {
            // The order of the tables keeps SQLite from reading the complete history.
            Some(group) => {
                let name = group.rsplit('/').next().unwrap_or_default();
                sql.push("history_groups CROSS JOIN history WHERE history.id = event AND name = ");
                sql.push_bind(name.to_owned());
                if name != group {
                    sql.push(" AND '/' || asker_group || '/' LIKE ");
                    sql.push_bind(format!("%/{}/%", escaped(group)));
                    sql.push(" ESCAPE '!'");
                }
                sql.push(" AND event > ");
            }
            None => {
                let index = index.unwrap_or_default();
                sql.push("history").push(&index).push(" WHERE id > ");
            }
        }
        sql.push_bind(wanted.after.unwrap_or(0).max(first.saturating_sub(1)));
        // Adds only the necessary conditions.
        let id = if wanted.group.is_some() {
            "event"
        } else {
            "id"
        };
        if let Some(last) = last {
            sql.push(&format!(" AND {id} <= ")).push_bind(last);
        }
        for (condition, value) in [
            (" AND asked_by = ", wanted.asked_by),
            (" AND model = ", wanted.model),
            (" AND cause = ", wanted.cause),
            (" AND kind = ", wanted.kind),
        ] {
            if let Some(value) = value {
                sql.push(condition).push_bind(value);
            }
        }
        // The first and the last hour of the range also contain records outside of it.
        if let Some(since) = wanted.since {
            sql.push(" AND at >= ").push_bind(to_integer(since.0));
        }
        if let Some(until) = wanted.until {
            sql.push(" AND at < ").push_bind(to_integer(until.0));
        }
        let order = if wanted.after.is_some() {
            "ASC"
        } else {
            "DESC"
        };
        sql.push(&format!(" ORDER BY {id} {order} LIMIT "))
            .push_bind(i64::from(wanted.limit.clamp(1, HistoryQuery::LIMIT_MAX)));
        sql.push(") AS page ORDER BY id");
        let rows = sql
            .fetch_all(&self.readers)
            .await
            .map_err(self.failed("read the history"))?;
        rows.iter().map(|row| self.read_record(row)).collect()
    }

    /// The range of ids that contains all records of the time. Its upper limit is only set with an end.
    async fn ids_between(
        &self,
        since: Option<Time>,
        until: Option<Time>,
    ) -> Result<(i64, Option<i64>), StoreError> {
        if since.is_none() && until.is_none() {
            return Ok((0, None));
        }
        let hour = |time: Time| to_integer(time.0 / HOUR_MS);
        let row = query(
            "SELECT min(first_id) AS first, max(last_id) AS last FROM history_hours WHERE hour >= ? AND hour <= ?",
        )
        .bind(since.map_or(0, hour))
        .bind(until.map_or(i64::MAX, hour))
        .fetch_one(&self.readers)
        .await
        .map_err(self.failed("read the hours of the history"))?;
        let first: Option<i64> = row.get("first");
        let last: Option<i64> = row.get("last");
        // No hour means no records.
        Ok(match (first, last) {
            (Some(first), Some(last)) => (first, until.map(|_| last)),
            _ => (i64::MAX, Some(0)),
        })
    }

    pub(super) fn read_record(&self, row: &Row) -> Result<StoredRecord, StoreError> {
        let id: i64 = row.get("id");
        let bad = |error: serde_json::Error| self.bad_row("history", id, error);
        Ok(StoredRecord {
            id,
            at: Time(from_integer(row.get("at"))),
            kind: row.get("kind"),
            model: row.get("model"),
            replica: row
                .get::<Option<i64>>("replica")
                .map(|id| ReplicaId(from_integer(id)).to_string()),
            order: row
                .get::<Option<i64>>("order_id")
                .map(|id| OrderId(from_integer(id)).to_string()),
            reason: row.get("reason"),
            cause: row.get("cause"),
            asked_by: row.get("asked_by"),
            group: row.get("asker_group"),
            priority: row.get::<Option<i64>>("priority").map(from_small),
            placement: serde_json::from_str(row.get("placement")).map_err(bad)?,
            candidates: serde_json::from_str(row.get("candidates")).map_err(bad)?,
            memory: serde_json::from_str(row.get("memory")).map_err(bad)?,
            took_ms: row.get::<Option<i64>>("took_ms").map(from_integer),
            decision: None,
        })
    }
}
