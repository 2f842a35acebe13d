//! What a replay is given: devices, models, limits, and the requests one by one. Plain data.

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
    /// An index into `Scene::models`.
    pub model: ModelId,
    pub key: KeyId,
    /// How long it occupies its seat once it has one.
    pub service: Span,
}

/// Everything but the requests. Load times are `ModelSpec::reload`: in a replay what is expected
/// of a load is what it takes.
#[derive(Clone, Debug)]
pub struct Scene {
    pub devices: Vec<(DeviceId, DeviceReading)>,
    /// What may sleep in each node's own memory; empty: nothing.
    pub hosts: Vec<(NodeId, HostReading)>,
    /// In the order of their ids, which count from 0.
    pub models: Vec<ModelSpec>,
    pub limits: Limits,
    /// Between SIGTERM and the memory being free.
    pub stop_takes: Span,
    /// Cleanup and morning, as moments of the replay; empty: never.
    pub evenings: Vec<Time>,
    pub mornings: Vec<Time>,
    /// Priorities that change at a moment.
    pub sets: Vec<(Time, ModelId, Priority)>,
}
