//! The access log: one JSON line per request, written by a dedicated thread. Requests never wait for the disk: if the queue is
//! full, lines are dropped and their number is logged.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

/// Largest number of lines waiting for the disk.
const LINES_MAX: usize = 8192;
/// Largest number of bytes per write.
const WRITE_BYTES_MAX: usize = 1 << 20;
/// Longest wait for the last lines at shutdown.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
#[error("server.access_log: {path} cannot be opened: {source}")]
pub struct AccessLogError {
    path: String,
    source: io::Error,
}

/// A cheap handle. Lines of one sender keep their order.
#[derive(Debug)]
pub(super) struct AccessLog {
    lines: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

enum Message {
    Line(String),
    /// Acknowledged once everything before it has been written.
    End(SyncSender<()>),
}

impl AccessLog {
    /// Returns `None` if no log is configured.
    pub fn open(
        target: &config::AccessLog,
        bytes_max: u64,
    ) -> Result<Option<AccessLog>, AccessLogError> {
        let target = match target {
            config::AccessLog::Off => return Ok(None),
            config::AccessLog::Stderr => Target::Stderr,
            config::AccessLog::File(path) => {
                let failed = |source| AccessLogError {
                    path: path.display().to_string(),
                    source,
                };
                Target::open(path, bytes_max).map_err(failed)?
            }
        };
        let (lines, received) = sync_channel(LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&dropped);
        let thread = thread::Builder::new().name("access-log".to_owned());
        let spawned = thread.spawn(move || write_all(&received, target, &counted));
        spawned.map_err(|source| AccessLogError {
            path: "its thread".to_owned(),
            source,
        })?;
        Ok(Some(AccessLog { lines, dropped }))
    }

    pub fn write(&self, line: String) {
        if let Err(TrySendError::Full(_)) = self.lines.try_send(Message::Line(line)) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all lines so far are written. Blocks.
    pub fn finish(&self) {
        let (done, heard) = sync_channel(1);
        if self.lines.try_send(Message::End(done)).is_ok() {
            let _ = heard.recv_timeout(ENDS_WITHIN);
        }
    }
}

enum Target {
    Stderr,
    File {
        path: PathBuf,
        file: File,
        /// Size limit of the file, and of its predecessor `….1`; 0 means no limit.
        bytes_max: u64,
    },
}

impl Target {
    fn open(path: &Path, bytes_max: u64) -> io::Result<Target> {
        Ok(Target::File {
            path: path.to_owned(),
            file: append_to(path)?,
            bytes_max,
        })
    }

    /// Reopens the file if it was moved or removed, as log rotation does, and rotates it if it would become too long.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Target::File {
            path,
            file,
            bytes_max,
        } = self
        else {
            return io::stderr().lock().write_all(bytes);
        };
        let own = file.metadata()?;
        let there = std::fs::metadata(&*path);
        let is_same =
            there.is_ok_and(|metadata| (metadata.ino(), metadata.dev()) == (own.ino(), own.dev()));
        let is_full = *bytes_max > 0 && own.len() + bytes.len() as u64 > *bytes_max;
        if is_same && is_full && own.len() > 0 && own.is_file() {
            let mut predecessor = path.clone().into_os_string();
            predecessor.push(".1");
            std::fs::rename(&*path, predecessor)?;
        }
        if !is_same || is_full {
            *file = append_to(path)?;
        }
        file.write_all(bytes)
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

fn write_all(received: &Receiver<Message>, mut target: Target, dropped: &AtomicU64) {
    let mut is_failing = false;
    while let Ok(first) = received.recv() {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        while let Some(message) = next.take() {
            match message {
                Message::Line(line) => {
                    bytes.extend_from_slice(line.as_bytes());
                    bytes.push(b'\n');
                }
                Message::End(done) => ends.push(done),
            }
            if bytes.len() < WRITE_BYTES_MAX {
                next = received.try_recv().ok();
            }
        }
        let lost = dropped.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::warn!(
                "dropped {lost} lines of the access log: they arrived faster than they could be written"
            );
            let line = serde_json::json!({ "dropped_lines": lost }).to_string();
            bytes.extend_from_slice(line.as_bytes());
            bytes.push(b'\n');
        }
        let written = target.write(&bytes);
        if let (Err(error), false) = (&written, is_failing) {
            tracing::error!(%error, "cannot write the access log; its lines are lost until this is fixed");
        }
        is_failing = written.is_err();
        for done in ends {
            let _ = done.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_written_in_order_and_continue_in_a_new_file_after_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let log = AccessLog::open(&config::AccessLog::File(path.clone()), 0);
        let log = log.unwrap().unwrap();
        log.write("one".to_owned());
        log.write("two".to_owned());
        log.finish();
        let old = folder.path().join("access.log.1");
        std::fs::rename(&path, &old).unwrap();
        log.write("three".to_owned());
        log.finish();
        assert_eq!(std::fs::read_to_string(old).unwrap(), "one\ntwo\n");
        assert_eq!(std::fs::read_to_string(path).unwrap(), "three\n");
    }

    #[test]
    fn an_unrotated_file_keeps_one_predecessor_and_both_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let mut target = Target::open(&path, 1_000).unwrap();
        for number in 0..500 {
            target.write(format!("line {number}\n").as_bytes()).unwrap();
        }
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let entry = entry.unwrap();
            assert!(entry.metadata().unwrap().len() <= 1_000, "{entry:?}");
            names.push(entry.file_name().into_string().unwrap());
        }
        names.sort();
        assert_eq!(names, ["access.log", "access.log.1"]);
        let newest = std::fs::read_to_string(path).unwrap();
        assert!(newest.ends_with("line 499\n"), "{newest}");
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_named() {
        let target = config::AccessLog::File(PathBuf::from("/proc/nowhere/access.log"));
        let error = AccessLog::open(&target, 0).unwrap_err().to_string();
        assert!(error.contains("/proc/nowhere/access.log"), "{error}");
    }

    #[test]
    fn lines_beyond_the_buffer_are_dropped_and_counted() {
        let (lines, received) = sync_channel(1);
        let dropped = Arc::new(AtomicU64::new(0));
        let log = AccessLog {
            lines,
            dropped: Arc::clone(&dropped),
        };
        for number in 0..3 {
            log.write(number.to_string());
        }
        assert_eq!(dropped.load(Ordering::Relaxed), 2);
        drop(log);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        write_all(&received, Target::open(&path, 0).unwrap(), &dropped);
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text, "0\n{\"dropped_lines\":2}\n");
    }
}
