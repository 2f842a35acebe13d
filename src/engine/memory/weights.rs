//! Checks where a model's weights are (page cache or disk) and whether they have changed, without reading from the disk.

use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};
use rustix::io::{ReadWriteFlags, preadv2};

use pool::Tier;

/// Positions sampled in each file.
const SAMPLES: u64 = 64;
/// Percentage of resident samples from which a file counts as in memory.
const RESIDENT_PERCENT: u64 = 95;

/// The tier of `path`, a file or a folder of weights. Blocks while the host looks at its page cache.
pub fn tier_of(path: &Path) -> Tier {
    let files = weight_files(path);
    let (mut total, mut resident) = (0, 0);
    for file in &files {
        let (of_file, in_memory) = sample(file).unwrap_or((SAMPLES, 0));
        total += of_file;
        resident += in_memory;
    }
    if total > 0 && resident * 100 >= total * RESIDENT_PERCENT {
        Tier::PageCache
    } else {
        Tier::Disk
    }
}

/// A fingerprint of the weights: names, sizes and modification times of their files; `None` when there are
/// none. Blocks while the file system lists them.
pub fn weights_mark(path: &Path) -> Option<u64> {
    let mut files = weight_files(path);
    files.sort();
    let mut mark = FNV_OFFSET;
    for file in &files {
        let about = std::fs::metadata(file).ok()?;
        let name = file.file_name().unwrap_or_default().as_encoded_bytes();
        let changed = [about.mtime(), about.mtime_nsec()].map(i64::to_le_bytes);
        let bytes = name.iter().copied();
        let bytes = bytes.chain(about.len().to_le_bytes());
        for byte in bytes.chain(changed.into_iter().flatten()) {
            mark = (mark ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
        }
    }
    (!files.is_empty()).then_some(mark)
}

/// FNV-1a of 64 bits (Fowler, Noll, Vo): the same in every version of this program, which a hash of the
/// standard library need not be.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

pub(super) fn weight_files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let is_weights = |file: &PathBuf| {
        let extension = file.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| {
            ["safetensors", "gguf", "bin", "pt", "pth"].contains(&extension)
        })
    };
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(is_weights)
        .collect()
}

/// The number of samples, and how many are in memory: a read that must not wait returns bytes only from memory.
fn sample(path: &Path) -> std::io::Result<(u64, u64)> {
    let file = File::open(path)?;
    // Otherwise the kernel may read ahead of each sample, into the next one.
    let _ = fadvise(&file, 0, None, Advice::Random);
    let size = file.metadata()?.len();
    let (mut total, mut resident) = (0, 0);
    for nth in 0..SAMPLES.min(size) {
        let mut byte = [0_u8; 1];
        let offset = size / SAMPLES.min(size) * nth;
        let read = preadv2(
            &file,
            &mut [IoSliceMut::new(&mut byte)],
            offset,
            ReadWriteFlags::NOWAIT,
        );
        total += 1;
        resident += u64::from(matches!(read, Ok(1)));
    }
    Ok((total, resident))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaced_weights_have_a_different_mark() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model.gguf");
        assert_eq!(weights_mark(folder.path()), None);
        std::fs::write(&path, b"one").expect("written");
        let first = weights_mark(folder.path());
        assert_eq!(weights_mark(folder.path()), first);
        assert!(first.is_some());
        std::fs::write(&path, b"another").expect("written");
        assert_ne!(weights_mark(folder.path()), first);
        std::fs::write(folder.path().join("notes.txt"), b"x").expect("written");
        assert_eq!(weights_mark(folder.path()), weights_mark(folder.path()));
    }

    #[test]
    fn a_newly_written_file_is_in_the_page_cache_and_a_missing_one_is_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model.safetensors");
        std::fs::write(&path, vec![7_u8; 1 << 20]).expect("written");
        assert_eq!(tier_of(folder.path()), Tier::PageCache);
        assert_eq!(tier_of(&folder.path().join("nothing")), Tier::Disk);
    }

    /// Bytes of the file in the page cache, reported by `fincore` of util-linux. `None` if it is not installed.
    fn resident_bytes(path: &Path) -> Option<u64> {
        let output = std::process::Command::new("fincore")
            .args(["--bytes", "--noheadings", "--output", "RES"])
            .arg(path)
            .output()
            .ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    }

    #[test]
    fn a_file_dropped_from_the_page_cache_is_on_disk() {
        // Next to the build: the folder for temporary files may be in memory.
        let folder = std::env::current_exe().expect("this test");
        let folder = tempfile::tempdir_in(folder.parent().expect("a folder")).expect("a folder");
        let path = folder.path().join("model.safetensors");
        // Written blocks, not holes: holes are read without a disk.
        std::fs::write(&path, vec![7_u8; 16 << 20]).expect("written");
        let file = File::open(&path).expect("opens");
        assert_eq!(tier_of(folder.path()), Tier::PageCache);
        file.sync_all().expect("on disk");
        fadvise(&file, 0, None, Advice::DontNeed).expect("advice is taken");
        match resident_bytes(&path) {
            Some(0) => assert_eq!(tier_of(folder.path()), Tier::Disk),
            Some(kept) => println!(
                "SKIPPED: the file system of {} keeps {kept} bytes in memory that it was advised to drop",
                folder.path().display()
            ),
            None => println!("SKIPPED: `fincore` of util-linux is not installed"),
        }
        // Reading the file brings it back.
        std::fs::read(&path).expect("read");
        assert_eq!(tier_of(folder.path()), Tier::PageCache);
    }
}
