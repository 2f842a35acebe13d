//! The host memory of engines: their processes, the page cache of their weights, and ends for lack of memory.

pub(crate) mod oom;
mod processes;
mod read_ahead;
pub(crate) mod serial;
mod sessions;
mod weights;

pub use oom::OutOfMemory;
pub(crate) use processes::{MappedBytes, Meter};
pub use read_ahead::{ReadAhead, ReadEnd};
pub use sessions::with_children;
pub use weights::{tier_of, weights_mark};
