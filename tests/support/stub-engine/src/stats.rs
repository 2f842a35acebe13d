//! Request counters, shown by `GET /stats`. Every request ends exactly once: completed, or abandoned by its client.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

/// Completions only; health and other requests are not counted.
#[derive(Default)]
pub struct Stats {
    running: AtomicU64,
    completed: AtomicU64,
    abandoned: AtomicU64,
    /// Total tokens so far. The count stops when an abandoned request stops the work.
    tokens: AtomicU64,
}

impl Stats {
    pub fn to_json(&self) -> Value {
        let count = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
        json!({
            "running": count(&self.running),
            "completed": count(&self.completed),
            "abandoned": count(&self.abandoned),
            "tokens": count(&self.tokens),
        })
    }
}

/// A running request. Dropping it before completion counts it as abandoned.
pub struct RunningRequest {
    stats: Arc<Stats>,
    is_done: bool,
}

impl RunningRequest {
    pub fn begin(stats: &Arc<Stats>) -> RunningRequest {
        stats.running.fetch_add(1, Ordering::SeqCst);
        RunningRequest {
            stats: Arc::clone(stats),
            is_done: false,
        }
    }

    pub fn made_token(&self) {
        self.stats.tokens.fetch_add(1, Ordering::SeqCst);
    }

    pub fn done(&mut self) {
        self.is_done = true;
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.stats.running.fetch_sub(1, Ordering::SeqCst);
        let end = if self.is_done {
            &self.stats.completed
        } else {
            &self.stats.abandoned
        };
        end.fetch_add(1, Ordering::SeqCst);
    }
}
