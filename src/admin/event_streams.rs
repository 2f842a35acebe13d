//! Keep-alives and the end of event and log streams.

use std::future::Future;

use futures_util::stream::TakeUntil;
use futures_util::{Stream, StreamExt};

use gateway::auth::Reader;
use gateway::state::App;

/// Interval of comments on a silent stream, and of checks whether it should end.
pub(crate) const HEARTBEAT_EVERY: std::time::Duration = std::time::Duration::from_secs(1);

/// Returns true once the pool has shut down and is empty, so no more events follow.
pub(crate) fn is_over(app: &App) -> bool {
    let snapshot = app.handle.snapshot();
    snapshot.pool.closing
        && snapshot
            .pool
            .models
            .iter()
            .all(|model| model.replicas.is_empty())
}

/// Ends the stream when the session, key or token that opened it is no longer valid.
pub(crate) fn while_allowed<S: Stream>(
    app: &App,
    reader: Reader,
    stream: S,
) -> TakeUntil<S, impl Future<Output = ()> + use<S>> {
    let app = app.clone();
    stream.take_until(async move {
        while reader.still_counts(&app) {
            tokio::time::sleep(HEARTBEAT_EVERY).await;
        }
    })
}
