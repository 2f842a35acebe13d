//! The input of a replay: devices, models, limits, and the individual requests. Plain data.

use alloc::vec::Vec;

use pool::{
    DeviceId, DeviceReading, HostReading, KeyId, Limits, ModelId, ModelSpec, NodeId, Priority,
    Span, Time,
};

/// A request of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Never earlier than the arrival before it.
    pub at: Time,
    /// An index into `Scenario::models`.
    pub model: ModelId,
    pub key: KeyId,
    /// The time it occupies its seat once it has one.
    pub service: Span,
}

/// Everything except the requests. Load times are `ModelSpec::reload`: a load takes exactly the expected time in a replay.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub devices: Vec<(DeviceId, DeviceReading)>,
    /// The host memory for sleepers on each node; empty if nothing sleeps.
    pub hosts: Vec<(NodeId, HostReading)>,
    /// The models in the order of their ids, which count from 0.
    pub models: Vec<ModelSpec>,
    pub limits: Limits,
    /// The time between SIGTERM and the memory being free.
    pub stop_takes: Span,
    /// Cleanups and mornings, as times of the replay; empty: none.
    pub evenings: Vec<Time>,
    pub mornings: Vec<Time>,
    /// Changes of priority at a time.
    pub sets: Vec<(Time, ModelId, Priority)>,
}
