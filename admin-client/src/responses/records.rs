//! Events, logs, the audit log and keys.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct EventList {
    pub events: Vec<EventView>,
    /// A number or a string, sent back unchanged.
    pub next_after: Option<Value>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct EventView {
    pub id: Option<Value>,
    pub at: Option<String>,
    pub kind: String,
    pub model: Option<String>,
    pub replica: Option<String>,
    pub order: Option<String>,
    pub reason: Option<String>,
    pub memory: Option<Vec<MemoryChange>>,
    pub took_ms: Option<u64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct MemoryChange {
    pub device: String,
    pub before_bytes: Option<u64>,
    pub after_bytes: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct LogList {
    pub lines: Vec<LogLine>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct LogLine {
    pub replica: String,
    pub at: Option<String>,
    pub stream: Option<String>,
    pub line: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct AuditList {
    pub entries: Vec<AuditEntry>,
}

/// An administrative change or a refused attempt.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct AuditEntry {
    pub at: Option<String>,
    pub key: Option<String>,
    pub name: Option<String>,
    pub client: String,
    pub method: String,
    pub path: String,
    pub what: serde_json::Map<String, Value>,
    pub status: u16,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct KeyList {
    pub keys: Vec<KeyView>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct KeyView {
    pub id: Value,
    pub name: String,
    pub role: String,
    pub group: Option<String>,
    pub prefix: Option<String>,
    pub created_at: Option<String>,
    pub last_used_at: Option<String>,
    pub expires_at: Option<String>,
    pub models: Vec<String>,
    pub routes: Vec<String>,
    pub limits: Option<BTreeMap<String, Option<u64>>>,
    pub log_prompts: bool,
}

/// A new key, shown once. Has no `Debug`: it holds the key itself.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct NewKey {
    pub id: Value,
    pub name: String,
    pub role: String,
    pub key: String,
}
