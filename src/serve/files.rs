//! Raises the limit of open files as far as an unprivileged process may. Each connection is an open file, and the usual limit of
//! 1024 is low.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// No more are needed, and some programs iterate up to the limit.
const FILES_MAX: u64 = 65_536;

/// Raises the limit and returns the new one; `None` if files are unlimited.
pub(super) fn allow_many() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current?;
    let target = limit.maximum.unwrap_or(FILES_MAX).min(FILES_MAX);
    if current >= target {
        return Some(current);
    }
    let raised = Rlimit {
        current: Some(target),
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => Some(target),
        Err(_) => Some(current),
    }
}
