//! What one engine printed: a bounded ring in memory that can be read and followed, and a bounded
//! file. It owns the bounds and the order of lines; it never blocks on a slow follower, and a disk
//! that fails costs the file, not the engine.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use chrono::{DateTime, SecondsFormat, Utc};
use tokio::sync::broadcast;

use super::EngineFault;
use super::masking::Masking;
use crate::pool::ReplicaId;

const LINES_MAX: usize = 1_000;
const BYTES_MAX: usize = 1 << 20;
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Log files that one model keeps, the newest.
const FILES_PER_MODEL_MAX: usize = 10;
const LAST_WORDS_LINES: usize = 5;
const LAST_WORDS_BYTES: usize = 2_048;
/// A follower that falls further behind misses lines, and sees it in the sequence numbers.
const FOLLOWER_LINES_MAX: usize = 1_024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStream {
    Stdout,
    Stderr,
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
    /// Counts from 0 in each replica, without gaps.
    pub sequence: u64,
    pub at: SystemTime,
    pub stream: LogStream,
    pub text: Arc<str>,
}

/// The output of one replica's engine.
pub struct ReplicaLog {
    masking: Masking,
    inner: Mutex<Inner>,
    followers: broadcast::Sender<LogLine>,
}

struct Inner {
    next_sequence: u64,
    ring: VecDeque<LogLine>,
    ring_bytes: usize,
    /// The last non-empty lines of each stream, which the other one cannot push out.
    last_stdout: VecDeque<Arc<str>>,
    last_stderr: VecDeque<Arc<str>>,
    file: Option<LogFile>,
}

impl ReplicaLog {
    /// A log that is also written to `<log_dir>/<model>-<replica>.log`, where `/` in the model's
    /// name is `--`. Makes the directory; removes all but the newest files of the same model.
    pub fn open(
        log_dir: &Path,
        model_name: &str,
        replica: ReplicaId,
    ) -> Result<ReplicaLog, EngineFault> {
        let stem = file_stem(model_name);
        let path = log_dir.join(format!("{stem}-{replica}.log"));
        let fault = |source| EngineFault::LogFile {
            path: path.clone(),
            source,
        };
        std::fs::create_dir_all(log_dir).map_err(fault)?;
        remove_old(log_dir, &stem);
        let file = LogFile::open(path.clone()).map_err(fault)?;
        Ok(ReplicaLog::with(Some(file)))
    }

    /// A log without a file.
    pub fn in_memory() -> ReplicaLog {
        ReplicaLog::with(None)
    }

    fn with(file: Option<LogFile>) -> ReplicaLog {
        ReplicaLog {
            masking: Masking::default(),
            inner: Mutex::new(Inner {
                next_sequence: 0,
                ring: VecDeque::new(),
                ring_bytes: 0,
                last_stdout: VecDeque::new(),
                last_stderr: VecDeque::new(),
                file,
            }),
            followers: broadcast::Sender::new(FOLLOWER_LINES_MAX),
        }
    }

    /// The same log, which masks these secrets too.
    pub fn masking(self, masking: Masking) -> ReplicaLog {
        ReplicaLog { masking, ..self }
    }

    /// Adds one line, with its secrets masked. `text` must not hold a line end.
    pub fn push(&self, stream: LogStream, text: &str) {
        let masked = self.masking.mask(text);
        let text = masked.as_deref().unwrap_or(text);
        let mut inner = self.lock();
        let line = LogLine {
            sequence: inner.next_sequence,
            at: SystemTime::now(),
            stream,
            text: text.into(),
        };
        inner.next_sequence += 1;
        inner.keep(&line);
        // Sent under the lock, so that `follow` neither misses nor repeats a line. No follower is
        // no error.
        let _ = self.followers.send(line);
    }

    /// A text without the secrets that no line of this log shows.
    pub fn masked(&self, text: &str) -> String {
        self.masking.mask(text).unwrap_or_else(|| text.to_owned())
    }

    /// The newest lines, at most `count`, oldest first.
    pub fn tail(&self, count: usize) -> Vec<LogLine> {
        self.lock().tail(count)
    }

