//! Locks what tasks share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A task that panicked leaves the value usable.
pub fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
