//! Reads a model's weights into the page cache before a request needs them, on a separate thread at idle priority, which can be
//! stopped at any time. The caller chooses the weights.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::weights::{tier_of, weight_files};
use pool::{Bytes, Tier};

const CHUNK_BYTES: usize = 4 << 20;
/// Bytes read between two checks of the free memory.
const LOOK_EVERY_BYTES: u64 = 256 << 20;
/// Linux reports in this file the share of the last ten seconds in which programs waited for disks.
const PRESSURE_FILE: &str = "/proc/pressure/io";
/// Above this share, other programs count as using the disks.
const PRESSURE_MAX_PERCENT: f64 = 5.0;

/// The result of reading ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadEnd {
    /// All weights are in memory now. Holds the number of bytes read.
    Done(Bytes),
    /// All weights were in memory already.
    There,
    /// Another program needs the disk, or the reading was cancelled.
    Stopped,
    /// The weights are larger than the available memory.
    TooLarge {
        size: Bytes,
        room: Bytes,
    },
    Failed(String),
}

/// A read-ahead in progress. Dropping it stops it.
#[derive(Debug)]
pub struct ReadAhead {
    going: Arc<AtomicBool>,
}

impl ReadAhead {
    /// Starts to read `path`, a file or a folder of weights. `room` returns the host memory that may be used at that time; `ended`
    /// is called once, on the reading thread. Errors if no thread can be started.
    pub fn start(
        path: PathBuf,
        room: impl Fn() -> Bytes + Send + 'static,
        ended: impl FnOnce(ReadEnd) + Send + 'static,
    ) -> io::Result<ReadAhead> {
        let going = Arc::new(AtomicBool::new(true));
        let mine = Arc::clone(&going);
        thread::Builder::new()
            .name("read-ahead".to_owned())
            .spawn(move || {
                lower_priority();
                let conditions = Conditions {
                    room: &room,
                    is_in_memory: &|path| tier_of(path) == Tier::PageCache,
                    disks_are_busy: &disks_are_busy,
                };
                ended(read(&path, &conditions, &mine));
            })?;
        Ok(ReadAhead { going })
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.going.store(false, Ordering::Relaxed);
    }
}

/// Conditions of a read-ahead, in addition to its files.
struct Conditions<'a> {
    /// Memory that may be used now.
    room: &'a dyn Fn() -> Bytes,
    is_in_memory: &'a dyn Fn(&Path) -> bool,
    disks_are_busy: &'a dyn Fn() -> bool,
}

fn read(path: &Path, conditions: &Conditions<'_>, going: &AtomicBool) -> ReadEnd {
    if (conditions.is_in_memory)(path) {
        return ReadEnd::There;
    }
    if (conditions.disks_are_busy)() {
        return ReadEnd::Stopped;
    }
    let files = weight_files(path);
    let sizes = files
        .iter()
        .map(|file| std::fs::metadata(file).map(|metadata| metadata.len()));
    let size = match sizes.sum::<io::Result<u64>>() {
        Ok(size) => Bytes(size),
        Err(error) => return ReadEnd::Failed(error.to_string()),
    };
    let mut chunk = vec![0; CHUNK_BYTES];
    let (mut done, mut looked_at) = (0, 0);
    for file in &files {
        let mut file = match File::open(file) {
            Ok(file) => file,
            Err(error) => return ReadEnd::Failed(format!("{}: {error}", file.display())),
        };
        loop {
            if !going.load(Ordering::Relaxed) {
                return ReadEnd::Stopped;
            }
            if done == 0 || done - looked_at >= LOOK_EVERY_BYTES {
                looked_at = done;
                let (left, room) = (Bytes(size.0.saturating_sub(done)), (conditions.room)());
                if left > room {
                    return ReadEnd::TooLarge { size: left, room };
                }
            }
            match file.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => done += count as u64,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return ReadEnd::Failed(error.to_string()),
            }
        }
    }
    ReadEnd::Done(Bytes(done))
}

/// Parses `some avg10=0.00 …`. Without such a file, the disks count as idle.
fn disks_are_busy() -> bool {
    let text = std::fs::read_to_string(PRESSURE_FILE).unwrap_or_default();
    pressure_in(&text).is_some_and(|percent| percent > PRESSURE_MAX_PERCENT)
}

fn pressure_in(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    let word = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix("avg10="))?;
    word.parse().ok()
}

/// Makes this thread's reads wait for the reads of all other programs, if the disk's scheduler supports priorities.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the priority of reads has no safe interface")]
fn lower_priority() {
    use nix::libc;
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_IDLE: libc::c_int = 3;
    const CLASS_SHIFT: libc::c_int = 13;
    // SAFETY: takes three numbers and touches no memory; 0 is the calling thread (ioprio_set(2)). A
    // refusal leaves the priority as it is.
    unsafe {
        libc::syscall(
            libc::SYS_ioprio_set,
            WHO_PROCESS,
            0,
            CLASS_IDLE << CLASS_SHIFT,
        )
    };
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn disk_pressure_is_parsed_from_the_kernels_file() {
        let text = "some avg10=12.50 avg60=3.00 avg300=0.10 total=5\nfull avg10=1.00 avg60=0 avg300=0 total=1\n";
        assert_eq!(pressure_in(text), Some(12.5));
        assert_eq!(pressure_in("rubbish"), None);
    }

    /// Conditions of a cold file on idle disks, with this room.
    fn cold(room: &dyn Fn() -> Bytes) -> Conditions<'_> {
        Conditions {
            room,
            is_in_memory: &|_| false,
            disks_are_busy: &|| false,
        }
    }

    #[test]
    fn weights_are_read_ahead_while_there_is_memory_and_until_others_need_the_disk() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("model.gguf"), vec![3; 8 << 20]).expect("written");
        let (path, going) = (folder.path(), AtomicBool::new(true));
        let (little, much) = (|| Bytes(1 << 20), || Bytes(1 << 30));
        let too_large = ReadEnd::TooLarge {
            size: Bytes(8 << 20),
            room: Bytes(1 << 20),
        };
        assert_eq!(read(path, &cold(&little), &going), too_large);
        let busy = Conditions {
            disks_are_busy: &|| true,
            ..cold(&much)
        };
        assert_eq!(read(path, &busy, &going), ReadEnd::Stopped);
        let there = Conditions {
            is_in_memory: &|_| true,
            ..cold(&little)
        };
        assert_eq!(read(path, &there, &going), ReadEnd::There);
        let done = read(path, &cold(&much), &going);
        assert_eq!(done, ReadEnd::Done(Bytes(8 << 20)));
        assert_eq!(tier_of(path), Tier::PageCache, "it was just read");
        going.store(false, Ordering::Relaxed);
        assert_eq!(read(path, &cold(&much), &going), ReadEnd::Stopped);
    }

    #[test]
    fn files_in_the_page_cache_are_not_read_and_a_missing_file_is_not_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("a.gguf"), vec![1; 1 << 20]).expect("written");
        let going = AtomicBool::new(true);
        let missing = folder.path().join("missing.gguf");
        let end = read(&missing, &cold(&|| Bytes(0)), &going);
        assert_eq!(
            end,
            ReadEnd::Done(Bytes(0)),
            "missing weights count as read"
        );
        let (sender, ends) = mpsc::channel();
        let reading = ReadAhead::start(
            folder.path().to_owned(),
            || Bytes(0),
            move |end| drop(sender.send(end)),
        )
        .expect("a thread");
        // A file that was just written is in memory, whatever the room.
        assert_eq!(ends.recv().expect("it ends"), ReadEnd::There);
        drop(reading);
    }
}
