//! Checks the disk space for a fetch before it begins. Space that other fetches still need on the same disk counts as used.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::error::SourceError;
use super::progress::Progress;

/// The running fetches.
type RunningFetches = Arc<Mutex<Vec<RunningFetch>>>;

#[derive(Debug)]
struct RunningFetch {
    device: u64,
    /// Fetches into one model's folder download the same files.
    model: PathBuf,
    progress: Arc<Progress>,
}

/// The reservations of all fetches.
#[derive(Debug, Default)]
pub(super) struct Rooms {
    running: RunningFetches,
}

/// A reservation, held until the fetch has ended.
#[derive(Debug)]
pub(super) struct Room {
    running: RunningFetches,
    own: Arc<Progress>,
}

impl Rooms {
    /// Reserves space for the rest of a fetch. Refuses if less than `keep` bytes would stay free.
    pub fn take(
        &self,
        folder: &Path,
        keep: u64,
        progress: &Arc<Progress>,
    ) -> Result<Room, SourceError> {
        let model = folder.to_owned();
        let folder = existing(folder);
        let device = std::fs::metadata(&folder)
            .map_err(SourceError::disk(&folder))?
            .dev();
        let free = free_on(&folder)?;
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let is_other = |taker: &&RunningFetch| taker.device == device && taker.model != model;
        let others = running.iter().filter(is_other);
        let taken: u64 = others.map(|taker| taker.progress.left()).sum();
        let (needs, free) = (progress.left(), free.saturating_sub(taken));
        // A completed fetch needs no space, even on a full disk.
        if needs > 0 && needs.saturating_add(keep) > free {
            return Err(SourceError::NoRoom {
                needs,
                free,
                keep,
                path: folder,
            });
        }
        running.push(RunningFetch {
            device,
            model,
            progress: Arc::clone(progress),
        });
        Ok(Room {
            running: Arc::clone(&self.running),
            own: Arc::clone(progress),
        })
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.retain(|taker| !Arc::ptr_eq(&taker.progress, &self.own));
    }
}

pub(super) fn free_on(folder: &Path) -> Result<u64, SourceError> {
    let there =
        rustix::fs::statvfs(folder).map_err(|errno| SourceError::disk(folder)(errno.into()))?;
    Ok(there.f_bavail.saturating_mul(there.f_frsize))
}

/// The folder, or its closest existing ancestor.
fn existing(folder: &Path) -> PathBuf {
    let there = folder.ancestors().find(|path| path.exists());
    there.unwrap_or(Path::new("/")).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(bytes: u64) -> Arc<Progress> {
        let progress = Arc::new(Progress::default());
        progress.begins(bytes, 0);
        progress
    }

    #[test]
    fn a_download_that_does_not_fit_is_refused_with_numbers_and_running_ones_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let rooms = Rooms::default();
        let free = free_on(folder.path()).expect("a disk");
        let most = free / 3 * 2;
        let error = rooms.take(folder.path(), free, &left(1)).unwrap_err();
        assert!(error.to_string().contains("sources.keep_free"), "{error}");
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        let first = rooms.take(&one, 0, &left(most)).expect("room");
        assert!(rooms.take(&other, 0, &left(most)).is_err());
        assert!(rooms.take(&one, 0, &left(most)).is_ok(), "the same files");
        drop(first);
        assert!(rooms.take(&other, 0, &left(most)).is_ok());
        assert!(rooms.take(&folder.path().join("a/b"), 0, &left(0)).is_ok());
    }
}
