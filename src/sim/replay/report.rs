//! The results of a replay. Plain data with its sums; `simulate` prints it.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::scenario::BatchArrival;
use pool::{BatchEnd, Bytes, DeviceId, KeyId, ModelId, Priority, Record, ShadowCosts, Span, Time};

/// Waits of requests, from arrival to seat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    pub mean: Span,
    pub p50: Span,
    pub p95: Span,
    pub p99: Span,
    pub longest: Span,
}

/// The requests for models of a priority that has a target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attainment {
    pub target: Span,
    /// Requests that got their seat in time.
    pub met: u64,
    /// Requests that got it later, or not at all.
    pub missed: u64,
}

/// The counts of a model, or of all models.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub requests: u64,
    pub served: u64,
    /// Requests refused for reasons other than a timeout, by the refusal's name.
    pub refused: BTreeMap<String, u64>,
    pub timed_out: u64,
    /// Requests that had to wait for a load.
    pub cold: u64,
    /// Loads, including wakes of sleepers.
    pub loads: u64,
    /// Wakes of sleepers.
    pub wakes: u64,
    /// Total time of loads.
    pub reload: Span,
    /// Evictions by the reason's name: `preempted`, `turn_ended`, `equal_idle`, `keep_hot`, `cleanup`, …; `sleep` if the engine
    /// fell asleep instead of ending.
    pub evictions: BTreeMap<String, u64>,
    pub waits: Waits,
    /// GiB·seconds held by replicas, in total and without a request inside.
    pub held_gib_seconds: u64,
    pub idle_gib_seconds: u64,
}

/// The keys whose waits are kept. Later ones are not listed.
pub const KEYS_MAX: usize = 256;

/// A replica's stay on a device, for the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    pub device: DeviceId,
    pub model: ModelId,
    pub bytes: Bytes,
    pub from: Time,
    /// The time it became ready, if it ever did.
    pub ready: Option<Time>,
    pub to: Time,
    /// The reason why it left.
    pub reason: String,
    /// The times of a minute or longer in which it was idle.
    pub idle: Vec<(Time, Time)>,
}

/// Forecasts of waits of a second or longer, compared with the waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForecastReport {
    pub waits: u64,
    /// Forecasts within a fifth of the wait.
    pub precise: u64,
    /// Forecasts with a range.
    pub ranges: u64,
    /// Waits within the range of their forecast, and precise forecasts without a range.
    pub right: u64,
    /// Percentiles of forecasts divided by waits, in thousandths.
    pub ratio_p10: u32,
    pub ratio_p50: u32,
    pub ratio_p90: u32,
}

/// A batch and its forecasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchResult {
    pub arrival: BatchArrival,
    /// The end of its last request; `None` if some expired.
    pub ended: Option<Time>,
    /// The requests that have not run.
    pub left: u64,
    /// The forecast when it was created.
    pub forecast: BatchEnd,
    /// The time of the first forecast that it holds its window.
    pub promised: Option<Time>,
    /// The time at which a miss was first expected.
    pub warned: Option<Time>,
}

impl BatchResult {
    pub fn deadline(&self) -> Time {
        self.arrival.at + self.arrival.window
    }

    /// The first quarter of its window has a forecast that it holds the window.
    pub fn is_promised_early(&self) -> bool {
        let until = self.arrival.at + Span(self.arrival.window.0 / 4);
        self.promised.is_some_and(|at| at <= until)
    }

    /// The forecast at its creation says that it holds its window.
    pub fn will_hold(&self) -> Option<bool> {
        self.forecast.will_hold(self.deadline())
    }
}

/// The batches of a replay, and the loads for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchReport {
    pub batches: Vec<BatchResult>,
    /// Loads for batches.
    pub loads: u64,
    /// The loads that no order of batches avoids: the first load of each model with open requests, and another for each
    /// replica that left for something other than batches before they had ended.
    pub forced: u64,
    /// Evictions of replicas that served only batches.
    pub evicted: u64,
}

/// The complete result of a policy on a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// `model-pool`, `lru`, `fifo`, `llama-swap`, …
    pub policy: String,
    pub from: Time,
    pub to: Time,
    pub all: Tally,
    pub by_model: BTreeMap<ModelId, Tally>,
    /// GPU·seconds held by any replica, and held by idle ones only.
    pub device_seconds_held: u64,
    pub device_seconds_idle: u64,
    /// GPU·seconds without any replica, from the first request to the end.
    pub device_seconds_empty: u64,
    /// GPU·seconds with nothing but sleepers that keep a part of their memory on the device.
    pub device_seconds_asleep: u64,
    /// GiB·seconds of host memory held by sleepers.
    pub host_gib_seconds: u64,
    /// Waits of all requests; an unserved one counts with its full queue timeout.
    pub waits_of_all: Waits,
    /// Waits by the priority of the catalogue, and by the key of the request for the first `KEYS_MAX` keys.
    pub by_priority: BTreeMap<Priority, Waits>,
    pub by_key: BTreeMap<KeyId, Waits>,
    /// Requests by whether they met the target of the priority of the catalogue (`pool.targets`).
    pub targets: BTreeMap<Priority, Attainment>,
    /// Evictions of a strictly higher priority for a lower one (must be 0 for the production core).
    pub inversions: u64,
    /// Requests cut in flight.
    pub cut: u64,
    /// Kept only on request: it grows with the number of loads.
    pub holdings: Vec<Holding>,
    /// Kept only on request: the history of the production core.
    pub records: Vec<Record>,
    /// The mean wait of the requests that arrived in each interval, for the chart: (interval start, requests, mean wait).
    pub wait_curve: Vec<(Time, u64, Span)>,
    /// The costs of the two eviction rules, as the production core simulates them.
    pub shadows: Option<ShadowCosts>,
    /// The forecasts of waits; `None` unless requested.
    pub forecasts: Option<ForecastReport>,
    /// The batches; `None` without any.
    pub batches: Option<BatchReport>,
    /// Findings of the invariant checker, if it ran; empty if all is well.
    pub broken: Vec<String>,
    /// The number of devices.
    pub devices: u64,
}

impl Report {
    pub fn device_seconds_in_all(&self) -> u64 {
        self.to.since(self.from).0 / 1000 * self.devices
    }
}
