//! A recording while it arrives and while it is read. Small ones stay in memory. Larger ones go to a file without a name, which
//! threads for blocking work write, so their size costs no memory and delays no other request.

use super::recordings_folder::RecordingsFolder;
use crate::api_error::ApiError;
use axum::http::StatusCode;
use std::fs::File;
use std::io::{
    Cursor, Error as IoError, ErrorKind, Read, Result as IoResult, Seek, SeekFrom, Write,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use symphonia::core::io::MediaSource;
use tokio::runtime::Handle;

/// Maximum size of all recordings in the engine together.
const UPLOADS_BYTES_MAX: u64 = 4 << 30;
/// Larger recordings go to a file, in pieces of at least this size.
const IN_MEMORY_BYTES_MAX: usize = 64 << 10;

/// All recordings in the engine.
#[derive(Clone)]
pub(super) struct Uploads {
    bytes: Arc<AtomicU64>,
    bytes_max: u64,
    folder: Arc<RecordingsFolder>,
}

impl Uploads {
    pub fn new(folder: RecordingsFolder) -> Self {
        Self {
            bytes: Arc::default(),
            bytes_max: UPLOADS_BYTES_MAX,
            folder: Arc::new(folder),
        }
    }

    /// Begins an empty recording.
    pub fn begin(&self) -> IncomingUpload {
        IncomingUpload {
            buffer: Vec::new(),
            file: None,
            charge: Charge {
                bytes: 0,
                all: self.clone(),
            },
        }
    }

    /// The error for a recording of which `bytes` bytes have arrived. Blocks.
    fn cannot_keep(&self, bytes: u64, error: &IoError) -> ApiError {
        let folder = self.folder.path().display();
        tracing::warn!(%folder, bytes, %error, "a recording cannot be kept");
        if !matches!(
            error.kind(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded
        ) {
            return ApiError::internal(format!(
                "the recording cannot be kept in the folder {folder} ({error}); check that this account may write there, or set TMPDIR to another folder"
            ));
        }
        let free = self.folder.free_bytes();
        let free = free.map_or("an unknown number of".to_owned(), |free| free.to_string());
        ApiError::with_status(
            StatusCode::SERVICE_UNAVAILABLE,
            "recordings_disk_full",
            format!(
                "the recording does not fit on the disk of the folder {folder} ({error}): {bytes} bytes have arrived, and {free} bytes are free; try again later, make room there, or set TMPDIR to another folder"
            ),
        )
    }
}

/// A recording's part of the limit for all recordings, returned on drop.
struct Charge {
    bytes: u64,
    all: Uploads,
}

impl Charge {
    /// # Errors
    /// 429 if all recordings together become too large.
    fn add(&mut self, length: u64) -> Result<(), ApiError> {
        let before = self.all.bytes.fetch_add(length, Ordering::Relaxed);
        self.bytes += length;
        let bytes_max = self.all.bytes_max;
        if before + length <= bytes_max {
            return Ok(());
        }
        Err(ApiError::with_status(
            StatusCode::TOO_MANY_REQUESTS,
            "queue_full",
            format!(
                "the recordings in this engine have {before} bytes together, of at most {bytes_max}; try again later"
            ),
        ))
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.all.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A file without a name. Closing it frees its blocks, which takes time on a disk and happens on a thread for blocking work.
struct UnnamedFile(Option<File>);

impl UnnamedFile {
    fn get(&mut self) -> IoResult<&mut File> {
        self.0.as_mut().ok_or_else(|| ErrorKind::NotFound.into())
    }
}

impl Drop for UnnamedFile {
    fn drop(&mut self) {
        if let (Some(file), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            drop(runtime.spawn_blocking(move || drop(file)));
        }
    }
}

/// A recording that arrives.
pub(super) struct IncomingUpload {
    /// The bytes that are not in the file yet.
    buffer: Vec<u8>,
    file: Option<UnnamedFile>,
    charge: Charge,
}

impl IncomingUpload {
    pub fn is_empty(&self) -> bool {
        self.charge.bytes == 0
    }

    /// Appends a piece. Returns once it is in the buffer or the file, so no more than a piece and the buffer are in memory.
    ///
    /// # Errors
    /// 429 if the recordings have too many bytes together, 503 if the disk is full.
    pub async fn append(mut self, piece: &[u8]) -> Result<Self, ApiError> {
        self.charge.add(piece.len() as u64)?;
        self.buffer.extend_from_slice(piece);
        if self.buffer.len() <= IN_MEMORY_BYTES_MAX {
            return Ok(self);
        }
        self.blocking(|upload| upload.write_buffer()).await
    }

    /// Ends the recording. It can then be read from its beginning.
    ///
    /// # Errors
    /// 503 if the disk is full.
    pub async fn finish(self) -> Result<Upload, ApiError> {
        if self.file.is_none() {
            return Ok(Upload {
                content: Content::Memory(Cursor::new(self.buffer)),
                charge: self.charge,
            });
        }
        let written = self.blocking(|upload| {
            upload.write_buffer()?;
            upload
                .file
                .as_mut()
                .map_or(Ok(()), |file| file.get()?.rewind())
        });
        let Self { file, charge, .. } = written.await?;
        let content = file.map_or_else(|| Content::Memory(Cursor::default()), Content::File);
        Ok(Upload { content, charge })
    }

    /// Works on a thread for blocking work. If this future is dropped, the recording is dropped after the work.
    async fn blocking(
        self,
        work: impl FnOnce(&mut Self) -> IoResult<()> + Send + 'static,
    ) -> Result<Self, ApiError> {
        let mut upload = self;
        let done = tokio::task::spawn_blocking(move || match work(&mut upload) {
            Ok(()) => Ok(upload),
            Err(error) => {
                let Charge { bytes, all } = &upload.charge;
                Err(all.cannot_keep(*bytes, &error))
            }
        });
        done.await
            .unwrap_or_else(|_| Err(ApiError::internal("the recording could not be written")))
    }

    /// Moves the buffer to the file.
    fn write_buffer(&mut self) -> IoResult<()> {
        if self.file.is_none() {
            let created = self.charge.all.folder.create_file()?;
            self.file = Some(UnnamedFile(Some(created)));
        }
        if let Some(file) = &mut self.file {
            file.get()?.write_all(&self.buffer)?;
        }
        self.buffer.clear();
        Ok(())
    }
}

enum Content {
    Memory(Cursor<Vec<u8>>),
    File(UnnamedFile),
}

/// A complete recording. Its file is removed with it.
pub(super) struct Upload {
    content: Content,
    charge: Charge,
}

impl Read for Upload {
    fn read(&mut self, buffer: &mut [u8]) -> IoResult<usize> {
        match &mut self.content {
            Content::Memory(bytes) => bytes.read(buffer),
            Content::File(file) => file.get()?.read(buffer),
        }
    }
}

impl Seek for Upload {
    fn seek(&mut self, place: SeekFrom) -> IoResult<u64> {
        match &mut self.content {
            Content::Memory(bytes) => bytes.seek(place),
            Content::File(file) => file.get()?.seek(place),
        }
    }
}

impl MediaSource for Upload {
    fn is_seekable(&self) -> bool {
        true
    }

    fn byte_len(&self) -> Option<u64> {
        Some(self.charge.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn uploads(bytes_max: u64) -> (Uploads, TempDir) {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = RecordingsFolder::create(parent.path()).expect("created");
        let all = Uploads {
            bytes_max,
            ..Uploads::new(folder)
        };
        (all, parent)
    }

    fn held(all: &Uploads) -> u64 {
        all.bytes.load(Ordering::Relaxed)
    }

    /// The error of an operation that must fail.
    fn error<T>(result: Result<T, ApiError>) -> ApiError {
        result.err().expect("an error")
    }

    #[tokio::test]
    async fn recordings_of_any_size_and_pieces_are_read_as_they_were_sent() {
        let (all, _parent) = uploads(UPLOADS_BYTES_MAX);
        for (length, piece) in [
            (1, 1),
            (IN_MEMORY_BYTES_MAX, 1000),
            (300_001, 7000),
            (1 << 20, 1 << 20),
        ] {
            let sent: Vec<u8> = (0..length).map(|n| (n % 251) as u8).collect();
            let mut incoming = all.begin();
            for piece in sent.chunks(piece) {
                incoming = incoming.append(piece).await.expect("kept");
                assert!(incoming.buffer.len() <= IN_MEMORY_BYTES_MAX);
            }
            assert_eq!(incoming.file.is_some(), length > IN_MEMORY_BYTES_MAX);
            let mut upload = incoming.finish().await.expect("kept");
            assert_eq!(upload.byte_len(), Some(length as u64));
            let mut read = Vec::new();
            upload.read_to_end(&mut read).expect("read");
            assert!(read == sent, "{length}");
            upload.seek(SeekFrom::End(-1)).expect("sought");
            read.clear();
            upload.read_to_end(&mut read).expect("read");
            assert_eq!(read, sent[length - 1..]);
            assert_eq!(held(&all), length as u64);
            drop(upload);
            assert_eq!(held(&all), 0);
        }
    }

    #[tokio::test]
    async fn recordings_that_are_too_large_together_are_refused_until_one_ends() {
        let (all, _parent) = uploads(100);
        let first = all.begin().append(&[0; 60]).await.expect("room");
        let refused = error(all.begin().append(&[0; 41]).await);
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        assert!(refused.message.contains("60 bytes") && refused.message.contains("100"));
        assert_eq!(held(&all), 60, "a refused recording holds nothing");
        let second = all.begin().append(&[0; 40]).await.expect("room");
        drop((first, second));
        assert_eq!(held(&all), 0);
    }

    #[tokio::test]
    async fn a_full_disk_is_an_error_with_its_folder_and_numbers_and_harms_no_other_recording() {
        let (all, parent) = uploads(UPLOADS_BYTES_MAX);
        let other = all.begin().append(&[1; 200_000]).await.expect("kept");
        let mut incoming = all.begin().append(&[0; 10]).await.expect("kept");
        // Each write to this device fails as on a full disk.
        let full = File::options().write(true).open("/dev/full").expect("open");
        incoming.file = Some(UnnamedFile(Some(full)));
        let refused = error(incoming.append(&[0; 90_000]).await);
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(refused.code, Some("recordings_disk_full"));
        let folder = parent.path().display().to_string();
        for part in [
            folder.as_str(),
            "90010 bytes have arrived",
            "bytes are free",
            "TMPDIR",
        ] {
            assert!(
                refused.message.contains(part),
                "{part}: {}",
                refused.message
            );
        }
        assert_eq!(held(&all), 200_000);
        let mut other = other.finish().await.expect("kept");
        let mut read = Vec::new();
        other.read_to_end(&mut read).expect("read");
        assert!(read == [1; 200_000]);
    }
}
