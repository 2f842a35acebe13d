//! Replays of workloads: the production core, or a peer's published policy, under a virtual clock with the same
//! devices, models, load times and requests. Pure: the caller passes in the arrivals and gets the report.

mod books;
mod bound;
#[cfg(test)]
mod bound_tests;
mod clients;
mod engines;
mod report;
mod rival;
mod rule;
mod rules;
mod run;
mod scene;
mod spread;
#[cfg(test)]
mod tests;

pub use bound::{Bound, bound};
pub use clients::{Clients, run_clients};
pub use report::{Holding, Report, Tally, Waits};
pub use rival::run_rival;
pub use rule::{Facts, Queued, Resident, Rule, Wish};
pub use rules::{Fifo, LlamaCppRouter, LlamaSwap, Lru, ModelMesh, Ncsa, Offline, Ollama, RIVALS};
pub use run::{Options, run};
pub use scene::{Arrival, Scene};
