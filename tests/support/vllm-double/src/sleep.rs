//! Sleep state: memory on the GPUs, and the copy of the weights in host memory. As in vLLM, the routes exist only with
//! `--enable-sleep-mode` and in development mode.

use std::sync::Mutex;

use crate::gpu::Gpu;

/// Scale of the copy relative to the weights: it is actually allocated, and small enough for a test.
const SCALE: u64 = 1024;

#[derive(Default)]
pub struct SleepState {
    state: Mutex<SleepPhase>,
}

#[derive(Default)]
struct SleepPhase {
    level: u8,
    is_asleep: bool,
    /// Level 1 keeps the weights here.
    copy: Vec<u8>,
    /// Level 2: true once the weights have been read again.
    has_weights: bool,
}

impl SleepState {
    pub fn is_asleep(&self) -> bool {
        self.state.lock().map_or(true, |state| state.is_asleep)
    }

    /// Returns true if requests cannot be computed because the weights were dropped and not read again.
    pub fn lacks_weights(&self) -> bool {
        self.state
            .lock()
            .map_or(true, |state| state.level == 2 && !state.has_weights)
    }

    pub fn sleep(&self, level: u8, gpu: &Gpu) -> Result<(), String> {
        let mut state = self.state.lock().map_err(|error| error.to_string())?;
        if state.is_asleep || level == 0 {
            return Ok(());
        }
        if level == 1 {
            // Written to, which actually allocates the memory.
            state.copy = vec![1; usize::try_from(gpu.weights() / SCALE).unwrap_or(0)];
        }
        gpu.fall_asleep()?;
        state.is_asleep = true;
        state.level = level;
        state.has_weights = level == 1;
        Ok(())
    }

    /// Wakes everything, or the named part. Returns true if it is fully awake.
    pub fn wake(&self, tags: &[String], gpu: &Gpu) -> Result<bool, String> {
        let mut state = self.state.lock().map_err(|error| error.to_string())?;
        if !state.is_asleep {
            return Ok(true);
        }
        let whole = tags.is_empty() || tags.iter().any(|tag| tag == "kv_cache");
        gpu.wake(whole)?;
        if whole {
            state.is_asleep = false;
            state.copy = Vec::new();
        }
        Ok(whole)
    }

    /// `reload_weights`.
    pub fn reload(&self) {
        if let Ok(mut state) = self.state.lock() {
            state.has_weights = true;
        }
    }
}
