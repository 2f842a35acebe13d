//! Streams of events and log lines: how often they say that they are alive, and when they end.

use std::future::Future;

use futures_util::stream::TakeUntil;
use futures_util::{Stream, StreamExt};

use crate::auth::Reader;
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

/// The stream, which ends when what opened it counts no more: a session, a key or a person's token.
pub fn while_allowed<S: Stream>(
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
