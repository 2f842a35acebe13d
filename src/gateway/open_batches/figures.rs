//! The open batches in figures: for `/metrics`, and the space that the results of a holder's running batches take.

use super::Batches;
use super::counts::{BatchCounts, Outcome};
use super::record::Status;
use super::service::OpenBatch;
use pool::Bytes;
use store::StoreError;

/// The files with results of a batch: the output and the errors.
pub(crate) const FILES_OF_BATCH: u64 = 2;

/// The state of an open batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenState {
    Running,
    /// No request runs.
    Waiting,
    Paused,
    /// Its last results are written, or it is being cancelled.
    Ending,
}

impl OpenState {
    pub const ALL: [OpenState; 4] = [
        OpenState::Running,
        OpenState::Waiting,
        OpenState::Paused,
        OpenState::Ending,
    ];

    pub fn name(self) -> &'static str {
        match self {
            OpenState::Running => "running",
            OpenState::Waiting => "waiting",
            OpenState::Paused => "paused",
            OpenState::Ending => "ending",
        }
    }

    fn new(batch: &OpenBatch) -> OpenState {
        let state = &batch.record.state;
        if state.status != Status::InProgress {
            OpenState::Ending
        } else if state.is_paused {
            OpenState::Paused
        } else if batch.running.in_flight > 0 {
            OpenState::Running
        } else {
            OpenState::Waiting
        }
    }
}

/// The figures of all batches.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BatchFigures {
    /// Open batches, in the order of [`OpenState::ALL`].
    pub open: [u64; OpenState::ALL.len()],
    pub requests_running: u64,
    /// Requests of open batches that have no result.
    pub requests_left: u64,
    /// Requests that have ended since the start, in the order of [`Outcome::ALL`].
    pub ended: [u64; Outcome::ALL.len()],
    pub requests_per_second: f64,
    pub result_bytes: u64,
}

/// The space of the files of a holder and of the results of its open batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HolderTotals {
    /// Each open batch may have two files with results.
    pub files: u64,
    pub bytes: Bytes,
    pub open_batches: usize,
    /// The models of the open batches.
    pub open_models: usize,
}

impl HolderTotals {
    pub fn plus(&self, other: &HolderTotals) -> HolderTotals {
        HolderTotals {
            files: self.files.saturating_add(other.files),
            bytes: Bytes(self.bytes.0.saturating_add(other.bytes.0)),
            open_batches: self.open_batches.saturating_add(other.open_batches),
            open_models: self.open_models.saturating_add(other.open_models),
        }
    }

    pub fn minus(&self, other: &HolderTotals) -> HolderTotals {
        HolderTotals {
            files: self.files.saturating_sub(other.files),
            bytes: Bytes(self.bytes.0.saturating_sub(other.bytes.0)),
            open_batches: self.open_batches.saturating_sub(other.open_batches),
            open_models: self.open_models.saturating_sub(other.open_models),
        }
    }
}

impl Batches {
    pub(crate) fn figures(&self) -> BatchFigures {
        let counts: &BatchCounts = &self.counts;
        let mut figures = BatchFigures {
            ended: Outcome::ALL.map(|outcome| counts.ended(outcome)),
            requests_per_second: counts.per_second(self.clock.now()),
            result_bytes: counts.result_bytes(),
            ..BatchFigures::default()
        };
        self.with_open(|open| {
            for batch in open.values() {
                let counts = &batch.record.state.counts;
                let done = counts.completed + counts.failed;
                figures.open[OpenState::new(batch) as usize] += 1;
                figures.requests_running += batch.running.in_flight;
                figures.requests_left += counts.total.saturating_sub(done);
            }
        });
        figures
    }

    /// The files of a holder, with the results of its open batches. A batch that ends during the read may count twice, and never less.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) async fn totals(&self, holder: &str) -> Result<HolderTotals, StoreError> {
        let mut totals = HolderTotals::default();
        // First, because the files of a batch that ends are stored before it leaves.
        self.with_open(|open| {
            let own = open.values().filter(|batch| batch.record.holder == holder);
            for batch in own {
                totals.files += FILES_OF_BATCH;
                totals.bytes.0 = totals.bytes.0.saturating_add(batch.running.result_bytes);
                totals.open_batches += 1;
                totals.open_models += batch.record.state.models.len();
            }
        });
        let (files, bytes) = self.store.file_totals(holder).await?;
        totals.files += files;
        totals.bytes.0 = totals.bytes.0.saturating_add(bytes.0);
        Ok(totals)
    }
}
