//! The batches that are not complete, shared by the routes and the runner, and the folder of all files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::counts::BatchCounts;
use super::folder;
use super::objects::Objects;
use super::record::{BatchRecord, LearnedSpeed, Running, Status};
use super::reservations::Reservations;
use api_types::error::{ErrorKind, Failure};
use config::LiveConfig;
use controller::Clock;
use store::{BatchPage, Store, StoreError, StoredFile};

/// The folder of files, in `state.dir`.
const FOLDER: &str = "files";
/// The number of batches from which speeds are learned after a start.
const SPEEDS_FROM: u32 = 100;
/// Uploads of one holder at the same time.
pub(crate) const UPLOADS_PER_HOLDER: u32 = 4;

/// Files and batches of all holders.
pub struct Batches {
    dir: PathBuf,
    pub(crate) store: Arc<Store>,
    /// Files in buckets.
    pub(crate) objects: Arc<Objects>,
    pub(crate) config: LiveConfig,
    pub(crate) clock: Clock,
    open: Mutex<BTreeMap<String, OpenBatch>>,
    uploads: Mutex<BTreeMap<String, u32>>,
    pub(super) reservations: Reservations,
    /// The speeds of models, by name, as the runner has measured them last.
    speeds: Mutex<BTreeMap<String, LearnedSpeed>>,
    /// Held while forecasts are made, each of which copies the pool.
    pub(crate) looking: tokio::sync::Mutex<()>,
    /// Held while a changed state is stored, because the last state on disk must be the present one.
    changing: tokio::sync::Mutex<()>,
    /// For `/metrics`.
    pub(crate) counts: BatchCounts,
    /// Wakes the runner after a change by a route.
    pub(crate) changed: Notify,
}

/// A batch that is not complete.
#[derive(Clone, Debug)]
pub(crate) struct OpenBatch {
    pub record: BatchRecord,
    pub running: Running,
    /// The requests without a result, in the order of the record's models, once the runner knows them.
    pub left: Vec<u64>,
}

impl OpenBatch {
    pub fn new(record: BatchRecord, running: Running) -> OpenBatch {
        OpenBatch {
            left: record
                .state
                .models
                .iter()
                .map(|model| model.requests)
                .collect(),
            record,
            running,
        }
    }
}

/// An upload of a holder, until it is dropped.
pub(crate) struct UploadSlot {
    batches: Arc<Batches>,
    holder: String,
}

impl Drop for UploadSlot {
    fn drop(&mut self) {
        let mut uploads = locked(&self.batches.uploads);
        if let Some(count) = uploads.get_mut(&self.holder) {
            *count -= 1;
            if *count == 0 {
                uploads.remove(&self.holder);
            }
        }
    }
}

impl std::fmt::Debug for Batches {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batches")
            .field("dir", &self.dir)
            .finish_non_exhaustive()
    }
}

impl Batches {
    /// `state_dir` is `state.dir`.
    pub fn new(state_dir: &Path, store: Arc<Store>, config: LiveConfig, clock: Clock) -> Batches {
        let dir = state_dir.join(FOLDER);
        let objects = Objects::new(dir.clone(), Arc::clone(&store), config.clone(), clock);
        Batches {
            dir,
            store,
            objects: Arc::new(objects),
            config,
            clock,
            open: Mutex::default(),
            uploads: Mutex::default(),
            reservations: Reservations::default(),
            speeds: Mutex::default(),
            looking: tokio::sync::Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            counts: BatchCounts::default(),
            changed: Notify::new(),
        }
    }

    /// The folder of all files, created if it does not exist.
    ///
    /// # Errors
    /// The folder cannot be created.
    pub(crate) fn dir(&self) -> std::io::Result<&Path> {
        std::fs::create_dir_all(&self.dir)?;
        Ok(&self.dir)
    }

