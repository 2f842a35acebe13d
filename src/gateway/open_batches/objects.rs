//! The objects of files in buckets (`batch.bucket`): put before a file counts as stored, read when this machine has no copy, and
//! deleted until the bucket confirms it. An object is noted in the store before it is put, so none is left without a record.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::StreamExt;
use tokio::sync::mpsc;

use api_types::error::{ErrorKind, Failure};
use batch::{Upload, UploadError, UploadLimits};
use config::{BucketFolder, BucketUri, LiveConfig};
use controller::Clock;
use pool::Span;
use source::{FileBucket, FileBucketError, FileBuckets, FileStream};
use store::{Store, StoreError, StoredFile, UnusedObject};

/// The time after which an object is deleted that no record names. Objects that this process puts or may put again are left.
const GIVEN_UP_AFTER: Span = Span::from_secs(3_600);
/// The same for a refused upload: its bucket may still carry out the last request.
const REFUSED_AFTER: Span = Span::from_secs(60);
/// Objects that are read from the store together.
const PAGE: u32 = 128;
/// Pieces between the network and the disk.
const PIECES_MAX: usize = 8;
/// Limits of a file that has been checked when it was uploaded.
const NO_LIMITS: UploadLimits = UploadLimits {
    bytes_max: u64::MAX,
    line_bytes_max: usize::MAX,
    lines_max: u64::MAX,
    models_max: usize::MAX,
};

/// The objects of all holders.
pub(crate) struct Objects {
    /// The folder of local copies.
    dir: PathBuf,
    store: Arc<Store>,
    config: LiveConfig,
    clock: Clock,
    buckets: FileBuckets,
    /// Files whose objects this process puts, and that have no record yet.
    in_progress: Mutex<BTreeSet<String>>,
    /// Objects have been noted for deletion since the last turn of the runner.
    is_deletion_due: AtomicBool,
}

/// An object that is complete in its bucket. It is in progress until this is dropped.
pub(crate) struct PlacedObject {
    objects: Arc<Objects>,
    object: UnusedObject,
}

impl PlacedObject {
    /// For [`StoredFile::bucket`].
    pub fn bucket(&self) -> String {
        self.object.bucket.clone()
    }
}

impl Drop for PlacedObject {
    fn drop(&mut self) {
        self.objects.in_progress().remove(&self.object.name);
    }
}

/// The reason why an object could not be put or fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ObjectError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Bucket(#[from] FileBucketError),
    #[error("`{0}` is not a bucket of this version")]
    UnknownBucket(String),
    #[error("the object cannot be read: {0}")]
    Read(String),
    #[error("the object is damaged: {0}")]
    Damaged(String),
    #[error(transparent)]
    Disk(std::io::Error),
}

impl ObjectError {
    /// Returns true if another attempt cannot succeed.
    pub fn is_final(&self) -> bool {
        match self {
            ObjectError::Bucket(FileBucketError::Missing { .. })
            | ObjectError::UnknownBucket(_)
            | ObjectError::Damaged(_) => true,
            ObjectError::Bucket(_)
            | ObjectError::Store(_)
            | ObjectError::Read(_)
            | ObjectError::Disk(_) => false,
        }
    }

    /// The error for a client whose upload has not been stored.
    pub fn for_upload(&self) -> Failure {
        tracing::warn!(error = %self, "an upload cannot be put into its bucket");
        let message = "the file was not stored, because the server's bucket cannot be used now; upload it again later, or ask an administrator, who finds the reason in the server log";
        Failure::new(ErrorKind::Unavailable, "file_not_stored", message)
    }

    /// The error for a client that reads this file.
    pub fn for_download(&self, id: &str) -> Failure {
        tracing::warn!(file = id, error = %self, "a file cannot be read from its bucket");
        if self.is_final() {
            return Failure::not_found(format!("the lines of the file {id} are gone"));
        }
        let message = format!(
            "the file {id} cannot be read, because the server's bucket cannot be used now; the file is kept: read it again later"
        );
        Failure::new(ErrorKind::Unavailable, "file_not_readable", message)
    }
}

