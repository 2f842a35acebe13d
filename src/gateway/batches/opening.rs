//! Opens the files of batches that are next, and closes the files of batches that cannot run, because open files are limited.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;

use super::finish;
use super::job::Job;
use super::runner::Runner;
use crate::open_batches::{BatchRecord, Status};
use pool::Span;

/// Batches with open files. Each has five.
const OPEN_MAX: usize = 256;
/// Batches with open files in addition, because they end.
const ENDING_MAX: usize = 16;
/// Of one holder.
const OPEN_PER_HOLDER: usize = 32;
/// The time for which others go before a batch of which nothing could run.
const REST: Span = Span::from_secs(60);

impl Runner {
    /// Opens batches that are next, within the limits of open files.
    pub async fn open_some(&mut self, records: &[BatchRecord]) {
        let mut of_holder: BTreeMap<&str, usize> = BTreeMap::new();
        let now = self.app.handle.clock().wall();
        let is_ending = |record: &&BatchRecord| {
            record.state.status != Status::InProgress || record.state.deadline <= now.0
        };
        // Batches that end go first, because they need no room.
        let ending = records.iter().filter(is_ending);
        let others = records.iter().filter(|record| !is_ending(record));
        for record in ending {
            if self.is_fetched(record) || self.open_count() < OPEN_MAX + ENDING_MAX {
                self.open(record).await;
            }
        }
        let tick = self.app.handle.clock().now();
        self.resting.retain(|_, until| *until > tick);
        let (resting, first): (Vec<_>, Vec<_>) = others
            .filter(|record| !record.state.is_paused)
            .partition(|record| self.resting.contains_key(&record.id));
        for record in first.into_iter().chain(resting) {
            let count = of_holder.entry(&record.holder).or_default();
            let has_room = *count < OPEN_PER_HOLDER && self.open_count() < OPEN_MAX;
            if has_room || self.is_fetched(record) {
                self.open(record).await;
            }
            let is_open = self.jobs.contains_key(&record.id) || self.is_fetched(record);
            *count += usize::from(is_open);
        }
    }

    /// Batches with open files, and files that come from a bucket to be opened.
    fn open_count(&self) -> usize {
        self.jobs.len() + self.fetches.len()
    }

    /// Returns true if the requests of the batch come from a bucket.
    fn is_fetched(&self, record: &BatchRecord) -> bool {
        self.fetches.contains(&record.state.input_stored_as)
    }

    /// Closes batches without a request that ran since the last turn, if others wait for their place.
    pub fn close_idle(&mut self, records: &[BatchRecord]) {
        let others_wait = self.others_wait(records);
        let until = self.app.handle.clock().now() + REST;
        for job in self.jobs.values_mut() {
            let was_idle = job.is_idle();
            job.has_started = false;
            if was_idle && others_wait {
                self.resting.insert(job.id.clone(), until);
            }
        }
        let resting = &self.resting;
        self.jobs
            .retain(|id, job| !(job.is_idle() && resting.contains_key(id)));
    }

    /// Returns true if a limit of open files keeps a batch from running.
    fn others_wait(&self, records: &[BatchRecord]) -> bool {
        let mut of_holder: BTreeMap<&str, usize> = BTreeMap::new();
        for record in records {
            let is_open = self.jobs.contains_key(&record.id);
            *of_holder.entry(&record.holder).or_default() += usize::from(is_open);
        }
        let mut waiting = records
            .iter()
            .filter(|record| !record.state.is_paused && !self.jobs.contains_key(&record.id));
        waiting.any(|record| {
            self.jobs.len() >= OPEN_MAX || of_holder[record.holder.as_str()] >= OPEN_PER_HOLDER
        })
    }

    /// Opens the files of a batch that is new to the runner.
    async fn open(&mut self, record: &BatchRecord) {
        if self.jobs.contains_key(&record.id) {
            return;
        }
        let (id, state) = (record.id.clone(), record.state.clone());
        let batches = Arc::clone(&self.app.batches);
        let opened = tokio::task::spawn_blocking(move || {
            let dir = batches.dir()?;
            let input = &state.input_stored_as;
            Job::open(dir, &id, input, state.suffix, &state.models)
        });
        match opened.await {
            Ok(Ok(job)) => {
                self.jobs.insert(record.id.clone(), job);
            }
            Ok(Err(error)) if error.kind() == ErrorKind::NotFound => {
                if !self.fetch_requests(record).await {
                    self.fail_unreadable(record, &error).await;
                }
            }
            Ok(Err(error)) if is_final(error.kind()) => {
                self.fail_unreadable(record, &error).await;
            }
            Ok(Err(error)) => {
                tracing::warn!(batch = record.id, %error, "the files of a batch cannot be opened; trying again");
            }
            Err(error) => tracing::error!(%error, "the files of a batch could not be opened"),
        }
    }

    async fn fail_unreadable(&mut self, record: &BatchRecord, error: &std::io::Error) {
        tracing::warn!(batch = record.id, %error, "the files of a batch cannot be read");
        let message = "the file of the batch is missing or damaged".to_owned();
        finish::fail(self, record, "file_unreadable", message).await;
    }
}

/// Returns true for errors of files that another attempt does not mend.
fn is_final(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::UnexpectedEof
    )
}
