//! The maximum time from SIGTERM to the end of the service. A service manager that allows less kills it, with the requests and
//! engines that it waits for. `deploy/` and docs/guides/operations.md allow this much.

use std::time::Duration;

use config::Config;
use pool::ModelSpec;

/// Time limit for connections to finish after the pool has drained.
pub(super) const CONNECTIONS_WITHIN: Duration = Duration::from_secs(5);
/// Time limit for the remaining writes of requests, however many there are, and for closing the store.
const LAST_WRITES_WITHIN: Duration = Duration::from_secs(20);

/// Assumes engines with the default grace period. A model file may set a longer one.
pub fn longest_stop(config: &Config) -> Duration {
    let drain = Duration::from_millis(config.unload_drain().0);
    let grace = Duration::from_millis(ModelSpec::default().stop_grace.0);
    let of_the_loop = controller::CLUSTER_WITHIN + controller::KEEPER_WITHIN;
    let of_requests = CONNECTIONS_WITHIN + LAST_WRITES_WITHIN + telemetry::ENDS_WITHIN;
    // Of all engines, a Ray Serve application takes the longest.
    drain + grace + engine::APPLICATION_GONE_WITHIN + of_the_loop + of_requests
}

/// Does the last writes within a time limit: a store that does not respond must not delay the end until the service manager kills
/// the process.
pub(super) async fn last_writes(work: impl Future<Output = ()>) {
    as_far_as_in_time(LAST_WRITES_WITHIN, work).await;
}

async fn as_far_as_in_time(within: Duration, work: impl Future<Output = ()>) {
    if tokio::time::timeout(within, work).await.is_err() {
        tracing::error!(
            "the last writes took longer than {within:?}: usage of keys, totals of tokens and stored responses may be lost"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn waiting_for_final_writes_is_limited_in_time() {
        as_far_as_in_time(Duration::from_millis(1), std::future::pending()).await;
    }
}
