//! Gives the memory that large requests took back to the system as soon as they are read.

/// Pieces from this size on are mapped each by itself, and leave with their last use. Without a fixed size glibc raises its own
/// with every larger piece that is freed, up to 32 MiB, and keeps what is smaller for later (mallopt(3)).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_FROM_BYTES: i32 = 256 << 10;
/// So much may lie free at the end of the heap: what requests take and give back each moment is not asked of the system anew.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_BYTES: i32 = 16 << 20;

/// Called before there are other threads.
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
