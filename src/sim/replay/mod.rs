//! Replays of workloads: the production core, or a published policy of a comparable system, under a virtual clock with the same
//! devices, models, load times and requests. Pure: the caller passes in the arrivals and gets the report.

mod accounts;
mod baseline;
mod baselines;
mod batch_bound;
mod batch_rules;
#[cfg(test)]
mod batch_tests;
mod batches;
mod bound;
#[cfg(test)]
mod bound_tests;
mod clients;
mod engines;
mod equals;
mod evening;
mod forecasts;
mod report;
mod rule;
mod run;
mod scenario;
#[cfg(test)]
mod sleep_tests;
mod spread;
mod stay;
#[cfg(test)]
mod target_tests;
#[cfg(test)]
mod tests;

pub use baseline::run_baseline;
pub use baselines::{
    BASELINES, Fifo, LlamaCppRouter, LlamaSwap, Lru, ModelMesh, Ncsa, Offline, Ollama,
};
pub use batch_bound::least_batch_loads;
pub use bound::{Bound, bound};
pub use clients::{Clients, run_clients};
pub use report::{
    Attainment, BatchReport, BatchResult, ForecastReport, Holding, KEYS_MAX, Report, Tally, Waits,
};
pub use rule::{Facts, Queued, Resident, Rule, Wish};
pub use run::{Options, Response, run};
pub use scenario::{Arrival, BatchArrival, BatchTimes, Scenario};
