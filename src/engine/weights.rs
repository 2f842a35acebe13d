//! Where a model's weights would come from if they were read now: the host's memory, or a disk. Looks
//! without reading from the disk; decides nothing.

use std::fs::File;
use std::io::IoSliceMut;
use std::path::{Path, PathBuf};

use rustix::io::{ReadWriteFlags, preadv2};

use crate::pool::Tier;

/// Places looked at in each file.
const SAMPLES: u64 = 64;
/// A file counts as in memory if this share of the places is, in hundredths.
const RESIDENT_PERCENT: u64 = 95;

/// `path` is a file or a folder of weights. Blocking, for as long as the host takes to look at memory.
pub fn tier_of(path: &Path) -> Tier {
    let files = weight_files(path);
    let (mut seen, mut resident) = (0, 0);
    for file in &files {
        let (of_file, in_memory) = sample(file).unwrap_or((SAMPLES, 0));
        seen += of_file;
        resident += in_memory;
    }
    if seen > 0 && resident * 100 >= seen * RESIDENT_PERCENT {
        Tier::PageCache
    } else {
        Tier::Disk
    }
}

fn weight_files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let is_weights = |file: &PathBuf| {
        let extension = file.extension().and_then(|it| it.to_str());
        extension.is_some_and(|it| ["safetensors", "gguf", "bin", "pt", "pth"].contains(&it))
    };
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(is_weights)
        .collect()
}

/// How many places were looked at, and how many of them are in memory: a read that must not wait gives
/// bytes only from there.
fn sample(path: &Path) -> std::io::Result<(u64, u64)> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let (mut seen, mut resident) = (0, 0);
    for nth in 0..SAMPLES.min(size) {
        let mut byte = [0_u8; 1];
        let offset = size / SAMPLES.min(size) * nth;
        let read = preadv2(
            &file,
            &mut [IoSliceMut::new(&mut byte)],
            offset,
            ReadWriteFlags::NOWAIT,
        );
        seen += 1;
        resident += u64::from(matches!(read, Ok(1)));
    }
    Ok((seen, resident))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_was_just_written_lies_in_memory_and_a_missing_one_does_not() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("model.safetensors");
        std::fs::write(&path, vec![7_u8; 1 << 20]).expect("written");
        assert_eq!(tier_of(folder.path()), Tier::PageCache);
        assert_eq!(tier_of(&folder.path().join("nothing")), Tier::Disk);
    }
}