    /// The newest lines and all that come after them. A receiver that reports `Lagged` has missed
    /// lines and goes on with the oldest it still has.
    pub fn follow(&self, count: usize) -> (Vec<LogLine>, broadcast::Receiver<LogLine>) {
        let inner = self.lock();
        (inner.tail(count), self.followers.subscribe())
    }

    /// The last non-empty lines of stderr, or of stdout when stderr is empty: at most 5 lines and
    /// 2 KiB.
    pub fn last_words(&self) -> String {
        let inner = self.lock();
        let lines = match inner.last_stderr.is_empty() {
            true => &inner.last_stdout,
            false => &inner.last_stderr,
        };
        let text = lines
            .iter()
            .map(|line| &**line)
            .collect::<Vec<_>>()
            .join("\n");
        let surplus = text.len().saturating_sub(LAST_WORDS_BYTES);
        text[text.ceil_char_boundary(surplus)..].to_owned()
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
    fn keep(&mut self, line: &LogLine) {
        if !line.text.trim().is_empty() {
            let last = match line.stream {
                LogStream::Stdout => &mut self.last_stdout,
                LogStream::Stderr => &mut self.last_stderr,
            };
            last.push_back(Arc::clone(&line.text));
            if last.len() > LAST_WORDS_LINES {
                last.pop_front();
            }
        }
        self.ring_bytes += line.text.len();
        self.ring.push_back(line.clone());
        while self.ring.len() > LINES_MAX || self.ring_bytes > BYTES_MAX {
            let Some(oldest) = self.ring.pop_front() else {
                break;
            };
            self.ring_bytes -= oldest.text.len();
        }
        if let Some(file) = &mut self.file
            && let Err(error) = file.write(line)
        {
            tracing::warn!(path = ?file.path, %error, "engine log file given up; the log goes on in memory");
            self.file = None;
        }
    }

    fn tail(&self, count: usize) -> Vec<LogLine> {
        let skipped = self.ring.len().saturating_sub(count);
        self.ring.iter().skip(skipped).cloned().collect()
    }
}

/// A file and its one predecessor, `….log.1`.
struct LogFile {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl LogFile {
    fn open(path: PathBuf) -> io::Result<LogFile> {
        // Engines may print prompts: the file is for its owner alone.
        let file = File::options()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)?;
        let bytes = file.metadata()?.len();
        Ok(LogFile { path, file, bytes })
    }

