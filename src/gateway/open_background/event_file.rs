//! A file with the events of a background response. The next process on this machine shows them again, and continues their numbers.
//!
//! ```text
//!   boot id, last dropped number or "-", line end │ number, length, event │ number, length, event │ …
//! ```
//!
//! No write waits for the disk: a kill of the process loses nothing, and a crash of the machine may lose the end of a file. A file
//! of an earlier boot is therefore not read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use axum::body::Bytes;

const SUFFIX: &str = ".events";
/// The bytes of a number and a length.
const HEAD_BYTES: usize = 12;

/// Consecutive events with their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeptEvents {
    /// The number of the last event that was dropped.
    pub dropped: Option<u64>,
    pub events: Vec<(u64, Bytes)>,
}

/// A file that is open for further events.
#[derive(Debug)]
pub(super) struct EventFile {
    path: PathBuf,
    file: File,
    bytes: u64,
}

impl EventFile {
    /// Creates the file with these events, or replaces it.
    ///
    /// # Errors
    /// The file cannot be written, or the boot has no id.
    pub fn create(path: &Path, kept: &KeptEvents) -> io::Result<EventFile> {
        let dropped = kept.dropped.map(|number| number.to_string());
        let mut text = format!("{} {}\n", boot()?, dropped.as_deref().unwrap_or("-")).into_bytes();
        for (number, event) in &kept.events {
            put(&mut text, *number, event);
        }
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        let part = path.with_extension("part");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&part)?;
        file.write_all(&text)?;
        fs::rename(&part, path)?;
        Ok(EventFile {
            path: path.to_owned(),
            file,
            bytes: text.len() as u64,
        })
    }

    /// Adds an event.
    ///
    /// # Errors
    /// The file cannot be written. It may then end with a part of the event.
    pub fn append(&mut self, number: u64, event: &[u8]) -> io::Result<()> {
        let mut text = Vec::with_capacity(HEAD_BYTES + event.len());
        put(&mut text, number, event);
        self.file.write_all(&text)?;
        self.bytes += text.len() as u64;
        Ok(())
    }

    /// Replaces the file with a file that has only these events.
    ///
    /// # Errors
    /// As [`EventFile::create`].
    pub fn replace(self, kept: &KeptEvents) -> io::Result<EventFile> {
        EventFile::create(&self.path, kept)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn put(text: &mut Vec<u8>, number: u64, event: &[u8]) {
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    text.extend_from_slice(&number.to_le_bytes());
    text.extend_from_slice(&length.to_le_bytes());
    text.extend_from_slice(event);
}

/// The file of a response in this folder.
pub(super) fn path(dir: &Path, id: &str) -> PathBuf {
    dir.join(format!("{id}{SUFFIX}"))
}

/// Removes a file, if it exists.
pub(super) fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            tracing::warn!(%error, path = %path.display(), "a file of events cannot be removed");
        }
        Ok(()) | Err(_) => {}
    }
}

/// Reads the files of these responses, and removes all other files. Files that cannot be read are left out.
pub(crate) fn load(dir: &Path, ids: &BTreeSet<String>) -> BTreeMap<String, KeptEvents> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(id) = name.strip_suffix(SUFFIX).filter(|id| ids.contains(*id)) else {
            remove(&entry.path());
            continue;
        };
        match boot().and_then(|boot| Ok(parse(&boot, fs::read(entry.path())?.into()))) {
            Ok(Some(kept)) => {
                all.insert(id.to_owned(), kept);
            }
            Ok(None) => {
                tracing::info!(
                    id,
                    "the events of a background response are of another boot"
                );
            }
            Err(error) => {
                tracing::warn!(%error, id, "the events of a background response cannot be read");
            }
        }
    }
    all
}

/// The events of a file up to the first incomplete one. `None` for a file of another boot.
fn parse(boot: &str, text: Bytes) -> Option<KeptEvents> {
    let line_end = memchr::memchr(b'\n', &text)?;
    let line = std::str::from_utf8(&text[..line_end]).ok()?;
    let dropped = line.strip_prefix(boot)?.strip_prefix(' ')?;
    let mut kept = KeptEvents {
        dropped: (dropped != "-").then(|| dropped.parse().ok()).flatten(),
        events: Vec::new(),
    };
    let mut rest = text.slice(line_end + 1..);
    while let Some((number, after)) = rest.split_first_chunk::<8>() {
        let Some((length, _)) = after.split_first_chunk::<4>() else {
            break;
        };
        let end = HEAD_BYTES.saturating_add(u32::from_le_bytes(*length) as usize);
        if rest.len() < end {
            break;
        }
        let event = (u64::from_le_bytes(*number), rest.slice(HEAD_BYTES..end));
        kept.events.push(event);
        rest = rest.slice(end..);
    }
    Some(kept)
}

/// The id of this boot of the machine.
fn boot() -> io::Result<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(id.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(dropped: Option<u64>, numbers: std::ops::Range<u64>) -> KeptEvents {
        KeptEvents {
            dropped,
            events: numbers
                .map(|number| (number, format!("{number};").into()))
                .collect(),
        }
    }

    fn ids() -> BTreeSet<String> {
        BTreeSet::from(["a".to_owned(), "b".to_owned()])
    }

    #[test]
    fn events_are_read_again_up_to_the_first_incomplete_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path().join("events");
        assert!(load(&dir, &ids()).is_empty());
        let own = path(&dir, "a");
        let mut file = EventFile::create(&own, &kept(None, 0..2)).expect("created");
        file.append(2, b"2;").expect("written");
        let complete = fs::read(&own).expect("read");
        assert_eq!(file.bytes(), complete.len() as u64);
        file.append(3, b"3;").expect("written");
        let longer = fs::read(&own).expect("read");
        for end in complete.len()..longer.len() {
            fs::write(&own, &longer[..end]).expect("written");
            let read = load(&dir, &ids());
            assert_eq!(read["a"], kept(None, 0..3), "{end} bytes");
        }
        let mut file = file.replace(&kept(Some(6), 7..9)).expect("replaced");
        file.append(9, b"9;").expect("written");
        assert_eq!(load(&dir, &ids())["a"], kept(Some(6), 7..10));
    }

    #[test]
    fn files_of_another_boot_are_not_read_and_files_of_ended_responses_are_removed() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = folder.path();
        for id in ["a", "b", "ended"] {
            EventFile::create(&path(dir, id), &kept(None, 0..2)).expect("created");
        }
        let other = fs::read(path(dir, "b")).expect("read");
        let boot = boot().expect("an id");
        assert!(parse("another", other.clone().into()).is_none());
        assert!(parse(&boot, other.clone().into()).is_some());
        let mut of_other_boot = b"another -\n".to_vec();
        of_other_boot.extend_from_slice(&other[boot.len() + 3..]);
        fs::write(path(dir, "b"), of_other_boot).expect("written");
        fs::write(dir.join("c.part"), "").expect("written");
        let read = load(dir, &ids());
        assert_eq!(read.keys().collect::<Vec<_>>(), ["a"]);
        assert!(!path(dir, "ended").exists() && !dir.join("c.part").exists());
        assert!(path(dir, "b").exists(), "its response has not ended");
        remove(&path(dir, "b"));
        remove(&path(dir, "b"));
        assert!(!path(dir, "b").exists());
    }
}
