//! The history and the engines' output as the API returns them. The store writes the events; the API document repeats their shape,
//! and a test compares both.

use serde::Serialize;
use utoipa::ToSchema;

use super::values::{Share, rfc3339};

/// A page of the history.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct EventList<T> {
    pub events: Vec<T>,
    /// Value of `after` for the next page.
    #[schema(example = 118)]
    pub next_after: Option<i64>,
}

/// A decision with its reason (D3).
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct EventView {
    /// Increasing id, never reused.
    #[schema(example = 118)]
    pub id: i64,
    #[schema(example = "2026-01-31T20:15:00.123Z")]
    pub at: String,
    #[schema(example = "evict")]
    pub kind: String,
    pub model: Option<String>,
    #[schema(example = "r3")]
    pub replica: Option<String>,
    #[schema(example = "o5")]
    pub order: Option<String>,
    /// Reason in words, with the rule.
    #[schema(example = "preempted by tiny-chat: priority 1 over 0 (P2); 0 in flight")]
    pub reason: String,
    /// Name of the reason, for filters. Null for events without one and for some events of older versions.
    #[schema(example = "preempted")]
    pub cause: Option<String>,
    /// Id of the key or person that caused the event; `k0` for a client without a key.
    #[schema(example = "k1")]
    pub asked_by: Option<String>,
    /// Path of the caller's group at that time. Null for callers without a group and for events of older versions.
    #[schema(example = "physics/lab")]
    pub group: Option<String>,
    pub priority: Option<u32>,
    pub placement: Vec<Share>,
    /// Candidates of the decision.
    pub candidates: Vec<String>,
    /// Reserved bytes of each device involved.
    pub memory: Vec<MemoryChange>,
    /// Load time, drain time or age, depending on the kind.
    pub took_ms: Option<u64>,
}

#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct MemoryChange {
    #[schema(example = "gpu0")]
    pub device: String,
    pub before_bytes: u64,
    pub after_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LogList {
    pub model: String,
    /// Lines, oldest first.
    pub lines: Vec<LogLineView>,
}

/// A line of engine output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LogLineView {
    #[schema(example = "r3")]
    pub replica: String,
    #[schema(example = "2026-01-31T20:15:00.123Z")]
    pub at: String,
    /// `stdout` or `stderr`.
    #[schema(example = "stderr")]
    pub stream: String,
    pub line: String,
}

impl LogLineView {
    pub fn new(
        replica: &str,
        at: std::time::SystemTime,
        stream: impl ToString,
        line: &str,
    ) -> LogLineView {
        LogLineView {
            replica: replica.to_owned(),
            at: rfc3339(at.into()),
            stream: stream.to_string(),
            line: line.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pool::Time;
    use serde_json::Value;
    use store::StoredRecord;
    use store::{StoredMemory, StoredShare};
    use utoipa::PartialSchema;

    fn fields(value: &Value) -> Vec<&String> {
        value.as_object().unwrap().keys().collect()
    }

    #[test]
    fn events_are_described_as_the_store_writes_them() {
        let device = || "gpu0".to_owned();
        let record = StoredRecord {
            id: 1,
            at: Time(0),
            kind: "load".to_owned(),
            model: None,
            replica: None,
            order: None,
            reason: String::new(),
            cause: None,
            asked_by: None,
            group: None,
            priority: None,
            placement: vec![StoredShare {
                device: device(),
                bytes: 1,
            }],
            candidates: Vec::new(),
            memory: vec![StoredMemory {
                device: device(),
                before_bytes: 1,
                after_bytes: 2,
            }],
            took_ms: None,
            decision: None,
        };
        let written = serde_json::to_value(&record).unwrap();
        let described = |schema: utoipa::openapi::RefOr<utoipa::openapi::schema::Schema>| {
            serde_json::to_value(schema).unwrap()["properties"].clone()
        };
        assert_eq!(fields(&written), fields(&described(EventView::schema())));
        assert_eq!(
            fields(&written["memory"][0]),
            fields(&described(MemoryChange::schema()))
        );
        assert_eq!(
            fields(&written["placement"][0]),
            fields(&described(Share::schema()))
        );
    }
}
