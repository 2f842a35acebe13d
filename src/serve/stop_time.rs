//! How long the service may take from SIGTERM to its end: a service manager that allows less kills it, and with it the requests
//! and engines that it waits for. `deploy/` and docs/operations.md allow this much.

use std::time::Duration;

use config::Config;
use pool::ModelSpec;

use super::CONNECTIONS_WITHIN;

/// The last writes to the store, and what a second signal would cut. An allowance: each write has its own limit, their number
/// has none.
const LAST_WRITES: Duration = Duration::from_secs(20);

/// With engines of the default grace period; a model file may set a longer one.
pub fn longest_stop(config: &Config) -> Duration {
    let drain = Duration::from_millis(config.unload_drain().0);
    let grace = Duration::from_millis(ModelSpec::default().stop_grace.0);
    let after_the_engines =
        controller::CLUSTER_WITHIN + CONNECTIONS_WITHIN + LAST_WRITES + telemetry::ENDS_WITHIN;
    // Of all engines an application of Ray Serve takes the longest.
    drain + grace + engine::APPLICATION_GONE_WITHIN + after_the_engines
}
