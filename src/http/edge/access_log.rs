//! The access log: one JSON line for each request, written by a thread of its own. A request never waits
//! for the disk: lines for which there is no room are dropped, counted, and the count is told.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use crate::config;

/// Lines that may wait for the disk.
const LINES_MAX: usize = 8192;
/// So much is gathered for one write.
const WRITE_BYTES_MAX: usize = 1 << 20;
/// How long the end waits for the last lines.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
#[error("server.access_log: {path} cannot be opened: {source}")]
pub struct AccessLogError {
    path: String,
    source: io::Error,
}

/// Cheap to share; lines of one sender keep their order.
#[derive(Debug)]
pub(super) struct AccessLog {
    lines: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

enum Message {
    Line(String),
    /// Everything before it is written when this is answered.
    End(SyncSender<()>),
}

impl AccessLog {
    /// Nothing if there is to be no log.
    pub fn open(target: &config::AccessLog) -> Result<Option<AccessLog>, AccessLogError> {
        let target = match target {
            config::AccessLog::Off => return Ok(None),
            config::AccessLog::Stderr => Target::Stderr,
            config::AccessLog::File(path) => {
                let failed = |source| AccessLogError {
                    path: path.display().to_string(),
                    source,
                };
                Target::open(path).map_err(failed)?
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

    /// Waits until what was said so far is written. It blocks.
    pub fn finish(&self) {
        let (done, heard) = sync_channel(1);
        if self.lines.try_send(Message::End(done)).is_ok() {
            let _ = heard.recv_timeout(ENDS_WITHIN);
        }
    }
}

enum Target {
    Stderr,
    File { path: PathBuf, file: File },
}

impl Target {
    fn open(path: &Path) -> io::Result<Target> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Target::File {
            path: path.to_owned(),
            file,
        })
    }

    /// A file that was moved away or removed, as log rotation does, is made anew.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Target::File { path, file } = self else {
            return io::stderr().lock().write_all(bytes);
        };
        let own = file.metadata()?;
        let there = std::fs::metadata(&*path);
        let is_same = there.is_ok_and(|it| (it.ino(), it.dev()) == (own.ino(), own.dev()));
        if !is_same {
            *file = OpenOptions::new().create(true).append(true).open(path)?;
        }
        file.write_all(bytes)
    }
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
                "{lost} lines of the access log were dropped: they came faster than they could be written"
            );
            let line = serde_json::json!({ "dropped_lines": lost }).to_string();
            bytes.extend_from_slice(line.as_bytes());
            bytes.push(b'\n');
        }
        let written = target.write(&bytes);
        if let (Err(error), false) = (&written, is_failing) {
            tracing::error!(%error, "the access log cannot be written; its lines are lost until it can");
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
    fn lines_are_written_in_order_and_go_on_in_a_new_file_after_rotation() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let log = AccessLog::open(&config::AccessLog::File(path.clone()));
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
    fn a_file_that_cannot_be_opened_is_named() {
        let target = config::AccessLog::File(PathBuf::from("/proc/nowhere/access.log"));
        let error = AccessLog::open(&target).unwrap_err().to_string();
        assert!(error.contains("/proc/nowhere/access.log"), "{error}");
    }

    #[test]
    fn lines_for_which_there_is_no_room_are_dropped_and_counted() {
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
        write_all(&received, Target::open(&path).unwrap(), &dropped);
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text, "0\n{\"dropped_lines\":2}\n");
    }
}
