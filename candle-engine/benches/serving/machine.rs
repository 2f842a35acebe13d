//! Measures the machine: memory bandwidth, disk read speed, and the resident memory of a process.

use crate::client::now;
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// Larger than any last-level cache, but small enough for any machine that runs the benchmark.
const BUFFER_BYTES: usize = 1 << 30;

/// Bytes per read; large enough to hide the disk's latency.
const READ_BYTES: usize = 4 << 20;

/// Memory bandwidth with `threads` threads, in bytes per second; the best of several passes.
pub fn memory_bytes_per_second(threads: usize) -> f64 {
    let numbers: Vec<u64> = (0..BUFFER_BYTES as u64 / 8).collect();
    let part = numbers.len().div_ceil(threads);
    (0..5)
        .map(|_| {
            let began = now();
            thread::scope(|scope| {
                for part in numbers.chunks(part) {
                    scope.spawn(move || black_box(folded(part)));
                }
            });
            BUFFER_BYTES as f64 / began.elapsed().as_secs_f64()
        })
        .fold(0.0, f64::max)
}

/// Sums in several independent chains, which keeps additions from waiting for each other.
fn folded(numbers: &[u64]) -> u64 {
    let mut sums = [0u64; 32];
    for chunk in numbers.chunks_exact(sums.len()) {
        for (sum, number) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(*number);
        }
    }
    sums.iter().fold(0, |sum, part| sum.wrapping_add(*part))
}

/// The large files of a model: the file itself, or those in its folder.
pub fn files_of(model: &Path) -> Vec<PathBuf> {
    if model.is_file() {
        return vec![model.to_owned()];
    }
    let entries = std::fs::read_dir(model).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect()
}

pub fn bytes_of(model: &Path) -> u64 {
    let sizes = files_of(model)
        .into_iter()
        .map(|file| std::fs::metadata(file).map_or(0, |file| file.len()));
    sizes.sum()
}

/// Asks the kernel to evict the pages of these files. It may keep pages that are mapped by others.
pub fn forget(model: &Path) {
    for file in files_of(model) {
        if let Ok(file) = File::open(file) {
            let _ = file.sync_all();
            let _ = fadvise(&file, 0, None, Advice::DontNeed);
        }
    }
}

/// Reads all of a model's files with `threads` threads, which also leaves them in the page cache.
pub fn read(model: &Path, threads: usize) -> Duration {
    let began = now();
    for path in files_of(model) {
        let file = File::open(&path).expect("a model's file opens");
        let bytes = file.metadata().expect("a file has a size").len();
        let pieces = bytes.div_ceil(READ_BYTES as u64);
        thread::scope(|scope| {
            for first in 0..threads as u64 {
                let file = &file;
                scope.spawn(move || {
                    let mut buffer = vec![0; READ_BYTES];
                    for piece in (first..pieces).step_by(threads) {
                        let offset = piece * READ_BYTES as u64;
                        let length = (bytes - offset).min(READ_BYTES as u64) as usize;
                        file.read_exact_at(&mut buffer[..length], offset)
                            .expect("a model's file can be read");
                    }
                    black_box(buffer);
                });
            }
        });
    }
    began.elapsed()
}

/// Resident memory of a process, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Memory {
    pub anonymous: u64,
    pub file: u64,
    /// Shared pages count in proportion to their users.
    pub proportional: u64,
}

pub fn memory_of(pid: u32) -> Memory {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let bytes = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        kibibytes.unwrap_or(0) * 1024
    };
    Memory {
        anonymous: bytes(&status, "RssAnon:") + bytes(&status, "RssShmem:"),
        file: bytes(&status, "RssFile:"),
        proportional: bytes(&rollup, "Pss:"),
    }
}
