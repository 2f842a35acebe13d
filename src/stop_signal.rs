//! The signals that end the program.

use tokio::signal::unix::{SignalKind, signal};

/// Completes at SIGTERM or Ctrl-C (D2).
pub async fn stop_signal() {
    let (Ok(mut terminate), Ok(mut interrupt)) = (
        signal(SignalKind::terminate()),
        signal(SignalKind::interrupt()),
    ) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}
