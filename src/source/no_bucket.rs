//! Replaces `bucket` in a program built without the feature `s3`: every bucket is refused.

use std::convert::Infallible;

use super::error::SourceError;
use super::part::{ListedParts, OpenedPart, Part, PartProblem};
use catalog::{Bucket, BucketUri, Fetch};

/// A store that cannot exist.
#[derive(Clone, Debug)]
pub(super) struct Store {
    pub uri: BucketUri,
    none: Infallible,
}

pub(super) async fn open(
    bucket: &Bucket,
    _: &Fetch,
    _: &reqwest::Client,
) -> Result<Store, SourceError> {
    Err(SourceError::NotBuilt {
        uri: bucket.uri.to_string(),
    })
}

pub(super) async fn list(store: &Store, _: &BucketUri) -> Result<ListedParts, SourceError> {
    match store.none {}
}

impl Store {
    pub async fn open(&self, _: &Part, _: u64) -> Result<OpenedPart, PartProblem> {
        match self.none {}
    }
}
