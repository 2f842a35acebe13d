//! How far a load is.

use crate::error::EngineError;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// How far a load is; written by the loading thread, read by `GET /health`.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    stage: AtomicU8,
    percent: AtomicU8,
    cancelled: AtomicBool,
}

const STAGES: [&str; 4] = ["config", "tokenizer", "weights", "warm-up"];
pub(crate) const CONFIG: u8 = 0;
pub(crate) const TOKENIZER: u8 = 1;
const WEIGHTS: u8 = 2;
pub(crate) const WARM_UP: u8 = 3;
/// Reading weights is nearly all of a load, so it takes these per cent of it.
pub(crate) const WEIGHTS_PERCENT: std::ops::Range<u8> = 5..95;

impl Progress {
    /// The stage's name and per cent of the whole load.
    pub fn read(&self) -> (&'static str, u8) {
        let stage = usize::from(self.stage.load(Ordering::Relaxed));
        (
            STAGES[stage.min(STAGES.len() - 1)],
            self.percent.load(Ordering::Relaxed),
        )
    }

    /// Makes the load end at its next step.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Bytes of weights that were read so far, of all.
    ///
    /// # Errors
    /// When the load was cancelled.
    pub fn weights(&self, done: u64, total: u64) -> Result<(), EngineError> {
        let span = u64::from(WEIGHTS_PERCENT.end - WEIGHTS_PERCENT.start);
        let share = (done * span).checked_div(total).unwrap_or(span).min(span);
        self.set(WEIGHTS, WEIGHTS_PERCENT.start + share as u8)
    }

    pub fn set(&self, stage: u8, percent: u8) -> Result<(), EngineError> {
        self.stage.store(stage, Ordering::Relaxed);
        self.percent.store(percent, Ordering::Relaxed);
        if self.cancelled.load(Ordering::Relaxed) {
            Err(EngineError::load("the engine was stopped meanwhile"))
        } else {
            Ok(())
        }
    }
}
