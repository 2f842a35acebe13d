//! The pool's own files in buckets: each is an object, put in parts, read as a stream, and deleted. The parts of all transfers to
//! buckets take turns, so memory is limited and a large file does not hold back the others.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::StreamExt;
use object_store::path::Path as ObjectPath;
use object_store::{Error, MultipartUpload, ObjectStore, ObjectStoreExt};
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::sync::Semaphore;

use super::bucket;
use super::error::SourceError;
use super::file_bucket_error::FileBucketError;
use super::file_stream::FileStream;
use catalog::{Bucket, BucketUri};

/// Files up to this size are put with one request. S3 requires parts of at least 5 MiB.
const PART_BYTES: u64 = 8 << 20;
/// S3 allows 10,000 parts.
const PARTS_MAX: u64 = 9_000;
/// Parts in memory.
const PARTS_AT_ONCE: usize = 4;

/// The buckets with the pool's own files, connected on first use. Settings and credentials come from the environment.
#[derive(Debug)]
pub struct FileBuckets {
    opened: Mutex<BTreeMap<String, FileBucket>>,
    /// Turns are given in the order of requests.
    turns: Arc<Semaphore>,
}

impl Default for FileBuckets {
    fn default() -> FileBuckets {
        FileBuckets {
            opened: Mutex::default(),
            turns: Arc::new(Semaphore::new(PARTS_AT_ONCE)),
        }
    }
}

impl FileBuckets {
    /// The bucket of this address. Sends no request.
    ///
    /// # Errors
    /// The environment has settings that cannot be used.
    pub fn open(&self, uri: &BucketUri) -> Result<FileBucket, FileBucketError> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        let name = uri.to_string();
        if let Some(bucket) = opened.get(&name) {
            return Ok(bucket.clone());
        }
        // An earlier call has installed the same provider.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let connected = bucket::connect(&Bucket::at(uri.clone()), &BTreeMap::new());
        let objects = connected.map_err(|error| FileBucketError::Unusable {
            why: match error {
                SourceError::Bucket { why, .. } => why,
                other => other.to_string(),
            },
            uri: name.clone(),
            advice: SETTINGS,
        })?;
        let bucket = FileBucket {
            objects,
            uri: uri.clone(),
            turns: Arc::clone(&self.turns),
            part_bytes: PART_BYTES,
        };
        opened.insert(name, bucket.clone());
        Ok(bucket)
    }
}

/// A folder in a bucket. Names of files are below it.
#[derive(Clone)]
pub struct FileBucket {
    objects: Arc<dyn ObjectStore>,
    uri: BucketUri,
    turns: Arc<Semaphore>,
    part_bytes: u64,
}

/// The library's own output would show keys.
impl fmt::Debug for FileBucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileBucket")
            .field("uri", &self.uri)
            .finish_non_exhaustive()
    }
}

impl FileBucket {
    /// Puts a file of this machine under a name, which becomes visible with the last byte, and replaces an earlier one. Returns its
    /// length.
    ///
    /// # Errors
    /// The bucket has the earlier file, or none.
    pub async fn put(&self, name: &str, path: &Path) -> Result<u64, FileBucketError> {
        let disk = |source: io::Error| FileBucketError::Disk {
            path: path.to_owned(),
            source,
        };
        let object = self.object(name)?;
        let mut file = File::open(path).await.map_err(disk)?;
        let bytes = file.metadata().await.map_err(disk)?.len();
        if bytes <= self.part_bytes {
            // The semaphore is never closed.
            let _turn = self.turns.acquire().await.ok();
            let content = read_part(&mut file, bytes).await.map_err(disk)?;
            let put = self.objects.put(&object, content.into()).await;
            put.map_err(|error| self.failed(name, &error))?;
            return Ok(bytes);
        }
        let upload = self.objects.put_multipart(&object).await;
        let mut upload = upload.map_err(|error| self.failed(name, &error))?;
        let part_bytes = self.part_bytes.max(bytes.div_ceil(PARTS_MAX));
        let put = async {
            let mut left = bytes;
            while left > 0 {
                let _turn = self.turns.acquire().await.ok();
                let part = read_part(&mut file, left.min(part_bytes)).await;
                let part = part.map_err(disk)?;
                left -= part.len() as u64;
                let sent = upload.put_part(part.into()).await;
                sent.map_err(|error| self.failed(name, &error))?;
            }
            let completed = upload.complete().await;
            completed.map_err(|error| self.failed(name, &error))
        };
        let put = put.await;
        if put.is_err() {
            // A bucket that cannot be reached removes the parts by its lifecycle rule.
            let _ = upload.abort().await;
        }
        put.map(|_| bytes)
    }

    /// Opens a file, which is read as it arrives.
    ///
    /// # Errors
    /// [`FileBucketError::Missing`] if the bucket has no such file.
    pub async fn read(&self, name: &str) -> Result<FileStream, FileBucketError> {
        let got = self.objects.get(&self.object(name)?).await;
        let got = got.map_err(|error| self.failed(name, &error))?;
        Ok(FileStream {
            bytes: got.meta.size,
            body: got
                .into_stream()
                .map(|piece| piece.map_err(|error| bucket::shortened(&error)))
                .boxed(),
        })
    }

    /// Deletes a file. A file that does not exist is not an error.
    pub async fn delete(&self, name: &str) -> Result<(), FileBucketError> {
        let deleted = self.objects.delete(&self.object(name)?).await;
        match deleted.map_err(|error| self.failed(name, &error)) {
            Err(FileBucketError::Missing { .. }) => Ok(()),
            deleted => deleted,
        }
    }

    fn object(&self, name: &str) -> Result<ObjectPath, FileBucketError> {
        let path = format!("{}/{name}", self.uri.prefix);
        ObjectPath::parse(path.trim_start_matches('/'))
            .map_err(|error| self.failed(name, &error.into()))
    }

    fn failed(&self, name: &str, error: &Error) -> FileBucketError {
        let (uri, why) = (self.uri.to_string(), bucket::shortened(error));
        let text = error.to_string();
        let has_bucket = !text.contains("NoSuchBucket") && !text.contains("bucket does not exist");
        if matches!(error, Error::NotFound { .. }) && has_bucket {
            let name = name.to_owned();
            return FileBucketError::Missing { uri, name };
        }
        let advice = if !has_bucket {
            "create the bucket, or correct batch.bucket"
        } else if bucket::needs_keys(error, &why) {
            KEYS
        } else {
            SETTINGS
        };
        FileBucketError::Unusable { uri, why, advice }
    }
}

const KEYS: &str = "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (GOOGLE_APPLICATION_CREDENTIALS for gs://) in the pool's environment, whose account must be allowed to read, write and delete objects";
const SETTINGS: &str = "check batch.bucket, AWS_REGION and AWS_ENDPOINT_URL (GOOGLE_APPLICATION_CREDENTIALS for gs://) in the pool's environment, and the network";

/// Reads exactly this many bytes.
async fn read_part(file: &mut File, bytes: u64) -> io::Result<Vec<u8>> {
    let mut part = Vec::with_capacity(usize::try_from(bytes).unwrap_or_default());
    file.take(bytes).read_to_end(&mut part).await?;
    if part.len() as u64 != bytes {
        let message = "the file was cut while it was put into the bucket";
        return Err(io::Error::new(ErrorKind::UnexpectedEof, message));
    }
    Ok(part)
}

#[cfg(test)]
mod tests;
