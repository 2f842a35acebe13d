//! Data types for the admin API's responses, with the fields that the client shows.
//! Absent fields are not errors, which keeps the client compatible with older and newer servers.

mod batches;
mod load;
mod records;

use serde::Deserialize;
use serde_json::Value;

use crate::state::LoadState;

pub use batches::*;
pub use load::*;
pub use records::*;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ModelList {
    pub models: Vec<ModelView>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ModelView {
    pub model: String,
    pub aliases: Vec<String>,
    pub adapters: Vec<String>,
    pub engine: Option<String>,
    pub source: Option<String>,
    pub state: LoadState,
    /// The problem with the model's file, if it has one.
    pub file_error: Option<String>,
    pub priority: u32,
    pub priority_from: Option<String>,
    pub always_hot: bool,
    pub keep_hot_ms: Option<u64>,
    #[serde(rename = "override")]
    pub changed: Option<OverrideView>,
    pub wished_replicas: Option<u32>,
    pub replicas: Vec<ReplicaView>,
    pub weights: Option<WeightsView>,
    pub waiting: u64,
    pub needs: Option<Needs>,
    pub estimated_bytes_per_device: Option<u64>,
    pub learned: Vec<MeasuredMemory>,
    pub load_times: Vec<LoadTime>,
    pub failures: u32,
    pub last_failure: Option<String>,
    pub cooling_until_at: Option<String>,
    pub load_ms_expected: Option<u64>,
    pub requests_total: Option<u64>,
    pub last_used_at: Option<String>,
    pub warnings: Vec<String>,
}

/// Weights that the pool fetches.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct WeightsView {
    pub from: String,
    pub here: bool,
    pub fetch: Option<FetchView>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct FetchView {
    pub bytes_done: u64,
    pub bytes_total: u64,
    pub percent: Option<f64>,
    pub words: String,
    pub left_ms: Option<u64>,
}

/// Measured memory of replicas on one kind of device.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct MeasuredMemory {
    pub kind: String,
    pub bytes_per_device: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct LoadTime {
    pub source: String,
    pub ms: u64,
}

/// An administrator's override of a model's settings.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct OverrideView {
    pub priority: Option<u32>,
    pub keep_hot_ms: Option<u64>,
    pub expires_at: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReplicaView {
    pub replica: String,
    pub state: LoadState,
    pub stage: Option<String>,
    pub percent: Option<f64>,
    /// Expected time until the load is done; 0 if it is overdue.
    pub expected_ms: Option<u64>,
    pub devices: Vec<Share>,
    pub in_flight: u64,
    pub ready_at: Option<String>,
    pub expires_at: Option<String>,
    /// End of the administrator's lease on the replica.
    pub leased_until_at: Option<String>,
    pub measured_bytes: Option<u64>,
    pub pid: Option<u64>,
    /// The processes of a replica that spans several nodes, by rank.
    pub members: Vec<MemberView>,
    pub reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct MemberView {
    pub node: String,
    pub pid: Option<u64>,
    pub has_ended: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeviceList {
    pub provider: Option<String>,
    pub devices: Vec<DeviceView>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeviceView {
    pub device: String,
    pub name: Option<String>,
    pub node: Option<String>,
    pub unified: bool,
    pub mps: bool,
    pub total_bytes: u64,
    pub headroom_bytes: Option<u64>,
    pub foreign_bytes: Option<u64>,
    pub reserved_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
    pub used_bytes: Option<u64>,
    pub utilisation_percent: Option<f64>,
    pub temperature_celsius: Option<f64>,
    pub excess_bytes: Option<u64>,
    pub settling_bytes: Option<u64>,
    pub orphaned_bytes: Option<u64>,
    pub owners: Vec<Owner>,
    pub cordon: Option<Cordon>,
    pub read_at: Option<String>,
    pub stale: Option<String>,
}

/// A device's cordon.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Cordon {
    pub reason: String,
    pub since_at: Option<String>,
    pub until_at: Option<String>,
    pub failed: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CordonResponse {
    pub device: String,
    pub cordon: Option<Cordon>,
    pub left: Vec<String>,
    pub draining: Vec<LeavingReplica>,
    pub cut_at: Option<String>,
}

/// A replica that leaves a cordoned device.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct LeavingReplica {
    pub replica: String,
    pub model: String,
    pub state: LoadState,
    pub in_flight: u64,
    pub bytes: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeList {
    pub nodes: Vec<NodeView>,
    pub requested: Vec<RequestedNode>,
    pub shapes: Vec<NodeShapeView>,
    pub spent: Vec<NodeUseView>,
    pub tokens: Vec<NodeTokenView>,
}

/// A node that was requested and has not joined yet.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RequestedNode {
    pub shape: String,
    pub model: String,
    pub set: Option<u64>,
    pub since: String,
    pub reason: String,
    pub starts_at: Option<String>,
    pub cost_per_hour: Option<f64>,
}

/// A node size of the cluster.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeShapeView {
    pub shape: String,
    pub gpus: u32,
    pub bytes_per_gpu: u64,
    pub cost_per_hour: Option<f64>,
    pub held: u32,
    pub max_nodes: Option<u32>,
    pub unavailable: Option<String>,
    pub retry_at: Option<String>,
}

/// The use of requested nodes in a day or a month.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeUseView {
    pub period: String,
    pub gpu_hours: f64,
    pub cost: f64,
    pub gpu_hours_max: Option<f64>,
    pub cost_max: Option<f64>,
}

/// A machine of the pool.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeView {
    pub node: String,
    pub state: String,
    pub since: Option<String>,
    pub reason: Option<String>,
    pub devices: Vec<String>,
    pub replicas: Vec<String>,
    pub ends_at: Option<String>,
}

