//! Bounds the memory of images whose requests wait or run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Maximum size of resized images that exist at the same time. The images of any single request fit.
pub(super) const HELD_BYTES_MAX: u64 = 256 * 1024 * 1024;

/// Counts the bytes of all resized images.
#[derive(Debug, Default)]
pub(super) struct HeldBytes(AtomicU64);

/// A part of the bytes, returned when dropped.
#[derive(Debug)]
pub(super) struct HeldPart {
    all: Arc<HeldBytes>,
    bytes: u64,
}

impl HeldBytes {
    /// Reserves `bytes`, or returns the number of bytes that others hold.
    pub fn take(self: &Arc<Self>, bytes: u64) -> Result<HeldPart, u64> {
        let add = |held: u64| {
            let held = held.saturating_add(bytes);
            (held <= HELD_BYTES_MAX).then_some(held)
        };
        self.0.fetch_update(Relaxed, Relaxed, add)?;
        Ok(HeldPart {
            all: Arc::clone(self),
            bytes,
        })
    }
}

impl Drop for HeldPart {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.bytes, Relaxed);
    }
}
