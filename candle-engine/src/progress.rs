//! The progress of loading a model.

use crate::error::EngineError;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// Loading progress; written by the loading thread, read by `GET /health`.
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
/// Share of the progress for reading weights, which takes nearly all of the time, in per cent.
pub(crate) const WEIGHTS_PERCENT: std::ops::Range<u8> = 5..95;

impl Progress {
    /// Returns the name of the stage, and the overall progress in per cent.
    pub fn read(&self) -> (&'static str, u8) {
        let stage = usize::from(self.stage.load(Ordering::Relaxed));
        (
            STAGES[stage.min(STAGES.len() - 1)],
            self.percent.load(Ordering::Relaxed),
        )
    }

    /// Cancels the load, which ends at its next step.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Reports the bytes of weights read so far, and the total.
    ///
    /// # Errors
    /// If the load was cancelled.
    pub fn weights(&self, done: u64, total: u64) -> Result<(), EngineError> {
        let span = u64::from(WEIGHTS_PERCENT.end - WEIGHTS_PERCENT.start);
        let share = (done * span).checked_div(total).unwrap_or(span).min(span);
        self.set(WEIGHTS, WEIGHTS_PERCENT.start + share as u8)
    }

    pub fn set(&self, stage: u8, percent: u8) -> Result<(), EngineError> {
        self.stage.store(stage, Ordering::Relaxed);
        self.percent.store(percent, Ordering::Relaxed);
        if self.cancelled.load(Ordering::Relaxed) {
            Err(EngineError::load("the engine was stopped while loading"))
        } else {
            Ok(())
        }
    }
}