    /// Removes files that no record names, from uploads and batches that an earlier process did not complete.
    pub(crate) async fn remove_orphans(&self) {
        let known = match self.store.stored_files().await {
            Ok(known) => known,
            Err(fault) => {
                tracing::warn!(%fault, "the records of files cannot be read");
                return;
            }
        };
        let open: BTreeSet<String> = self.with_open(|open| open.keys().cloned().collect());
        let dir = self.dir.clone();
        let removed =
            tokio::task::spawn_blocking(move || folder::remove_orphans(&dir, &known, &open)).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!(%error, "files without a record cannot be removed");
        }
    }

    /// Begins an upload; `None` if the holder has too many.
    pub(crate) fn begin_upload(self: &Arc<Batches>, holder: &str) -> Option<UploadSlot> {
        let mut uploads = locked(&self.uploads);
        let count = uploads.entry(holder.to_owned()).or_default();
        if *count >= UPLOADS_PER_HOLDER {
            return None;
        }
        *count += 1;
        Some(UploadSlot {
            batches: Arc::clone(self),
            holder: holder.to_owned(),
        })
    }

    pub(crate) fn with_open<T>(
        &self,
        read: impl FnOnce(&mut BTreeMap<String, OpenBatch>) -> T,
    ) -> T {
        read(&mut locked(&self.open))
    }

    /// Returns true if an open batch reads this file.
    pub(crate) fn reads(&self, file: &str) -> bool {
        self.with_open(|open| {
            let mut open = open.values();
            open.any(|batch| batch.record.state.input_file == file)
        })
    }

    /// The batch with this id, with the runner's figures.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) async fn find(
        &self,
        id: &str,
    ) -> Result<Option<(BatchRecord, Running)>, StoreError> {
        let open = self.with_open(|open| open.get(id).cloned());
        if let Some(batch) = open {
            return Ok(Some((batch.record, batch.running)));
        }
        let stored = self.store.batch(id).await?;
        Ok(stored
            .and_then(read)
            .map(|record| (record, Running::default())))
    }

    /// The lines of a file.
    pub(crate) fn path(&self, stored_as: &str) -> PathBuf {
        self.dir.join(format!("{stored_as}.jsonl"))
    }

    /// Removes the bytes of a file.
    pub(crate) async fn remove(&self, stored_as: &str) {
        for extension in ["jsonl", "index"] {
            let path = self.dir.join(format!("{stored_as}.{extension}"));
            match tokio::fs::remove_file(&path).await {
                Ok(()) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "a file cannot be removed");
                }
            }
        }
    }

    /// Deletes a file: first its record, because a record without bytes would be an error for its holder. The runner deletes its
    /// object in a bucket.
    ///
    /// # Errors
    /// The store cannot be written. The file stays then.
    pub(crate) async fn delete(&self, file: &StoredFile) -> Result<(), StoreError> {
        self.store.delete_file(&file.holder, &file.id).await?;
        self.remove(&file.stored_as).await;
        if file.bucket.is_some() {
            self.objects.request_deletion();
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Stores a batch and hands it to the runner.
    ///
    /// # Errors
    /// The store cannot be written. The batch does not exist then.
    pub(crate) async fn add(
        &self,
        record: BatchRecord,
        running: Running,
    ) -> Result<(), StoreError> {
        self.store.save_batch(&record.to_stored()).await?;
        self.insert(record, running);
        Ok(())
    }

    /// A stored batch as it is now, with the runner's figures.
    pub(crate) fn present_with_figures(&self, stored: BatchRecord) -> (BatchRecord, Running) {
        let open = self.with_open(|open| open.get(&stored.id).cloned());
        match open {
            Some(open) => (open.record, open.running),
            None => (stored, Running::default()),
        }
    }

    /// A stored batch as it is now.
    pub(crate) fn present(&self, stored: BatchRecord) -> BatchRecord {
        self.present_with_figures(stored).0
    }

    /// Begins to cancel a batch. Returns false if it has ended.
    ///
    /// # Errors
    /// The store cannot be written.
    pub(crate) async fn begin_cancel(&self, id: &str) -> Result<bool, Failure> {
        let now = self.clock.wall();
        let changed = self.change(id, |record| {
            if record.state.status == Status::InProgress {
                record.state.becomes(Status::Cancelling, now);
            }
        });
        changed.await.map_err(store_failed)
    }

    /// Adds a batch from the store, unless it is known already.
    fn insert_stored(&self, record: BatchRecord, result_bytes: u64) {
        let id = record.id.clone();
        let running = Running {
            result_bytes,
            ..Running::default()
        };
        self.with_open(|open| {
            open.entry(id).or_insert(OpenBatch::new(record, running));
        });
    }

    pub(crate) fn speeds(&self) -> MutexGuard<'_, BTreeMap<String, LearnedSpeed>> {
        locked(&self.speeds)
    }

    /// Reads the open batches from the store, before requests arrive, and the speeds that the last batches have shown.
    ///
    /// # Errors
    /// The store cannot be read. The runner tries again.
    pub async fn load(&self) -> Result<(), StoreError> {
        let last = BatchPage {
            holder: None,
            id_prefix: None,
            after: None,
            limit: SPEEDS_FROM,
        };
        let last = self.store.batches(last).await?;
        let mut speeds = BTreeMap::new();
        for record in last.into_iter().filter_map(read) {
            for (name, speed) in record.state.speeds {
                speeds.entry(name).or_insert(speed);
            }
        }
        for (name, speed) in speeds {
            self.speeds().entry(name).or_insert(speed);
        }
        let stored = self.store.open_batches().await?;
        let dir = self.dir.clone();
        let sizes = tokio::task::spawn_blocking(move || folder::result_sizes(&dir)).await;
        let sizes = sizes.unwrap_or_default();
        for record in stored.into_iter().filter_map(read) {
            let result_bytes = sizes.get(&record.id).copied().unwrap_or(0);
            self.insert_stored(record, result_bytes);
        }
        Ok(())
    }

    pub(crate) fn insert(&self, record: BatchRecord, running: Running) {
        let id = record.id.clone();
        self.with_open(|open| open.insert(id, OpenBatch::new(record, running)));
        self.changed.notify_one();
    }

    /// Changes an open batch durably and wakes the runner. Returns false if the batch is not open.
    ///
    /// # Errors
    /// The store cannot be written. Nothing has changed then.
    pub(crate) async fn change(
        &self,
        id: &str,
        change: impl Fn(&mut BatchRecord),
    ) -> Result<bool, StoreError> {
        let _changing = self.changing.lock().await;
        let changed = self.with_open(|open| {
            let mut record = open.get(id)?.record.clone();
            change(&mut record);
            Some(record)
        });
        let Some(record) = changed else {
            return Ok(false);
        };
        self.store.save_batch(&record.to_stored()).await?;
        self.with_open(|open| {
            if let Some(batch) = open.get_mut(id) {
                batch.record = record;
            }
        });
        self.changed.notify_one();
        Ok(true)
    }
}

/// The error for a client when the store fails.
pub(crate) fn store_failed(fault: StoreError) -> Failure {
    if !fault.is_logged_by_the_store() {
        tracing::error!(%fault, "files and batches cannot be stored or read");
    }
    let message = "the server's database cannot be used now; see the server log, and try again";
    Failure::new(ErrorKind::Unavailable, "not_saved", message)
}

/// Reads a stored batch. A state in an unknown form is logged and skipped.
pub(crate) fn read(stored: store::StoredBatch) -> Option<BatchRecord> {
    let id = stored.id.clone();
    match BatchRecord::from_stored(stored) {
        Ok(record) => Some(record),
        Err(error) => {
            tracing::warn!(batch = id, %error, "the state of a batch cannot be read");
            None
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
