//! What decisions compared, beside the rows of the history that they caused (D3). Each is stored once for each of its
//! events, and goes with the row.

use serde::{Deserialize, Serialize};

use super::connection::Connection;
use super::history::{StoredMemory, StoredRecord, rfc3339};
use super::query::{Row, query};
use super::{Store, StoreFault, to_integer};
use pool::{DeviceId, Explanation, Standing};

/// The decision for one load.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredDecision {
    /// The model that was to be loaded.
    pub load: String,
    pub priority: u32,
    /// In a sentence.
    pub words: String,
    pub considered: Vec<StoredCandidate>,
    /// How many replicas more were considered.
    pub more: u32,
    /// What else stood in the way, in words.
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
    pub(super) fn of(it: &Explanation, device_name: &dyn Fn(DeviceId) -> String) -> StoredDecision {
        let candidate = |it: &pool::Considered| StoredCandidate {
            replica: it.replica.to_string(),
            model: it.model.clone(),
            device: device_name(it.device),
            priority: it.priority.0,
            idle_ms: it.idle.0,
            reload_ms: it.reload.0,
            bytes: it.bytes.0,
            chosen: it.verdict == Standing::Chosen,
            words: it.to_string(),
        };
        let other = |(device, bytes, what): &(DeviceId, pool::Bytes, pool::Blocker)| {
            format!("{}: {bytes} {what}", device_name(*device))
        };
        StoredDecision {
            load: it.load.clone(),
            priority: it.priority.0,
            words: it.sentence(&rfc3339),
            considered: it.considered.iter().map(candidate).collect(),
            more: it.more,
            others: it.others.iter().map(other).collect(),
            memory: it
                .memory
                .iter()
                .map(|change| StoredMemory {
                    device: device_name(change.device),
                    before_bytes: change.before.0,
                    after_bytes: change.after.0,
                })
                .collect(),
        }
    }
}

/// Within the transaction of the row.
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
    /// What the decision behind a row compared, if it was stored.
    pub async fn decision(&self, event: i64) -> Result<Option<StoredDecision>, StoreFault> {
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
    pub async fn event(&self, id: i64) -> Result<Option<StoredRecord>, StoreFault> {
        let row = query("SELECT * FROM history WHERE id = ?")
            .bind(id)
            .fetch_optional(&self.readers)
            .await
            .map_err(self.failed("read the history"))?;
        row.map(|row| self.read_record(&row)).transpose()
    }

    /// The newest row of one of these kinds for a model; for one of its replicas, if that is given, and not after `until`.
    pub async fn newest_of(
        &self,
        model: &str,
        kinds: &[&str],
        replica: Option<u64>,
        until: i64,
    ) -> Result<Option<StoredRecord>, StoreFault> {
        let mut newest: Option<StoredRecord> = None;
        for kind in kinds {
            // One seek for each kind. A replica has few rows, and they lie together.
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
            newest = newest.into_iter().chain(found).max_by_key(|it| it.id);
        }
        Ok(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::{Bytes, Priority, Time};

    #[test]
    fn since_when_another_rule_is_followed_is_a_moment_as_the_api_writes_it() {
        let explanation = Explanation {
            load: "a".to_owned(),
            priority: Priority(0),
            devices: 1,
            needs: Bytes(Bytes::GIB),
            by_recency_since: Some(Time(1_769_868_000_000)),
            closes_early: false,
            gates_open_since: Some(Time(1_769_868_060_500)),
            considered: Vec::new(),
            more: 0,
            others: Vec::new(),
            memory: Vec::new(),
        };
        let stored = StoredDecision::of(&explanation, &|it: DeviceId| it.to_string());
        for part in [
            "the least recently used leaves first since 2026-01-31T14:00:00.000Z: ",
            "turns do not end early since 2026-01-31T14:01:00.500Z: ",
        ] {
            assert!(stored.words.contains(part), "{}", stored.words);
        }
    }
}
