//! What is to be fetched: names, sizes and digests of files. Plain data.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;

use super::fault::SourceFault;

/// Connecting takes two round trips; a server that sends nothing for so long has stalled.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(10);
pub(super) const STALL_MAX: Duration = Duration::from_secs(30);

/// One file of a model.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Its place in the model's folder, with `/` between the parts.
    pub path: String,
    /// In bytes.
    pub size: u64,
    /// The name of its content in the cache.
    pub blob: String,
    pub check: Check,
    /// Bytes of it that the progress counts already.
    pub counted: u64,
    /// As the bucket says it, to notice a change on the way.
    pub etag: Option<String>,
}

/// A digest in small hexadecimal letters that the content must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Its size alone.
    Size,
    Sha256(String),
    /// Of git's header and the content.
    GitSha1(String),
    Md5(String),
}

/// Why a file could not be opened, or broke off.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It may work in a moment; after this time at the earliest, if the server says so.
    Passing {
        why: String,
        after: Option<Duration>,
    },
    Lasting(SourceFault),
}

/// What an opened file gives.
pub(super) struct Opened {
    /// 0 where the server does not know how to begin elsewhere.
    pub offset: u64,
    pub body: BoxStream<'static, Result<Bytes, String>>,
}
