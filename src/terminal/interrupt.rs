//! Handles Ctrl-C while the program waits for the server.

use tokio::signal::unix::{SignalKind, signal};

/// Completes on the next Ctrl-C. After the first call, the signal no longer ends the program.
pub async fn interrupted() {
    match signal(SignalKind::interrupt()) {
        Ok(mut signal) => {
            signal.recv().await;
        }
        Err(_) => std::future::pending().await,
    }
}
