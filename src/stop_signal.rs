//! The signals that end the program.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Mutex;

/// SIGTERM and Ctrl-C (D2). A signal that arrives between two calls of `next` is not lost.
pub struct StopSignals(Mutex<(Signal, Signal)>);

impl StopSignals {
    /// Handles the signals from now on.
    ///
    /// # Errors
    /// The system refuses a handler.
    pub fn new() -> io::Result<StopSignals> {
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        Ok(StopSignals(Mutex::new((terminate, interrupt))))
    }

    /// Completes at the next signal.
    pub async fn next(&self) {
        let mut signals = self.0.lock().await;
        let (terminate, interrupt) = &mut *signals;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    }
}

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
