//! Writes bytes to disk and computes their digest on a separate thread. Neither hashing nor a slow disk delays requests.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use sha1::Digest as _;
use tokio::sync::mpsc;

use super::lock::Lock;
use super::part::{Check, Part};
use super::progress::Progress;

/// Maximum chunks waiting for the disk; a faster network has to wait.
const CHUNKS_MAX: usize = 16;
const READ_BYTES: usize = 1 << 20;

/// A file being written, with the digest of its content so far.
pub(super) struct PartWriter {
    file: File,
    pub path: PathBuf,
    pub length: u64,
    digest: Digest,
    /// Released when the last writer ends: a thread may outlive the fetch that started it.
    lock: Lock,
}

/// The result of verifying a file that has all its bytes.
pub(super) enum VerifyResult {
    Right,
    /// The content is wrong, and the file was deleted.
    Wrong {
        expected: String,
        got: String,
        lock: Lock,
    },
}

enum Digest {
    None,
    Sha256(sha2::Sha256),
    Sha1(sha1::Sha1),
    Md5(md5::Md5),
}

impl Digest {
    fn new(part: &Part) -> Digest {
        match &part.check {
            Check::Size => Digest::None,
            Check::Sha256(_) => Digest::Sha256(sha2::Sha256::new()),
            Check::Md5(_) => Digest::Md5(md5::Md5::new()),
            Check::GitSha1(_) => {
                let mut digest = sha1::Sha1::new();
                digest.update(format!("blob {}\0", part.size));
                Digest::Sha1(digest)
            }
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Digest::None => {}
            Digest::Sha256(digest) => digest.update(bytes),
            Digest::Sha1(digest) => digest.update(bytes),
            Digest::Md5(digest) => digest.update(bytes),
        }
    }

    fn hex(self) -> Option<String> {
        let bytes: Vec<u8> = match self {
            Digest::None => return None,
            Digest::Sha256(digest) => digest.finalize().to_vec(),
            Digest::Sha1(digest) => digest.finalize().to_vec(),
            Digest::Md5(digest) => digest.finalize().to_vec(),
        };
        Some(hex(&bytes))
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl PartWriter {
    /// Continues the file that an earlier attempt left at `path`, or creates it. Blocking: reads the existing content.
    pub fn open(path: &Path, part: &Part, lock: Lock) -> io::Result<PartWriter> {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut options = OpenOptions::new();
        options.create(true).truncate(false).read(true).write(true);
        let mut file = options.open(path)?;
        let mut writing = PartWriter {
            length: 0,
            digest: Digest::new(part),
            path: path.to_owned(),
            file: file.try_clone()?,
            lock,
        };
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                count => {
                    writing.digest.update(&buffer[..count]);
                    writing.length += count as u64;
                }
            }
            if writing.length > part.size {
                writing.restart(part)?;
                break;
            }
        }
        Ok(writing)
    }

    /// Discards everything written so far.
    pub fn restart(&mut self, part: &Part) -> io::Result<()> {
        self.file.set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.length = 0;
        self.digest = Digest::new(part);
        Ok(())
    }

    /// Returns a channel for the rest of the file's bytes, and a task that returns the file once the channel is closed.
    pub fn begin(
        self,
        progress: Arc<Progress>,
    ) -> (
        mpsc::Sender<Bytes>,
        tokio::task::JoinHandle<io::Result<PartWriter>>,
    ) {
        let (sender, mut chunks) = mpsc::channel::<Bytes>(CHUNKS_MAX);
        let mut writing = self;
        let written = tokio::task::spawn_blocking(move || {
            while let Some(chunk) = chunks.blocking_recv() {
                writing.file.write_all(&chunk)?;
                writing.digest.update(&chunk);
                writing.length += chunk.len() as u64;
                // Counted bytes have been written to the file and survive if this process is killed.
                progress.adds(chunk.len() as u64);
            }
            Ok(writing)
        });
        (sender, written)
    }

    /// Renames the file if its content is correct; otherwise deletes it and returns the expected and actual digest. Blocks until
    /// the data is on disk.
    pub fn finish(self, part: &Part, to: &Path) -> io::Result<VerifyResult> {
        let size = (
            format!("{} bytes", part.size),
            format!("{} bytes", self.length),
        );
        let digest = self.digest.hex();
        let (expected, got) = match (&part.check, digest) {
            _ if self.length != part.size => size,
            (Check::Sha256(right), Some(got)) => {
                (format!("sha256 {right}"), format!("sha256 {got}"))
            }
            (Check::GitSha1(right), Some(got)) => (format!("git {right}"), format!("git {got}")),
            (Check::Md5(right), Some(got)) => (format!("md5 {right}"), format!("md5 {got}")),
            _ => size,
        };
        if expected != got {
            std::fs::remove_file(&self.path)?;
            return Ok(VerifyResult::Wrong {
                expected,
                got,
                lock: self.lock,
            });
        }
        self.file.sync_all()?;
        std::fs::rename(&self.path, to)?;
        Ok(VerifyResult::Right)
    }
}
