//! A file of a bucket while it is read.

use std::fmt;

use bytes::Bytes;
use futures_util::stream::BoxStream;

/// The content of a file in a bucket, as it arrives.
pub struct FileStream {
    /// The length of the file.
    pub bytes: u64,
    /// Errors are shortened, because servers may quote keys.
    pub body: BoxStream<'static, Result<Bytes, String>>,
}

impl fmt::Debug for FileStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStream")
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}
