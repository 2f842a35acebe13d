//! The output of one engine: a bounded ring in memory that can be read and followed. A slow follower never blocks it. The engine's
//! guardian writes the log file and continues without a controller; this module adds only the pool's own lines about an engine
//! without a guardian.

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::broadcast;

use crate::failures::EngineError;
use guardian::protocol::{Line, Stream};
use guardian::{LogFile, Masking};
use pool::ReplicaId;

const LINES_MAX: usize = 1_000;
const BYTES_MAX: usize = 1 << 20;
/// Maximum number of log files per model; the oldest are removed first.
const FILES_PER_MODEL_MAX: usize = 10;
/// Maximum size of the log files of all models together.
const FOLDER_BYTES_MAX: u64 = 4 << 30;
/// Lines that a follower may lag behind before it misses some. The sequence numbers show gaps.
const FOLLOWER_LINES_MAX: usize = 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    Stdout,
    Stderr,
}

impl From<Stream> for LogStream {
    fn from(stream: Stream) -> LogStream {
        match stream {
            Stream::Stdout => LogStream::Stdout,
            Stream::Stderr => LogStream::Stderr,
        }
    }
}

impl fmt::Display for LogStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LogStream::Stdout => "stdout",
            LogStream::Stderr => "stderr",
        })
    }
}

/// One line, without its end, in valid text without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Counts from 0 in each replica. A gap means that lines arrived too fast and are only in the file.
    pub sequence: u64,
    pub at: SystemTime,
    pub stream: LogStream,
    pub text: Arc<str>,
}

/// The output of one replica's engine.
pub struct ReplicaLog {
    masking: Masking,
    inner: Mutex<Inner>,
    file: OnceLock<PathBuf>,
}

struct Inner {
    next_sequence: u64,
    ring: VecDeque<LogLine>,
    ring_bytes: usize,
    /// Created for the first follower and dropped after the last: it allocates room for all lines that a follower may lag behind,
    /// some 80 KiB, and a pool may have ten thousand replicas.
    followers: Option<broadcast::Sender<LogLine>>,
}

impl ReplicaLog {
    /// A log that is also written to `<log_dir>/<model>-<replica>.log`, where `/` in the model's name becomes
    /// `--`. Creates the directory; removes all but the newest files of the same model.
    pub fn open(
        log_dir: &Path,
        model_name: &str,
        replica: ReplicaId,
    ) -> Result<ReplicaLog, EngineError> {
        let log = ReplicaLog::in_memory();
        log.open_file(log_dir, model_name, replica)?;
        log.remove_others(log_dir, model_name);
        Ok(log)
    }

    /// Adds the file to the log, if it has none yet. Blocks. The engine is started right after this, so old files are removed
    /// separately by [`remove_others`](ReplicaLog::remove_others), which takes the disk longer than all the rest.
    pub(crate) fn open_file(
        &self,
        log_dir: &Path,
        model_name: &str,
        replica: ReplicaId,
    ) -> Result<(), EngineError> {
        if self.file.get().is_some() {
            return Ok(());
        }
        let stem = file_stem(model_name);
        let path = log_dir.join(format!("{stem}-{replica}.log"));
        let error = |source| EngineError::LogFile {
            path: path.clone(),
            source,
        };
        private_files::make(log_dir).map_err(error)?;
        LogFile::open(path.clone()).map_err(error)?;
        let _ = self.file.set(path);
        Ok(())
    }

    /// Removes the oldest files of the same model and of the folder, beyond their limits. Blocks.
    pub(crate) fn remove_others(&self, log_dir: &Path, model_name: &str) {
        if let Some(own) = self.file() {
            remove_old(log_dir, &file_stem(model_name), own);
            remove_surplus(log_dir, FOLDER_BYTES_MAX);
        }
    }

    /// The log of an engine that already runs; its guardian has the newest lines.
    pub fn adopted(file: Option<PathBuf>) -> ReplicaLog {
        ReplicaLog::with(file)
    }

    /// A log without a file.
    pub fn in_memory() -> ReplicaLog {
        ReplicaLog::with(None)
    }

    fn with(file: Option<PathBuf>) -> ReplicaLog {
        ReplicaLog {
            masking: Masking::default(),
            inner: Mutex::new(Inner {
                next_sequence: 0,
                ring: VecDeque::new(),
                ring_bytes: 0,
                followers: None,
            }),
            file: file.map(OnceLock::from).unwrap_or_default(),
        }
    }

    /// Adds these secrets to those that the log masks.
    pub fn masking(self, masking: Masking) -> ReplicaLog {
        ReplicaLog { masking, ..self }
    }

    /// The log file.
    pub fn file(&self) -> Option<&Path> {
        self.file.get().map(PathBuf::as_path)
    }

    /// Adds a line of the pool itself, with secrets masked, and writes it to the file. `text` must not contain a newline.
    pub fn push(&self, stream: LogStream, text: &str) {
        let masked = self.masking.mask(text);
        let text = masked.as_deref().unwrap_or(text);
        let now = SystemTime::now();
        if let Some(path) = self.file.get() {
            let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
            let line = Line {
                sequence: 0,
                at_ms: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
                stream: match stream {
                    LogStream::Stdout => Stream::Stdout,
                    LogStream::Stderr => Stream::Stderr,
                },
                text: text.to_owned(),
            };
            let written = LogFile::open(path.clone()).and_then(|mut file| file.write(&line));
            if let Err(error) = written {
                tracing::warn!(?path, %error, "a line is missing in an engine's log file");
            }
        }
        let next = self.lock().next_sequence;
        self.add(next, now, stream, text);
    }

