//! Wraps the system's allocator to count allocations, and sends the count to another process.
#![expect(unsafe_code, reason = "an allocator is unsafe by its definition")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Allocations since the start, including reallocations.
static GIVEN: AtomicU64 = AtomicU64::new(0);

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY, for every block: all arguments are passed unchanged to the system's allocator, which has the same contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        GIVEN.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        GIVEN.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        GIVEN.fetch_add(1, Ordering::Relaxed);
        unsafe { System.realloc(memory, layout, size) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        unsafe { System.dealloc(memory, layout) }
    }
}

/// Sends the count to every connection, until the process ends.
pub fn tell(socket: &Path) {
    let listener = UnixListener::bind(socket).expect("a new socket");
    std::thread::spawn(move || {
        for asking in listener.incoming().flatten() {
            let count = GIVEN.load(Ordering::Relaxed);
            let _ = (&asking).write_all(&count.to_le_bytes());
        }
    });
}

/// Reads the count of the process behind this address.
pub fn count_of(socket: &Path) -> u64 {
    let mut count = [0; 8];
    let mut asking = UnixStream::connect(socket).expect("the program listens");
    asking.read_exact(&mut count).expect("a number");
    u64::from_le_bytes(count)
}