/// A join token for nodes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodeTokenView {
    pub id: String,
    pub prefix: String,
    pub expires_at: String,
    pub used_at: Option<String>,
    pub state: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NewNodeToken {
    pub id: String,
    pub token: String,
    pub expires_at: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct DrainNodeResponse {
    pub node: String,
    pub left: Vec<String>,
    pub draining: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct UncordonResponse {
    pub device: String,
}

/// A replica that holds memory of a device.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Owner {
    pub replica: String,
    pub model: String,
    pub bytes: u64,
    pub state: Option<LoadState>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct QueueView {
    pub waiting: Vec<Waiter>,
    pub orders: Vec<OrderView>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Waiter {
    pub ticket: Value,
    pub model: String,
    pub key: Option<String>,
    pub group: Option<String>,
    pub position: Option<u64>,
    pub waited_ms: Option<u64>,
    pub expected_ms: Option<u64>,
    pub expected_ms_min: Option<u64>,
    pub expected_ms_max: Option<u64>,
    pub stage: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct OrderView {
    pub order: String,
    pub what: String,
    pub model: Option<String>,
    pub since_ms: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CleanupResponse {
    pub replicas: Vec<CleanupReplica>,
    pub unloaded: Vec<String>,
    /// Always-hot models load only on request until this time.
    pub reopen_at: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct CleanupReplica {
    pub replica: String,
    pub model: String,
    pub priority: Option<u32>,
    pub in_flight: u64,
    pub bytes: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReloadResponse {
    pub applied: Vec<ChangedKey>,
    pub needs_restart: Vec<ChangedKey>,
    pub added: Vec<String>,
    pub changed: Vec<String>,
    pub removed: Vec<String>,
    pub broken: Vec<BrokenFile>,
    pub warnings: Vec<String>,
}

/// A configuration key whose value changed.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ChangedKey {
    pub key: String,
    pub from: Value,
    pub to: Value,
    pub note: Option<String>,
}

/// A model file that the server cannot use.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct BrokenFile {
    pub model: String,
    pub error: String,
    pub serves_last_good: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Leaderboard {
    pub models: Vec<RatedModel>,
}

/// A model with votes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct RatedModel {
    pub rank: u64,
    pub model: String,
    pub rating: f64,
    pub wins: u64,
    pub losses: u64,
    pub ties: u64,
    pub win_ratio: u64,
    pub voted_at: Option<String>,
}
