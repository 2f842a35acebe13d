//! The progress of long replays, on a terminal alone.

use std::io::{IsTerminal, Write};

/// Shows on a terminal how far a replay is.
pub(crate) fn progress(policy: &str, done: u64, day: f64) {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let _ = write!(out, "\r{policy}: {done} requests, day {day:.1}   ");
        let _ = out.flush();
    }
}

pub(crate) fn clear_progress() {
    let mut out = std::io::stderr();
    if out.is_terminal() {
        let _ = write!(out, "\r{:60}\r", "");
    }
}
