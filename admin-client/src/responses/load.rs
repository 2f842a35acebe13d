//! The responses to plans, loads and unloads.

use serde::Deserialize;

/// The effect of a load, or the reasons for its refusal.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Plan {
    pub model: String,
    pub priority: Option<u32>,
    pub feasible: bool,
    pub already_loaded: bool,
    pub loading: Option<Loading>,
    pub reason: Option<String>,
    pub needs: Option<Needs>,
    pub placement: Vec<Share>,
    pub victims: Vec<Victim>,
    pub waits_for: Vec<String>,
    pub cost: Option<Cost>,
    pub candidates: Vec<Candidate>,
    pub expected_seconds: Option<f64>,
    pub virtual_choice: Option<VirtualChoice>,
}

/// The member that a virtual model takes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct VirtualChoice {
    pub name: String,
    pub kind: String,
    pub member: String,
    pub reason: String,
}

/// A load of the model that is already in progress.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Loading {
    pub replicas: u32,
    pub for_ms: u64,
    pub why: String,
}

/// The resources that one replica needs.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Needs {
    pub devices: u32,
    pub bytes_per_device: u64,
    pub source: Option<String>,
    /// The memory by place, for a model that is divided between GPUs and the host.
    pub by_place: Option<String>,
}

/// Memory on one device.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Share {
    pub device: String,
    pub bytes: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Victim {
    pub replica: String,
    pub model: String,
    pub priority: Option<u32>,
    pub busy: bool,
    pub bytes: u64,
    pub reload_ms: Option<u64>,
    pub reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Cost {
    pub highest_victim_priority: Option<u32>,
    pub busy_victims: u32,
    pub expected_reload_ms: Option<u64>,
    pub evicted_bytes: u64,
}

/// A candidate placement and the verdict on it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Candidate {
    pub place: String,
    pub verdict: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct LoadResponse {
    pub model: String,
    pub status: String,
    pub wanted_replicas: Option<u32>,
    pub ready_replicas: Vec<ReadyReplica>,
    pub evicted: Vec<Victim>,
    pub shortfall: Option<String>,
    /// Number of replicas that would fit on empty devices.
    pub fits_when_empty: Option<u32>,
    pub order: Option<String>,
    pub took_ms: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ReadyReplica {
    pub replica: String,
    pub devices: Vec<Share>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct UnloadResponse {
    pub model: String,
    pub unloaded: Vec<String>,
    pub took_ms: Option<u64>,
}
