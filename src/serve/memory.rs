//! Returns the memory of large requests to the system as soon as they are read.

/// Allocations from this size on are mapped separately and unmapped when they are freed. Without a fixed threshold
/// glibc raises its own with every larger block that is freed, up to 32 MiB, and keeps smaller blocks (mallopt(3)).
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MAPPED_FROM_BYTES: i32 = 256 << 10;
/// Free memory that stays at the end of the heap, so that the frequent allocations of requests need no system calls.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const KEPT_BYTES: i32 = 16 << 20;

/// Call this before there are other threads.
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
