//! Data types for the admin API's decisions and reports, with the fields that are shown. Absent fields are not errors.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::responses::{NodeUseView, VirtualChoice};

/// The decision behind an event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct DecisionReport {
    pub event: i64,
    pub at: Option<String>,
    pub model: Option<String>,
    pub what: String,
    pub reason: Option<String>,
    pub asked_by: Option<String>,
    pub group: Option<String>,
    pub decided_by: Option<i64>,
    pub candidates: Vec<WhyCandidate>,
    pub memory: Vec<WhyMemory>,
    pub words: Vec<String>,
    pub virtual_choice: Option<VirtualChoice>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct WhyCandidate {
    pub replica: String,
    pub model: String,
    pub device: String,
    pub priority: u32,
    pub idle_seconds: f64,
    pub reload_seconds: f64,
    pub memory_bytes: u64,
    pub chosen: bool,
    pub words: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct WhyMemory {
    pub device: String,
    pub before_bytes: u64,
    pub after_bytes: u64,
}

/// A summary of a period.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Report {
    pub from: String,
    pub to: String,
    pub models: Vec<ModelReport>,
    pub total: ModelReport,
    pub groups: Vec<GroupReport>,
    /// Events of nodes, by kind.
    pub nodes: BTreeMap<String, u64>,
    pub node_use: Vec<NodeUseView>,
}

/// The requests of the members of a group in a period.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct GroupReport {
    pub group: String,
    pub requests: u64,
    pub waited: u64,
    pub waited_seconds: f64,
    pub cold_starts: u64,
    pub refusals: BTreeMap<String, u64>,
    pub tokens: u64,
}

/// The groups of callers.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct GroupList {
    pub month: String,
    pub month_ends_at: String,
    pub groups: Vec<GroupView>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct GroupView {
    pub group: String,
    pub path: String,
    pub weight: u32,
    pub share_now: f64,
    pub reserved_permille: u32,
    pub class_max: String,
    pub priority_max: Option<u32>,
    pub quota: Option<GroupQuota>,
    pub members: u64,
    pub waiting: u64,
    pub running: u64,
    pub tokens: u64,
    pub device_seconds: f64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct GroupQuota {
    pub gpu_hours: Option<f64>,
    pub tokens: Option<u64>,
    pub at_end: String,
    pub used_ratio: f64,
}

/// A group that was set or removed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ChangedGroup {
    pub group: String,
    pub warnings: Vec<String>,
}

/// The device time of a month.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Usage {
    pub month: String,
    pub time_zone: String,
    pub rows: Vec<UsageRow>,
    pub total: UsageSums,
    pub devices: Vec<UsageOfDevice>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct UsageRow {
    pub model: String,
    pub group: String,
    pub key: String,
    pub name: String,
    #[serde(flatten)]
    pub sums: UsageSums,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct UsageOfDevice {
    pub device: String,
    pub wall_seconds: f64,
    #[serde(flatten)]
    pub sums: UsageSums,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct UsageSums {
    /// By state.
    pub seconds: BTreeMap<String, f64>,
    pub energy_joules: Option<f64>,
    pub cost: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ModelReport {
    pub model: String,
    pub requests: u64,
    pub waited: u64,
    pub waited_seconds: f64,
    pub cold_starts: u64,
    pub loads: u64,
    pub load_seconds: f64,
    pub failed_loads: u64,
    pub crashes: u64,
    pub evictions: BTreeMap<String, u64>,
    pub refusals: BTreeMap<String, u64>,
}
