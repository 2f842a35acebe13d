//! The input of a replay: devices, models, limits, and the requests one by one. Plain data.

use alloc::vec::Vec;

use pool::{
    DeviceId, DeviceReading, HostReading, KeyId, Limits, ModelId, ModelSpec, NodeId, Priority,
    Span, Time,
};

/// One request of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Never earlier than the arrival before it.
    pub at: Time,
    /// An index into `Scenario::models`.
    pub model: ModelId,
    pub key: KeyId,
    /// How long it occupies its seat once it has one.
    pub service: Span,
}

/// Everything but the requests. Load times are `ModelSpec::reload`: in a replay a load takes the expected time.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub devices: Vec<(DeviceId, DeviceReading)>,
    /// The host memory for sleepers on each node; empty: no sleepers.
    pub hosts: Vec<(NodeId, HostReading)>,
    /// In the order of their ids, which count from 0.
    pub models: Vec<ModelSpec>,
    pub limits: Limits,
    /// Between SIGTERM and the memory being free.
    pub stop_takes: Span,
    /// Cleanups and mornings, as times of the replay; empty: none.
    pub evenings: Vec<Time>,
    pub mornings: Vec<Time>,
    /// Changes of priority at a time.
    pub sets: Vec<(Time, ModelId, Priority)>,
}
