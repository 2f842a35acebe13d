//! Streams of events and log lines: how often they say that they are alive, and when they end.

use crate::state::App;

/// How often a stream without news sends a comment, and looks whether it should end.
pub const HEARTBEAT_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// The pool is shutting down and empty: there will be no more events.
pub fn is_over(app: &App) -> bool {
    let snapshot = app.handle.snapshot();
    snapshot.pool.closing
        && snapshot
            .pool
            .models
            .iter()
            .all(|model| model.replicas.is_empty())
}
