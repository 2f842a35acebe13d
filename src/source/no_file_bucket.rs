//! Replaces `file_bucket` in a program built without the feature `s3`: every bucket is refused.

use std::convert::Infallible;
use std::path::Path;

use super::file_bucket_error::FileBucketError;
use super::file_stream::FileStream;
use catalog::BucketUri;

/// The buckets with the pool's own files.
#[derive(Debug, Default)]
pub struct FileBuckets {}

impl FileBuckets {
    /// # Errors
    /// Always.
    pub fn open(&self, uri: &BucketUri) -> Result<FileBucket, FileBucketError> {
        Err(FileBucketError::NotBuilt {
            uri: uri.to_string(),
        })
    }
}

/// A bucket that cannot exist.
#[derive(Clone, Debug)]
pub struct FileBucket {
    none: Infallible,
}

impl FileBucket {
    pub async fn put(&self, _: &str, _: &Path) -> Result<u64, FileBucketError> {
        match self.none {}
    }

    pub async fn read(&self, _: &str) -> Result<FileStream, FileBucketError> {
        match self.none {}
    }

    pub async fn delete(&self, _: &str) -> Result<(), FileBucketError> {
        match self.none {}
    }
}
