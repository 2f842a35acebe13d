//! The deletion of expired files, of old records, and of objects in buckets that no file needs.

use super::runner::Runner;
use pool::{Span, Time};

/// Deletions of expired files in one turn.
const DELETED_PER_TURN: u32 = 128;
/// Expired files that are read together.
const PAGE: u32 = 32;
/// The interval at which expired files are looked for.
const EXPIRY_EVERY_MS: u64 = 60_000;

impl Runner {
    /// Deletes expired files and old records, once a minute.
    pub async fn forget(&mut self, now: Time) {
        let tick = self.app.handle.clock().now();
        let is_due = tick.since(self.forgot_at) >= Span(EXPIRY_EVERY_MS);
        self.delete_objects(is_due, tick);
        if !is_due {
            return;
        }
        self.forgot_at = tick;
        let batches = &self.app.batches;
        let keep = batches.config.get().batch.keep.0;
        let before = Time(now.0.saturating_sub(keep.0));
        if let Err(fault) = batches.store.forget_batches(before).await {
            tracing::debug!(%fault, "old batches cannot be deleted");
        }
        let (mut after, mut deleted) = (String::new(), 0);
        while deleted < DELETED_PER_TURN {
            let page = batches.store.expired_files(now, &after, PAGE).await;
            let page = page.unwrap_or_default();
            let Some(last) = page.last() else {
                return;
            };
            after.clone_from(&last.id);
            for file in page.iter().filter(|file| !batches.reads(&file.id)) {
                deleted += 1;
                if let Err(fault) = batches.delete(file).await {
                    tracing::warn!(file = file.id, %fault, "an expired file cannot be deleted");
                }
            }
        }
    }
}
