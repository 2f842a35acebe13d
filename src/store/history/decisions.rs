//! The candidates that decisions compared, stored for the history rows that they caused (D3). Each decision is stored with each of
//! its events, and deleted with the row.

use serde::{Deserialize, Serialize};

use super::records::{StoredMemory, StoredRecord, rfc3339};
use crate::database::Store;
use crate::sql::integers::to_integer;
use crate::sql::query::query;
use crate::sql::{Connection, Row, StoreError};
use pool::{DeviceId, Explanation, Standing};

/// The decision for one load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredDecision {
    /// The model to be loaded.
    pub load: String,
    pub priority: u32,
    /// The decision in one sentence.
    pub words: String,
    pub considered: Vec<StoredCandidate>,
    /// Number of further replicas considered.
    pub more: u32,
    /// Descriptions of further obstacles.
    pub others: Vec<String>,
    pub memory: Vec<StoredMemory>,
}

/// A replica that was compared with others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredCandidate {
    pub replica: String,
    pub model: String,
    pub device: String,
    pub priority: u32,
    pub idle_ms: u64,
    pub reload_ms: u64,
    pub bytes: u64,
    pub chosen: bool,
    pub words: String,
}

impl StoredDecision {
    pub(crate) fn new(
        explanation: &Explanation,
        device_name: &dyn Fn(DeviceId) -> String,
    ) -> StoredDecision {
        let candidate = |considered: &pool::Considered| StoredCandidate {
            replica: considered.replica.to_string(),
            model: considered.model.clone(),
            device: device_name(considered.device),
            priority: considered.priority.0,
            idle_ms: considered.idle.0,
            reload_ms: considered.reload.0,
            bytes: considered.bytes.0,
            chosen: considered.verdict == Standing::Chosen,
            words: considered.to_string(),
        };
        let other = |(device, bytes, what): &(DeviceId, pool::Bytes, pool::Blocker)| {
            format!("{}: {bytes} {what}", device_name(*device))
        };
        StoredDecision {
            load: explanation.load.clone(),
            priority: explanation.priority.0,
            words: explanation.sentence(&rfc3339),
            considered: explanation.considered.iter().map(candidate).collect(),
            more: explanation.more,
            others: explanation.others.iter().map(other).collect(),
            memory: StoredMemory::all(&explanation.memory, device_name),
        }
    }
}

/// Inserts within the transaction of the row.
pub(super) async fn insert_decision(
    connection: &mut Connection,
    event: i64,
    decision: &StoredDecision,
) -> Result<(), sqlx::Error> {
    let text =
        serde_json::to_string(decision).map_err(|error| sqlx::Error::Encode(error.into()))?;
    query("INSERT INTO decisions (event, decision) VALUES (?, ?)")
        .bind(event)
        .bind(text)
        .execute(connection)
        .await
        .map(|_| ())
}

impl Store {
    /// The decision behind a row, if it was stored.
    pub async fn decision(&self, event: i64) -> Result<Option<StoredDecision>, StoreError> {
        let row = query("SELECT decision FROM decisions WHERE event = ?")
            .bind(event)
            .fetch_optional(&self.readers)
            .await
            .map_err(self.failed("read a decision"))?;
        let read = |row: Row| {
            serde_json::from_str(row.get("decision"))
                .map_err(|error| self.bad_row("decisions", event, error))
        };
        row.map(read).transpose()
    }

    /// One row of the history.
    pub async fn event(&self, id: i64) -> Result<Option<StoredRecord>, StoreError> {
        let row = query("SELECT * FROM history WHERE id = ?")
            .bind(id)
            .fetch_optional(&self.readers)
            .await
            .map_err(self.failed("read the history"))?;
        row.map(|row| self.read_record(&row)).transpose()
    }

    /// The newest row of these kinds for a model, optionally for one of its replicas, and not after `until`.
    pub async fn newest_of(
        &self,
        model: &str,
        kinds: &[&str],
        replica: Option<u64>,
        until: i64,
    ) -> Result<Option<StoredRecord>, StoreError> {
        let mut newest: Option<StoredRecord> = None;
        for kind in kinds {
            // One seek per kind. A replica has few rows, and they are close together.
            let mut sql = query("SELECT * FROM history");
            sql.push(&self.dialect().indexed_by("history_by_model_and_kind"))
                .push(" WHERE model = ")
                .push_bind(model)
                .push(" AND kind = ")
                .push_bind(*kind)
                .push(" AND id <= ")
                .push_bind(until);
            if let Some(replica) = replica {
                sql.push(" AND replica = ").push_bind(to_integer(replica));
            }
            sql.push(" ORDER BY id DESC LIMIT 1");
            let row = sql
                .fetch_optional(&self.readers)
                .await
                .map_err(self.failed("read the history"))?;
            let found = row.map(|row| self.read_record(&row)).transpose()?;
            newest = newest.into_iter().chain(found).max_by_key(|row| row.id);
        }
        Ok(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::{Bytes, Priority, Time};

    #[test]
    fn a_decision_shows_rule_changes_in_the_time_format_of_the_api() {
        let explanation = Explanation {
            load: "a".to_owned(),
            priority: Priority(0),
            devices: 1,
            needs: Bytes(Bytes::GIB),
            by_recency_since: Some(Time(1_769_868_000_000)),
            considered: Vec::new(),
            more: 0,
            others: Vec::new(),
            memory: Vec::new(),
        };
        let stored = StoredDecision::new(&explanation, &|device: DeviceId| device.to_string());
        let part = "the least recently used leaves first since 2026-01-31T14:00:00.000Z: ";
        assert!(stored.words.contains(part), "{}", stored.words);
    }
}
