//! What is to be fetched: names, sizes and digests of files, and where each is read from. Plain data and
//! the one call that opens a file at an offset.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::BoxStream;

use super::bucket;
use super::fault::SourceFault;
use super::hub::Hub;

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

/// All files of a model in one state.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    /// Names the state: the hub's commit, or what the bucket's `hash` file says.
    pub commit: String,
    pub parts: Vec<Part>,
    pub origins: Origins,
}

/// Where files are read from.
#[derive(Clone, Debug)]
pub(super) enum Origins {
    Hub {
        hub: Arc<Hub>,
        id: String,
        commit: String,
    },
    Bucket(bucket::Store),
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

impl Origins {
    pub async fn open(&self, part: &Part, offset: u64) -> Result<Opened, Trouble> {
        match self {
            Origins::Hub { hub, id, commit } => hub.open(id, commit, part, offset).await,
            Origins::Bucket(store) => store.open(part, offset).await,
        }
    }

    /// For people: where the file is.
    pub fn describe(&self, part: &Part) -> String {
        match self {
            Origins::Hub { hub, id, .. } => format!("{}/{id}, {}", hub.shown(), part.path),
            Origins::Bucket(store) => format!("{}/{}", store.uri, part.path),
        }
    }
}
