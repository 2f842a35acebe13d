//! The local folder for adapters from buckets: eviction, and making a downloaded adapter visible. A folder's modification time is
//! the adapter's last use.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pool::Bytes;

/// Adapters used within this time stay: an engine may be about to load them.
const KEPT_FOR: Duration = Duration::from_secs(600);
/// The folder with the locks of files being downloaded.
pub(super) const LOCKS: &str = ".locks";

struct CachedAdapter {
    folder: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// Removes the least recently used adapters until an adapter of size `needed` fits. The inner `Err` has the size of the recently
/// used adapters that must stay. Blocking.
pub(super) fn make_room(
    cache: &Path,
    own: &Path,
    needed: Bytes,
    most: Bytes,
) -> io::Result<Result<(), Bytes>> {
    fs::create_dir_all(own)?;
    let now = SystemTime::now();
    let mut kept = Vec::new();
    for entry in fs::read_dir(cache)? {
        let folder = entry?.path();
        // Existing files of the adapter itself are included in `needed`.
        if folder != own && folder.is_dir() {
            kept.extend(look(folder).transpose().into_iter().flatten());
        }
    }
    kept.sort_by_key(|adapter| adapter.used);
    let mut total = kept
        .iter()
        .fold(needed.0, |sum, adapter| sum.saturating_add(adapter.bytes));
    let is_free = |adapter: &&CachedAdapter| {
        now.duration_since(adapter.used)
            .is_ok_and(|age| age > KEPT_FOR)
    };
    let may_leave = kept.iter().take_while(is_free);
    let possible = may_leave.fold(total, |sum, adapter| sum.saturating_sub(adapter.bytes));
    if possible > most.0 {
        return Ok(Err(Bytes(possible.saturating_sub(needed.0))));
    }
    for adapter in &kept {
        if total <= most.0 {
            break;
        }
        fs::remove_dir_all(&adapter.folder)?;
        total = total.saturating_sub(adapter.bytes);
        tracing::info!(folder = %adapter.folder.display(), bytes = adapter.bytes, "removed a fetched adapter from the disk");
    }
    Ok(Ok(()))
}

/// `None`: another process removed it.
fn look(folder: PathBuf) -> io::Result<Option<CachedAdapter>> {
    let (mut bytes, mut used) = (0_u64, fs::metadata(&folder)?.modified()?);
    for file in fs::read_dir(&folder)? {
        let about = file?.metadata();
        let Ok(about) = about else { return Ok(None) };
        bytes = bytes.saturating_add(about.len());
        // A file may be being written now.
        used = used.max(about.modified()?);
    }
    Ok(Some(CachedAdapter {
        folder,
        bytes,
        used,
    }))
}

/// Renames a complete adapter to its final name, unless another process has already done so. Blocking.
pub(super) fn publish(partial: &Path, folder: &Path) -> io::Result<()> {
    let locks = partial.join(LOCKS);
    match fs::remove_dir_all(&locks) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Different files exist under the final name only if they were edited by hand.
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::rename(partial, folder)
}

/// Records a use of the adapter. Blocking.
pub(super) fn touch(folder: &Path) {
    let touched = File::open(folder).and_then(|folder| folder.set_modified(SystemTime::now()));
    if let Err(error) = touched {
        tracing::debug!(%error, folder = %folder.display(), "the use of an adapter could not be recorded");
    }
}

/// The most recently used complete adapter whose folder begins with `stem`. Blocking.
pub(super) fn newest(cache: &Path, stem: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(cache).ok()?.flatten();
    let own = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with(stem) && !name.ends_with(".partial")
    });
    let timed = own.filter_map(|entry| {
        let used = entry.metadata().ok()?.modified().ok()?;
        Some((used, entry.path()))
    });
    timed.max().map(|(_, folder)| folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapter(cache: &Path, name: &str, bytes: u64, age: u64) -> PathBuf {
        let folder = cache.join(name);
        fs::create_dir_all(&folder).expect("a folder");
        let file = File::create(folder.join("weights")).expect("a file");
        file.set_len(bytes).expect("as long as that");
        let used = SystemTime::now() - Duration::from_secs(age);
        file.set_modified(used).expect("a time");
        let opened = File::open(&folder).expect("a folder");
        opened.set_modified(used).expect("a time");
        folder
    }

    #[test]
    fn the_least_recently_used_adapter_is_removed_and_recently_used_ones_are_kept() {
        let cache = tempfile::tempdir().expect("a folder");
        let cache = cache.path();
        let [old, older, fresh] = [
            adapter(cache, "old", 100, 700),
            adapter(cache, "older", 100, 5000),
            adapter(cache, "fresh", 100, 5),
        ];
        let own = cache.join("own.partial");
        let room = |needed| make_room(cache, &own, Bytes(needed), Bytes(300)).expect("a disk");
        assert_eq!(room(100), Ok(()));
        assert!(old.exists() && !older.exists() && fresh.exists());
        assert_eq!(room(250), Err(Bytes(100)), "the fresh one stays");
        assert!(old.exists(), "nothing leaves in vain");
        touch(&old);
        assert_eq!(room(200), Err(Bytes(200)), "it has been used just now");
        assert_eq!(newest(cache, "ol"), Some(old));
        assert_eq!(newest(cache, "nobody"), None);
    }
}
