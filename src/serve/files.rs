//! Raises the limit of open files as far as an unprivileged process may. Connections are open files, and
//! the usual limit of 1024 is low.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More are not needed, and some programs iterate up to the limit.
const FILES_MAX: u64 = 65_536;

/// Raises the limit and returns the new one; `None` if there is no limit.
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
