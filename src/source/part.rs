//! The files to fetch: names, sizes and digests.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;

use super::fault::SourceFault;

/// Connecting takes two round trips; a server that sends nothing for this long has stalled.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(10);
pub(super) const STALL_MAX: Duration = Duration::from_secs(30);

/// One file of a model.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Its path in the model's folder, separated by `/`.
    pub path: String,
    /// In bytes.
    pub size: u64,
    /// The name of its content in the cache.
    pub blob: String,
    pub check: Check,
    /// Bytes of it that the progress already counts.
    pub counted: u64,
    /// The bucket's tag, to notice a change during the download.
    pub etag: Option<String>,
}

/// The digest that the content must have, in lower-case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Only its size is checked.
    Size,
    Sha256(String),
    /// Of git's header and the content.
    GitSha1(String),
    Md5(String),
}

/// Why a file could not be opened, or was interrupted.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It may work later; after this time at the earliest, if the server gives one.
    Passing {
        why: String,
        after: Option<Duration>,
    },
    Lasting(SourceFault),
}

/// An opened file.
pub(super) struct Opened {
    /// 0 where the server does not support ranges.
    pub offset: u64,
    pub body: BoxStream<'static, Result<Bytes, String>>,
}