    /// Adds a line of an engine on another machine. Its node has masked the secrets and keeps the file.
    pub fn relay(&self, line: LogLine) {
        let LogLine {
            sequence,
            at,
            stream,
            text,
        } = line;
        if self.lock().has(sequence, at) {
            return;
        }
        self.add(sequence, at, stream, &text);
    }

    /// Adds a line that the guardian has already written to the file.
    pub(crate) fn take(&self, line: &Line) {
        let at = UNIX_EPOCH + Duration::from_millis(line.at_ms);
        self.add(line.sequence, at, line.stream.into(), &line.text);
    }

    fn add(&self, sequence: u64, at: SystemTime, stream: LogStream, text: &str) {
        let mut inner = self.lock();
        let line = LogLine {
            sequence,
            at,
            stream,
            text: text.into(),
        };
        inner.next_sequence = sequence + 1;
        inner.keep(&line);
        // Sent under the lock: `follow` neither misses nor repeats a line.
        let followers = inner.followers.as_ref();
        if followers.is_some_and(|followers| followers.send(line).is_err()) {
            // The last follower has left.
            inner.followers = None;
        }
    }

    /// Masks the secrets of this log in a text.
    pub fn masked(&self, text: &str) -> String {
        self.masking.mask(text).unwrap_or_else(|| text.to_owned())
    }

    /// The newest lines, at most `count`, oldest first.
    pub fn tail(&self, count: usize) -> Vec<LogLine> {
        self.lock().tail(count)
    }

    /// The newest lines as one text.
    pub(crate) fn tail_text(&self, count: usize) -> String {
        let lines = self.tail(count).into_iter();
        let texts: Vec<String> = lines.map(|line| line.text.to_string()).collect();
        texts.join("\n")
    }

    /// The newest lines, and a receiver for all later ones. A receiver that reports `Lagged` has missed lines
    /// and continues with the oldest that it still has.
    pub fn follow(&self, count: usize) -> (Vec<LogLine>, broadcast::Receiver<LogLine>) {
        let mut inner = self.lock();
        let followers = inner
            .followers
            .get_or_insert_with(|| broadcast::Sender::new(FOLLOWER_LINES_MAX));
        let later = followers.subscribe();
        (inner.tail(count), later)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ReplicaLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.lock();
        f.debug_struct("ReplicaLog")
            .field("lines", &inner.next_sequence)
            .field("kept", &inner.ring.len())
            .finish()
    }
}

impl Inner {
    /// Returns true if this line has been added before: a node that was replaced repeats the newest lines.
    fn has(&self, sequence: u64, at: SystemTime) -> bool {
        let is_it = |line: &LogLine| line.sequence == sequence && line.at == at;
        sequence < self.next_sequence && self.ring.iter().rev().any(is_it)
    }

    fn keep(&mut self, line: &LogLine) {
        self.ring_bytes += line.text.len();
        self.ring.push_back(line.clone());
        while self.ring.len() > LINES_MAX || self.ring_bytes > BYTES_MAX {
            let Some(oldest) = self.ring.pop_front() else {
                break;
            };
            self.ring_bytes -= oldest.text.len();
        }
    }

    fn tail(&self, count: usize) -> Vec<LogLine> {
        let skipped = self.ring.len().saturating_sub(count);
        self.ring.iter().skip(skipped).cloned().collect()
    }
}

/// Turns a model's name into the start of a file name: without separators, not hidden, and short enough for every file system.
fn file_stem(model_name: &str) -> String {
    let mut stem: String = model_name
        .replace('/', "--")
        .chars()
        .map(|c| match c {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '.' | '-' | '_' => c,
            _ => '_',
        })
        .take(180)
        .collect();
    if !stem.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        stem.insert(0, '_');
    }
    stem
}

/// Removes old log files of a model. Every launch has its own file, and a model that is loaded often would otherwise fill the disk.
/// A failure is harmless: the next launch tries again.
fn remove_old(log_dir: &Path, stem: &str, own: &Path) {
    let Ok(entries) = std::fs::read_dir(log_dir) else {
        return;
    };
    let is_of_model = |name: &str| {
        let rest = name
            .strip_prefix(stem)
            .and_then(|rest| rest.strip_prefix("-r"));
        let number = rest.and_then(|rest| rest.split_once(".log"));
        number.is_some_and(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let mut files: Vec<(SystemTime, PathBuf)> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_of_model))
        .filter(|entry| Some(entry.file_name().as_os_str()) != own.file_name())
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    files.sort();
    // Leaves room for the engine's own file.
    let surplus = (files.len() + 1).saturating_sub(FILES_PER_MODEL_MAX);
    for (_, path) in files.into_iter().take(surplus) {
        let _ = std::fs::remove_file(path);
    }
}

/// Removes the oldest files, since the number of models is not limited. If one belongs to a running engine that was silent for
/// long, its later output is kept only in memory.
fn remove_surplus(log_dir: &Path, bytes_max: u64) {
    let Ok(entries) = std::fs::read_dir(log_dir) else {
        return;
    };
    let is_log = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.ends_with(".log") || name.ends_with(".log.1"))
    };
    let file = |entry: std::fs::DirEntry| {
        let data = entry.metadata().ok().filter(|data| data.is_file())?;
        Some((data.modified().ok()?, entry.path(), data.len()))
    };
    let files = entries.flatten().filter_map(file);
    let mut files: Vec<_> = files.filter(|(_, path, _)| is_log(path)).collect();
    files.sort();
    let mut bytes: u64 = files.iter().map(|(.., bytes)| bytes).sum();
    for (_, path, own) in files {
        if bytes <= bytes_max {
            return;
        }
        if std::fs::remove_file(path).is_ok() {
            bytes -= own;
        }
    }
}

#[cfg(test)]
mod tests;
