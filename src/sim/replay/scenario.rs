//! The input of a replay: devices, models, limits, and the individual requests. Plain data.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use pool::{
    DeviceId, DeviceReading, Groups, HostReading, KeyId, Limits, ModelId, ModelSpec, NodeId,
    Priority, Span, Time,
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

/// A batch of equal requests for one model, below all individual requests (B4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchArrival {
    /// Never earlier than the batch before it.
    pub at: Time,
    pub model: ModelId,
    pub lines: u64,
    /// The time each request occupies a seat.
    pub service: Span,
    /// The completion window.
    pub window: Span,
}

/// The times at which loads for batches may evict idle models of priority 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchTimes {
    #[default]
    Always,
    Never,
    /// Each day from this time after midnight, for this time.
    Daily {
        from: Span,
        length: Span,
    },
}

/// Everything except the requests. Load times are `ModelSpec::reload`: a load takes exactly the expected time in a replay.
#[derive(Clone, Debug, Default)]
pub struct Scenario {
    pub devices: Vec<(DeviceId, DeviceReading)>,
    /// The host memory for sleepers on each node; empty if nothing sleeps.
    pub hosts: Vec<(NodeId, HostReading)>,
    /// The groups of keys (F1); none by default.
    pub groups: Groups,
    /// The models in the order of their ids, which count from 0.
    pub models: Vec<ModelSpec>,
    pub limits: Limits,
    /// The time between SIGTERM and the memory being free.
    pub stop_takes: Span,
    /// Measured times of falling asleep. Every other model takes as long as for waking.
    pub park_times: BTreeMap<ModelId, Span>,
    /// The replay begins between a cleanup and the morning after it: no model is always-hot yet (E2).
    pub starts_at_night: bool,
    /// Cleanups, as times of the replay. Each drains for `Limits::unload_drain`.
    pub evenings: Vec<Time>,
    /// A cleanup leaves replicas with requests (`evening.mode: idle`).
    pub cleanups_spare_busy: bool,
    /// Reopenings. Without any, the pool reopens as soon as a cleanup has ended.
    pub mornings: Vec<Time>,
    /// Changes of priority at a time.
    pub sets: Vec<(Time, ModelId, Priority)>,
    pub batches: Vec<BatchArrival>,
    pub batch_times: BatchTimes,
    /// Outside of these times, loads evict before a deadline that requires it (B7).
    pub deadline_evicts: bool,
}
