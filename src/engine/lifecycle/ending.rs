//! Ends an engine through its guardian: SIGTERM, the grace period, SIGKILL.

use std::time::Duration;

use tokio::time::timeout;

use crate::guardians::{Guard, GuardianEnd};

/// Time limit for a dead engine to end, before its waiting requests are released.
const DEAD_TIMEOUT: Duration = Duration::from_secs(2);
/// A guardian that has not sent SIGKILL this long after the grace period no longer works.
const GUARDIAN_TIMEOUT: Duration = Duration::from_secs(2);
/// A killed process that takes longer hangs in a driver. The administrator is warned.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends SIGTERM to the group, waits for the grace period, then sends SIGKILL to the group. Without a grace period, sends only
/// SIGKILL.
pub(super) async fn end_engine(guard: &mut Guard, grace: Duration) -> GuardianEnd {
    let leader = guard.group.leader.pid;
    guard.stop(grace).await;
    if !grace.is_zero() {
        if let Ok(how) = timeout(grace, guard.ended()).await {
            return how;
        }
        tracing::warn!(
            leader,
            grace_seconds = grace.as_secs_f64(),
            "an engine did not end on SIGTERM and is killed"
        );
    }
    if let Ok(how) = timeout(GUARDIAN_TIMEOUT, guard.ended()).await {
        return how;
    }
    guard.end_if_frozen();
    loop {
        if let Ok(how) = timeout(KILL_TIMEOUT, guard.ended()).await {
            return how;
        }
        tracing::error!(
            leader,
            "an engine did not end on SIGKILL; a device driver may hang"
        );
    }
}

/// Sends SIGKILL to all processes, which also ends a stopped process. Calls `lingers` if that takes long.
pub(super) async fn end_dead(guard: &mut Guard, lingers: impl FnOnce()) -> GuardianEnd {
    guard.stop(Duration::ZERO).await;
    if let Ok(how) = timeout(DEAD_TIMEOUT, guard.ended()).await {
        return how;
    }
    lingers();
    end_engine(guard, Duration::ZERO).await
}
