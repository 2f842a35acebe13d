//! The bytes of a stored file: from this machine's copy, or from the file's bucket as they arrive.

use std::io::{self, Read};

use axum::body::{Body, Bytes};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use tokio::fs::File;
use tokio::runtime::Handle;
use tokio_util::io::ReaderStream;

use crate::state::App;
use api_types::error::Failure;
use source::FileStream;
use store::StoredFile;

/// An opened file.
pub(super) enum Content {
    Disk(File),
    Bucket(FileStream),
}

/// Opens a file.
///
/// # Errors
/// Neither this machine nor a bucket has the file, or the bucket cannot be read.
pub(super) async fn open(app: &App, file: &StoredFile) -> Result<Content, Failure> {
    let local = File::open(app.batches.path(&file.stored_as)).await;
    let has_object = file.bucket.is_some();
    match local {
        Ok(local) => {
            let bytes = local.metadata().await.map(|found| found.len());
            // A batch that runs again on another machine has a part of its results there.
            if !has_object || bytes.is_ok_and(|bytes| bytes == file.bytes.0) {
                return Ok(Content::Disk(local));
            }
        }
        Err(error) if !has_object => {
            tracing::warn!(file = file.id, %error, "a file cannot be read");
        }
        Err(_) => {}
    }
    match app.batches.objects.read(file).await {
        Ok(Some(stream)) => Ok(Content::Bucket(stream)),
        Ok(None) => Err(Failure::not_found(format!(
            "the lines of the file {} are gone",
            file.id
        ))),
        Err(error) => Err(error.for_download(&file.id)),
    }
}

impl Content {
    pub fn into_body(self) -> Body {
        match self {
            Content::Disk(file) => Body::from_stream(ReaderStream::new(file)),
            Content::Bucket(stream) => Body::from_stream(stream.body),
        }
    }

    /// A reader for a thread that may block.
    pub fn into_reader(self, runtime: &Handle) -> Box<dyn Read> {
        match self {
            Content::Disk(file) => Box::new(runtime.block_on(file.into_std())),
            Content::Bucket(stream) => Box::new(BucketReader {
                runtime: runtime.clone(),
                body: stream.body,
                piece: Bytes::new(),
            }),
        }
    }
}

/// Reads a file of a bucket and waits for each piece.
struct BucketReader {
    runtime: Handle,
    body: BoxStream<'static, Result<Bytes, String>>,
    piece: Bytes,
}

impl Read for BucketReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.runtime.block_on(self.body.next()) {
                None => return Ok(0),
                Some(Ok(piece)) => self.piece = piece,
                Some(Err(why)) => return Err(io::Error::other(why)),
            }
        }
        let bytes = buffer.len().min(self.piece.len());
        buffer[..bytes].copy_from_slice(&self.piece.split_to(bytes));
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream;

    #[tokio::test]
    async fn a_blocking_reader_reads_the_pieces_of_a_bucket_and_their_error() {
        let pieces = ["ab", "", "cde"].map(|piece| Ok(Bytes::from(piece)));
        let cut = [Err("connection reset".to_owned())];
        let body = stream::iter(pieces.into_iter().chain(cut)).boxed();
        let content = Content::Bucket(FileStream { bytes: 9, body });
        let runtime = Handle::current();
        let read = tokio::task::spawn_blocking(move || {
            let mut reader = content.into_reader(&runtime);
            let mut text = [0; 5];
            reader.read_exact(&mut text).expect("five bytes");
            let error = reader.read(&mut [0]).expect_err("cut");
            (text, error.to_string())
        });
        let (text, error) = read.await.expect("read");
        assert_eq!(&text, b"abcde");
        assert_eq!(error, "connection reset");
    }
}