impl Objects {
    /// `dir` is the folder of local copies.
    pub fn new(dir: PathBuf, store: Arc<Store>, config: LiveConfig, clock: Clock) -> Objects {
        Objects {
            dir,
            store,
            config,
            clock,
            buckets: FileBuckets::default(),
            in_progress: Mutex::default(),
            // An earlier process may have left some.
            is_deletion_due: AtomicBool::new(true),
        }
    }

    /// The bucket for new files.
    pub fn target(&self) -> Option<BucketUri> {
        let config = self.config.get();
        let folder = config.batch.bucket.as_ref();
        folder.map(|BucketFolder(uri)| uri.clone())
    }

    /// Puts the local copy of a file into this bucket.
    ///
    /// # Errors
    /// The object may exist. It is deleted later, unless the file is put again.
    pub async fn put(
        self: &Arc<Objects>,
        stored_as: &str,
        uri: &BucketUri,
    ) -> Result<PlacedObject, ObjectError> {
        let bucket = self.buckets.open(uri)?;
        self.in_progress().insert(stored_as.to_owned());
        let placed = PlacedObject {
            objects: Arc::clone(self),
            object: UnusedObject {
                bucket: uri.to_string(),
                name: stored_as.to_owned(),
            },
        };
        let due = self.clock.wall() + GIVEN_UP_AFTER;
        self.store.note_object(&placed.object, due).await?;
        let path = self.dir.join(file_name(stored_as));
        bucket.put(&file_name(stored_as), &path).await?;
        Ok(placed)
    }

    /// Puts a new upload into the bucket, if there is one.
    ///
    /// # Errors
    /// The object may exist. It is deleted soon.
    pub async fn put_upload(
        self: &Arc<Objects>,
        stored_as: &str,
    ) -> Result<Option<PlacedObject>, ObjectError> {
        let Some(uri) = self.target() else {
            return Ok(None);
        };
        match self.put(stored_as, &uri).await {
            Ok(placed) => Ok(Some(placed)),
            Err(error) => {
                if !matches!(error, ObjectError::Store(_)) {
                    let bucket = uri.to_string();
                    let name = stored_as.to_owned();
                    self.give_up(&UnusedObject { bucket, name }).await;
                }
                Err(error)
            }
        }
    }

    /// Gives up an object whose file gets no record.
    pub async fn give_up_placed(&self, placed: Option<PlacedObject>) {
        if let Some(placed) = placed {
            self.give_up(&placed.object).await;
        }
    }

    async fn give_up(&self, object: &UnusedObject) {
        let due = self.clock.wall() + REFUSED_AFTER;
        // Without this, it is due after `GIVEN_UP_AFTER`.
        if let Err(fault) = self.store.note_object(object, due).await {
            tracing::debug!(%fault, "an object of a bucket is deleted later");
        }
    }

    /// Opens the object of a file; `None` if the file is only on disk.
    ///
    /// # Errors
    /// Also if the object does not have the length of the file.
    pub async fn read(&self, file: &StoredFile) -> Result<Option<FileStream>, ObjectError> {
        let Some(bucket) = &file.bucket else {
            return Ok(None);
        };
        let bucket = self.bucket(bucket)?;
        let opened = bucket.read(&file_name(&file.stored_as)).await?;
        if opened.bytes != file.bytes.0 {
            return Err(ObjectError::Damaged(format!(
                "it has {} bytes instead of {}",
                opened.bytes, file.bytes.0
            )));
        }
        Ok(Some(opened))
    }

