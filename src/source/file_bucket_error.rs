//! Errors of the pool's own files in buckets, with advice; never with a key.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum FileBucketError {
    #[error("{uri} has no object {name}")]
    Missing { uri: String, name: String },
    #[error("{uri} cannot be used: {why}; {advice}")]
    Unusable {
        uri: String,
        why: String,
        advice: &'static str,
    },
    #[error("{}: {source}", path.display())]
    Disk {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(
        "{uri} needs a model-pool that is built with the feature `s3`: build it without `--no-default-features`, or add `--features s3`"
    )]
    NotBuilt { uri: String },
}
