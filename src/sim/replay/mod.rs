//! Replays of workloads: the production core, or a peer's published policy, under a virtual clock
//! with the same devices, models, load times and requests. Pure: whoever reads a file or draws a
//! workload hands the arrivals in, and takes the report out.

mod report;
mod scene;

pub use report::{Holding, Report, Tally, Waits};
pub use scene::{Arrival, Scene};
