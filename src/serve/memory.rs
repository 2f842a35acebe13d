//! Returns memory to the system: that of large requests as soon as they are read, and that of the start once it is over.

use std::ops::Range;
use std::time::Duration;

/// Allocations from this size on are mapped separately and unmapped when they are freed. Without a fixed threshold
/// glibc raises its own with every larger block that is freed, up to 32 MiB, and keeps smaller blocks (mallopt(3)).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_FROM_BYTES: i32 = 256 << 10;
/// Free memory kept at the end of the heap, which spares the frequent allocations of requests any system calls.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_BYTES: i32 = 16 << 20;

/// Call this before other threads exist.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(
    unsafe_code,
    reason = "the allocator's settings have no safe interface"
)]
pub(super) fn return_what_is_freed() {
    use nix::libc::{M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, mallopt};
    // SAFETY: each call takes two numbers and touches no memory of ours; nothing else runs yet. A refusal leaves the setting as
    // it is.
    unsafe {
        mallopt(M_MMAP_THRESHOLD, MAPPED_FROM_BYTES);
        mallopt(M_TRIM_THRESHOLD, KEPT_BYTES);
    }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(super) fn return_what_is_freed() {}

/// By this time, always-hot models are being loaded, and the memory of the start has been freed.
const START_IS_OVER_AFTER: Duration = Duration::from_secs(3);

/// After the start, returns free memory to the system and unmaps pages of the program's own file. A start touches most of the
/// program, and serving needs little of it. Pages that are needed are mapped again from the page cache.
pub(super) async fn forget_the_start() {
    tokio::time::sleep(START_IS_OVER_AFTER).await;
    // The system may have to wait for a lock on the address space.
    let _ = tokio::task::spawn_blocking(|| {
        return_what_is_free();
        unmap_own_file();
    })
    .await;
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(
    unsafe_code,
    reason = "the allocator's free memory has no safe interface"
)]
fn return_what_is_free() {
    // SAFETY: it takes the allocator's own locks, and returns pages that hold no allocation.
    unsafe { nix::libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn return_what_is_free() {}

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "pages have no safe interface")]
fn unmap_own_file() {
    let program = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let mappings = std::fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    for mapping in unchanged(&mappings, &program.to_string_lossy()) {
        // SAFETY: the mapping is private, read-only, of a file, and no page of it differs from the file: dropped pages are read
        // again from there with the same content. The system refuses writes to the file of a running program.
        unsafe {
            nix::libc::madvise(
                mapping.start as *mut nix::libc::c_void,
                mapping.len(),
                nix::libc::MADV_DONTNEED,
            )
        };
    }
}

#[cfg(not(target_os = "linux"))]
fn unmap_own_file() {}

/// The mappings of a file in `/proc/self/smaps` (proc_pid_smaps(5)) that are private, read-only, and without modified pages, such
/// as those changed by the dynamic linker.
fn unchanged(mappings: &str, file: &str) -> Vec<Range<usize>> {
    let mut all = Vec::new();
    let mut current = None;
    for line in mappings.lines() {
        if let Some(range) = of_file(line, file) {
            current = range;
        } else if let Some(kib) = line.strip_prefix("Anonymous:")
            && kib.trim() == "0 kB"
        {
            all.extend(current.take());
        }
    }
    all
}

/// `None` for a line that does not start a mapping, `Some(None)` for a mapping that does not count.
#[expect(clippy::option_option, reason = "a line has three kinds")]
fn of_file(line: &str, file: &str) -> Option<Option<Range<usize>>> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let range = address(start)?..address(end)?;
    let is_constant = matches!(words.next()?, "r-xp" | "r--p");
    let is_of_file = words.nth(3).is_some_and(|name| name.trim_start() == file);
    Some((is_constant && is_of_file).then_some(range))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPPINGS: &str = "\
1000-3000 r--p 00000000 fe:00 12 /opt/model pool/model-pool
Size:                  8 kB
Anonymous:             0 kB
3000-9000 r-xp 00002000 fe:00 12                          /opt/model pool/model-pool
Rss:                  24 kB
Anonymous:             0 kB
AnonHugePages:         0 kB
9000-a000 r--p 00008000 fe:00 12                          /opt/model pool/model-pool
Anonymous:             4 kB
a000-b000 rw-p 00009000 fe:00 12                          /opt/model pool/model-pool
Anonymous:             0 kB
b000-c000 r-xs 00009000 fe:00 12                          /opt/model pool/model-pool
Anonymous:             0 kB
c000-d000 r-xp 00000000 fe:00 13                          /usr/lib/libc.so.6
Anonymous:             0 kB
d000-e000 r--p 00000000 00:00 0
Anonymous:             0 kB
VmFlags: rd mr mw me ac sd
";

    #[test]
    fn only_read_only_mappings_of_the_program_file_are_found() {
        let found = unchanged(MAPPINGS, "/opt/model pool/model-pool");
        assert_eq!(found, [0x1000..0x3000, 0x3000..0x9000]);
        assert!(unchanged(MAPPINGS, "/opt/model").is_empty());
        assert!(unchanged("no mappings\n-\nx-y r-xp\n", "").is_empty());
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_program_continues_after_its_pages_are_unmapped() {
        let program = std::fs::read_link("/proc/self/exe").expect("a program");
        let mappings = || std::fs::read_to_string("/proc/self/smaps").expect("mappings");
        assert!(!unchanged(&mappings(), &program.to_string_lossy()).is_empty());
        return_what_is_free();
        unmap_own_file();
        assert!(!unchanged(&mappings(), &program.to_string_lossy()).is_empty());
    }
}
