//! The state that readers see, replaced atomically: the snapshot, fetches in progress, the stages of loads, and the load path's
//! verdict.

pub(crate) mod device_facts;
mod fetches;
mod load_timeline;
pub(crate) mod remote_device;
pub(crate) mod snapshot;
mod wait_forecasts;
mod watch;

pub use device_facts::{facts_of, may_use, restriction, size_of};
pub use fetches::FetchFacts;
pub(crate) use fetches::Fetches;
pub use load_timeline::{LoadTimeline, LoadTimes};
pub(crate) use remote_device::REMOTE_DEVICE;
pub use snapshot::{
    DeviceSnapshot, DeviceTime, LoadStage, MemberFacts, ModelFacts, NodeFacts, NodeUse,
    ProcessFacts, Snapshot, Staleness,
};
pub use wait_forecasts::{ComparedWaits, RATIO_BOUNDS, WaitForecasts};
pub use watch::{Finding, LoadPath};
pub(crate) use watch::{Observation, ReplicaSample, ServableReplica, Watchdog, WatchedState};