    fn write(&mut self, line: &LogLine) -> io::Result<()> {
        let at = DateTime::<Utc>::from(line.at).to_rfc3339_opts(SecondsFormat::Millis, true);
        let text = format!("{at} {} {}\n", line.stream, line.text);
        if self.bytes > 0 && self.bytes + text.len() as u64 > FILE_BYTES_MAX {
            let mut predecessor = self.path.clone().into_os_string();
            predecessor.push(".1");
            std::fs::rename(&self.path, predecessor)?;
            *self = LogFile::open(self.path.clone())?;
        }
        self.file.write_all(text.as_bytes())?;
        self.bytes += text.len() as u64;
        Ok(())
    }
}

/// A model's name as the beginning of a file name: no separators, nothing hidden, of a length that
/// every file system takes.
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

/// Every launch has its own file, so without this a model that is loaded often would fill the disk.
/// Failing is harmless: the next launch tries again.
fn remove_old(log_dir: &Path, stem: &str) {
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
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    files.sort();
    // One place is for the file that is about to be made.
    let surplus = (files.len() + 1).saturating_sub(FILES_PER_MODEL_MAX);
    for (_, path) in files.into_iter().take(surplus) {
        let _ = std::fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_is_bounded_in_lines_and_in_bytes() {
        let log = ReplicaLog::in_memory();
        for number in 0..LINES_MAX + 10 {
            log.push(LogStream::Stdout, &number.to_string());
        }
        let lines = log.tail(usize::MAX);
        assert_eq!(lines.len(), LINES_MAX);
        assert_eq!(lines[0].sequence, 10);
        let long = "x".repeat(BYTES_MAX / 4);
        for _ in 0..10 {
            log.push(LogStream::Stdout, &long);
        }
        assert_eq!(log.tail(usize::MAX).len(), 4);
    }

    #[test]
    fn a_flood_on_stdout_does_not_push_out_the_last_words() {
        let log = ReplicaLog::in_memory();
        for number in 0..8 {
            log.push(LogStream::Stderr, &format!("error {number}"));
        }
        log.push(LogStream::Stderr, "  ");
        for _ in 0..5_000 {
            log.push(LogStream::Stdout, "noise");
        }
        assert_eq!(
            log.last_words(),
            "error 3\nerror 4\nerror 5\nerror 6\nerror 7"
        );
        log.push(LogStream::Stderr, &"ü".repeat(3_000));
        assert_eq!(log.last_words(), "ü".repeat(1_024));
    }

    #[test]
    fn a_follower_gets_every_line_exactly_once() {
        let log = ReplicaLog::in_memory();
        log.push(LogStream::Stdout, "one");
        log.push(LogStream::Stdout, "two");
        let (before, mut after) = log.follow(1);
        log.push(LogStream::Stderr, "three");
        assert_eq!(&*before[0].text, "two");
        assert_eq!(&*after.try_recv().unwrap().text, "three");
    }

    #[test]
    fn the_file_is_rotated_once_and_never_grows_beyond_its_bound() {
        let home = tempfile::tempdir().unwrap();
        let log = ReplicaLog::open(home.path(), "org/../model", ReplicaId(4)).unwrap();
        let long = "x".repeat(1 << 20);
        for _ in 0..40 {
            log.push(LogStream::Stdout, &long);
        }
        let mut files: Vec<(String, u64)> = std::fs::read_dir(home.path())
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                let name = entry.file_name().into_string().unwrap();
                (name, entry.metadata().unwrap().len())
            })
            .collect();
        files.sort();
        assert_eq!(files[0].0, "org--..--model-r4.log");
        assert_eq!(files[1].0, "org--..--model-r4.log.1");
        assert_eq!(files.len(), 2);
        assert!(files.iter().all(|(_, bytes)| *bytes <= FILE_BYTES_MAX));
    }

    #[test]
    fn a_full_disk_costs_the_file_and_not_the_log() {
        let home = tempfile::tempdir().unwrap();
        // Every write to it finds the disk full.
        std::os::unix::fs::symlink("/dev/full", home.path().join("m-r1.log")).unwrap();
        let log = ReplicaLog::open(home.path(), "m", ReplicaId(1)).unwrap();
        log.push(LogStream::Stderr, "one");
        log.push(LogStream::Stderr, "two");
        assert_eq!(log.last_words(), "one\ntwo");
        assert!(log.lock().file.is_none(), "it is not tried for each line");
    }

    #[test]
    fn a_secret_is_in_neither_the_lines_nor_the_file_nor_the_last_words() {
        let home = tempfile::tempdir().unwrap();
        let env = [("HF_TOKEN".to_owned(), "secret-of-mine".to_owned())];
        let log = ReplicaLog::open(home.path(), "m", ReplicaId(1)).unwrap();
        let log = log.masking(Masking::of(&env.into(), &[]));
        log.push(LogStream::Stderr, "login with secret-of-mine failed");
        let file = std::fs::read_to_string(home.path().join("m-r1.log")).unwrap();
        let all = format!("{file}{}{}", log.last_words(), log.tail(1)[0].text);
        assert!(!all.contains("secret-of-mine"), "{all}");
        assert_eq!(all.matches("login with [masked] failed").count(), 3);
    }

    #[test]
    fn a_model_that_is_loaded_often_keeps_its_newest_files_only() {
        let home = tempfile::tempdir().unwrap();
        let _other = ReplicaLog::open(home.path(), "a-r", ReplicaId(1)).unwrap();
        for replica in 0..30 {
            let log = ReplicaLog::open(home.path(), "a", ReplicaId(replica)).unwrap();
            log.push(LogStream::Stdout, "hello");
        }
        let names = std::fs::read_dir(home.path()).unwrap().count();
        assert_eq!(names, FILES_PER_MODEL_MAX + 1);
        assert!(home.path().join("a-r-r1.log").exists());
        assert!(home.path().join("a-r29.log").exists());
    }
}
