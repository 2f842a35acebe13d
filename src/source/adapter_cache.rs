//! The folder of this machine that has the adapters of buckets: which of them leave for another, and how one becomes visible.
//! The time of a folder is when its adapter was used last.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pool::Bytes;

/// What was used within this time stays: an engine may be about to load it.
const KEPT_FOR: Duration = Duration::from_secs(600);
/// The folder with the locks of files that are being brought.
pub(super) const LOCKS: &str = ".locks";

struct Kept {
    folder: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// Removes adapters that were used longest ago until one of this size fits. `Err` inside: so many bytes have been used too
/// lately to leave. Blocking.
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
        // What is there of the adapter itself is part of what it needs.
        if folder != own && folder.is_dir() {
            kept.extend(look(folder).transpose().into_iter().flatten());
        }
    }
    kept.sort_by_key(|it| it.used);
    let mut total = kept
        .iter()
        .fold(needed.0, |sum, it| sum.saturating_add(it.bytes));
    let is_free = |it: &&Kept| now.duration_since(it.used).is_ok_and(|age| age > KEPT_FOR);
    let may_leave = kept.iter().take_while(is_free);
    let possible = may_leave.fold(total, |sum, it| sum.saturating_sub(it.bytes));
    if possible > most.0 {
        return Ok(Err(Bytes(possible.saturating_sub(needed.0))));
    }
    for it in &kept {
        if total <= most.0 {
            break;
        }
        fs::remove_dir_all(&it.folder)?;
        total = total.saturating_sub(it.bytes);
        tracing::info!(folder = %it.folder.display(), bytes = it.bytes, "an adapter that was fetched leaves this machine's disk");
    }
    Ok(Ok(()))
}

/// `None`: another process removed it.
fn look(folder: PathBuf) -> io::Result<Option<Kept>> {
    let (mut bytes, mut used) = (0_u64, fs::metadata(&folder)?.modified()?);
    for file in fs::read_dir(&folder)? {
        let about = file?.metadata();
        let Ok(about) = about else { return Ok(None) };
        bytes = bytes.saturating_add(about.len());
        // A file that is being written now.
        used = used.max(about.modified()?);
    }
    Ok(Some(Kept {
        folder,
        bytes,
        used,
    }))
}

/// Gives a whole adapter its name. Another process may have done so before. Blocking.
pub(super) fn publish(partial: &Path, folder: &Path) -> io::Result<()> {
    let locks = partial.join(LOCKS);
    match fs::remove_dir_all(&locks) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Other files are there under its name only if they were changed by hand.
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::rename(partial, folder)
}

/// Notes that an adapter is used now. Blocking.
pub(super) fn touch(folder: &Path) {
    let touched = File::open(folder).and_then(|it| it.set_modified(SystemTime::now()));
    if let Err(error) = touched {
        tracing::debug!(%error, folder = %folder.display(), "the use of an adapter could not be noted");
    }
}

/// The whole adapter whose folder begins with this and was used last. Blocking.
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
    fn what_was_used_longest_ago_leaves_and_what_is_in_use_stays() {
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
