//! Batches of all keys. Absent fields are not errors.

use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct BatchList {
    pub batches: Vec<BatchView>,
    /// The last batch of the page, if there are more.
    pub next_after: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct BatchView {
    pub id: String,
    pub holder: String,
    pub models: Vec<BatchModel>,
    pub status: String,
    pub request_counts: RequestCounts,
    pub rank: i64,
    /// Unix seconds.
    pub expires_at: u64,
    pub model_pool: BatchProgress,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct BatchModel {
    pub model: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RequestCounts {
    pub total: u64,
    pub completed: u64,
    pub failed: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct BatchProgress {
    pub paused: bool,
    pub expected_seconds: Option<u64>,
    pub will_hold: Option<bool>,
}
