//! Ctrl-C while the program waits for the server.

use tokio::signal::unix::{SignalKind, signal};

/// Ends with the next Ctrl-C. From the first call on, the signal does not end the program by itself.
pub async fn interrupted() {
    match signal(SignalKind::interrupt()) {
        Ok(mut signal) => {
            signal.recv().await;
        }
        Err(_) => std::future::pending().await,
    }
}
