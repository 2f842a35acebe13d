//! Allows one download of a file at a time, across all programs on this machine that use the hub's cache: a
//! lock on a file that is never deleted. The system releases it when the process ends.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

/// The lock has no queue, so waiting means polling.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Held until it is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// Waits for the lock. `waits` is called after each failed attempt.
pub(super) async fn lock(path: &Path, mut waits: impl FnMut()) -> io::Result<Lock> {
    if let Some(folder) = path.parent() {
        tokio::fs::create_dir_all(folder).await?;
    }
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true);
    let file = options.open(path)?;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Lock { _file: file }),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) => {
                waits();
                tokio::time::sleep(LOOK_EVERY).await;
            }
            Err(errno) => return Err(errno.into()),
        }
    }
}