    /// Makes a local copy of an uploaded file and its index. Returns false if the file is only on disk.
    ///
    /// # Errors
    /// This machine has no copy then.
    pub async fn fetch(&self, file: &StoredFile) -> Result<bool, ObjectError> {
        let Some(FileStream { mut body, .. }) = self.read(file).await? else {
            return Ok(false);
        };
        let (pieces, mut received) = mpsc::channel::<bytes::Bytes>(PIECES_MAX);
        let (dir, id) = (self.dir.clone(), file.stored_as.clone());
        let written = tokio::task::spawn_blocking(move || {
            std::fs::create_dir_all(&dir)?;
            // Parts of an earlier copy.
            for extension in ["jsonl", "index", "jsonl.part", "index.part"] {
                match std::fs::remove_file(dir.join(format!("{id}.{extension}"))) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(UploadError::Io(error));
                    }
                    Ok(()) | Err(_) => {}
                }
            }
            // The lines of the file give the same index again.
            let mut upload = Upload::create(&dir, &id, NO_LIMITS)?;
            while let Some(piece) = received.blocking_recv() {
                // An empty piece marks the end.
                if piece.is_empty() {
                    return upload.finish();
                }
                upload.write(&piece)?;
            }
            Err(UploadError::Stopped)
        });
        let mut read = Ok(());
        while let Some(piece) = body.next().await {
            let piece = match piece {
                Ok(piece) => piece,
                Err(why) => {
                    read = Err(ObjectError::Read(why));
                    break;
                }
            };
            // A writer that has ended has found an error.
            if !piece.is_empty() && pieces.send(piece).await.is_err() {
                break;
            }
        }
        if read.is_ok() {
            // The writer may have ended with an error.
            let _ = pieces.send(bytes::Bytes::new()).await;
        }
        drop(pieces);
        let written = written.await;
        read?;
        match written {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(UploadError::Io(error))) => Err(ObjectError::Disk(error)),
            Ok(Err(error)) => Err(ObjectError::Damaged(error.to_string())),
            Err(error) => Err(ObjectError::Disk(std::io::Error::other(error))),
        }
    }

    /// Has the runner delete unused objects in its next turn.
    pub fn request_deletion(&self) {
        self.is_deletion_due.store(true, Ordering::Relaxed);
    }

    /// Returns true if a deletion has been requested since the last call.
    pub fn take_deletion_request(&self) -> bool {
        self.is_deletion_due.swap(false, Ordering::Relaxed)
    }

    /// Deletes objects that no record names. Leaves the results of these open batches, which may be put again. An object that
    /// cannot be deleted stays noted, and so does the rest of its bucket. Returns false if there is such an object.
    pub async fn delete_unused(&self, open_batches: &BTreeSet<String>) -> bool {
        // Taken before the list: a file that gets its record later is in the list, but in progress.
        let in_progress = self.in_progress().clone();
        let is_in_use = |name: &str| {
            let batch = name.rsplit_once('.').map(|(batch, _)| batch);
            in_progress.contains(name) || batch.is_some_and(|batch| open_batches.contains(batch))
        };
        let mut after = UnusedObject {
            bucket: String::new(),
            name: String::new(),
        };
        let mut is_done = true;
        loop {
            let now = self.clock.wall();
            let page = match self.store.unused_objects(now, &after, PAGE).await {
                Ok(page) => page,
                Err(fault) => {
                    tracing::debug!(%fault, "unused objects of buckets cannot be listed");
                    return false;
                }
            };
            let Some(last) = page.last() else {
                return is_done;
            };
            after = last.clone();
            let mut failing = None;
            for object in &page {
                if failing == Some(&object.bucket) || is_in_use(&object.name) {
                    continue;
                }
                if let Err(error) = self.delete(object).await {
                    tracing::warn!(%error, object = object.name, "an unused object of a bucket cannot be deleted; trying again");
                    is_done = false;
                    failing = Some(&object.bucket);
                }
            }
            if failing == Some(&after.bucket) {
                // Behind all names of the bucket.
                after.name = char::MAX.to_string();
            }
        }
    }

    async fn delete(&self, object: &UnusedObject) -> Result<(), ObjectError> {
        let bucket = self.bucket(&object.bucket)?;
        bucket.delete(&file_name(&object.name)).await?;
        self.store.forget_object(object).await?;
        Ok(())
    }

    /// The bucket of a stored file, which may differ from the configured one.
    fn bucket(&self, stored: &str) -> Result<FileBucket, ObjectError> {
        let folder = stored.parse::<BucketFolder>();
        let BucketFolder(uri) =
            folder.map_err(|_| ObjectError::UnknownBucket(stored.to_owned()))?;
        Ok(self.buckets.open(&uri)?)
    }

    fn in_progress(&self) -> MutexGuard<'_, BTreeSet<String>> {
        let names = self.in_progress.lock();
        names.unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of a file on disk and in its bucket.
fn file_name(stored_as: &str) -> String {
    format!("{stored_as}.jsonl")
}

#[cfg(test)]
mod tests;
