//! The health of a running engine: probes, activity, liveness, sleep, and the stages of a load.

mod activity;
pub(crate) mod frozen;
pub(crate) mod liveness;
mod parking;
pub(crate) mod probe;
mod stage;

pub use activity::{ActivityMeter, ActivityReport, Beat};
pub use liveness::{LivenessLimits, Watch};
pub use parking::{SleepBy, fall_asleep, run as run_command, wake};
pub use probe::{HealthResponse, probe};
pub use stage::Stage;
