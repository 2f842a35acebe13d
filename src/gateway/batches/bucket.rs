//! The bucket of batches (`batch.bucket`), for the runner: puts results before a batch ends, fetches requests that this machine does
//! not have, removes local copies that a bucket has, and deletes unused objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::result_files::{KINDS, PlacedResults, ResultsPlace, length, stored_as};
use super::runner::Runner;
use super::transfers::{TransferState, pause};
use crate::open_batches::{BatchRecord, Batches, ObjectError};
use config::BucketUri;
use pool::Time;

/// Puts the files with the results of a batch into a bucket.
async fn put_results(
    batches: &Batches,
    id: &str,
    uri: &BucketUri,
) -> Result<PlacedResults, ObjectError> {
    let mut objects = Vec::new();
    for kind in KINDS {
        if length(batches, id, kind) > 0 {
            let name = stored_as(id, kind);
            objects.push(batches.objects.put(&name, uri).await?);
        }
    }
    Ok(PlacedResults::new(uri.to_string(), objects))
}

impl Runner {
    /// The place of the results of a batch, which has ended. Puts them into the bucket, if there is one.
    pub fn place_results(&mut self, record: &BatchRecord) -> ResultsPlace {
        let batches = Arc::clone(&self.app.batches);
        let Some(uri) = batches.objects.target() else {
            self.result_puts.forget(&record.id);
            return ResultsPlace::Disk;
        };
        let id = record.id.clone();
        let begin = || async move {
            let put = put_results(&batches, &id, &uri).await;
            batches.changed.notify_one();
            put
        };
        let now = self.app.handle.clock().now();
        let state = self
            .result_puts
            .poll(&record.id, &record.holder, now, begin);
        match state {
            TransferState::Done(placed) => ResultsPlace::Bucket(placed.bucket),
            TransferState::Pending | TransferState::Failed => ResultsPlace::Pending,
        }
    }

    /// Fetches the requests of a batch from their bucket. Returns false if no bucket has them.
    pub async fn fetch_requests(&mut self, record: &BatchRecord) -> bool {
        let batches = Arc::clone(&self.app.batches);
        let (holder, input) = (&record.holder, &record.state.input_file);
        let file = match batches.store.file(holder, input).await {
            Ok(Some(file)) if file.bucket.is_some() => file,
            Ok(_) => return false,
            Err(fault) => {
                tracing::warn!(batch = record.id, %fault, "the file of a batch cannot be found; trying again");
                return true;
            }
        };
        let key = file.stored_as.clone();
        let begin = || async move {
            let fetched = batches.objects.fetch(&file).await;
            batches.changed.notify_one();
            fetched.map(|_| ())
        };
        let now = self.app.handle.clock().now();
        let state = self.fetches.poll(&key, holder, now, begin);
        if state != TransferState::Pending {
            self.fetches.forget(&key);
        }
        // The next turn opens a file that has been fetched.
        state != TransferState::Failed
    }

    /// Shows the holders of open batches the failures of buckets.
    pub fn show_bucket_failures(&self) {
        self.app.batches.with_open(|open| {
            for (id, batch) in open {
                let puts = self.result_puts.failures(id);
                let fetches = self.fetches.failures(&batch.record.state.input_stored_as);
                batch.running.bucket_failure = if puts > 0 {
                    Some(format!(
                        "the results are complete, but the server's bucket does not take them ({puts} attempts failed); they are on disk, and the batch ends when the bucket has them; an administrator finds the reason in the server log"
                    ))
                } else if fetches > 0 {
                    Some(format!(
                        "the file of the batch cannot be read from the server's bucket ({fetches} attempts failed); the batch continues when it can be read; an administrator finds the reason in the server log"
                    ))
                } else {
                    None
                };
            }
        });
    }

    /// Removes the local copies of the files of a batch that has ended, as far as buckets have them.
    pub async fn remove_local_copies(&mut self, record: &BatchRecord, results: &ResultsPlace) {
        self.result_puts.forget(&record.id);
        let batches = &self.app.batches;
        if !matches!(results, ResultsPlace::Bucket(_)) {
            return;
        }
        for kind in KINDS {
            batches.remove(&stored_as(&record.id, kind)).await;
        }
        let state = &record.state;
        if batches.reads(&state.input_file) {
            return;
        }
        let input = batches.store.file(&record.holder, &state.input_file).await;
        if let Ok(Some(input)) = input
            && input.bucket.is_some()
        {
            batches.remove(&input.stored_as).await;
        }
    }

    /// Deletes objects of deleted files in the background: on request, if `is_due`, and again after a failure.
    pub fn delete_objects(&mut self, is_due: bool, tick: Time) {
        while let Some(ended) = self.deletions.try_join_next() {
            if ended.is_ok_and(|is_done| is_done) {
                self.failed_deletions = 0;
            } else {
                self.failed_deletions += 1;
                self.deletes_at = tick + pause(self.failed_deletions);
            }
        }
        if !self.deletions.is_empty() {
            return;
        }
        let batches = Arc::clone(&self.app.batches);
        let is_repeated = self.failed_deletions > 0 && self.deletes_at <= tick;
        if !batches.objects.take_deletion_request() && !is_due && !is_repeated {
            return;
        }
        let open: BTreeSet<String> = batches.with_open(|open| open.keys().cloned().collect());
        self.deletions
            .spawn(async move { batches.objects.delete_unused(&open).await });
    }
}
