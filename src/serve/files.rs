//! How many files the process may open: as many as the system lets it without asking anybody. Each connection
//! is one, and the usual 1024 are few.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// More are needed by nobody, and some programs count up to the limit.
const FILES_WANTED: u64 = 65_536;

/// Raises the bound, and says what it is now; nothing where there is none.
pub(super) fn allow_many() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current?;
    let wanted = limit.maximum.unwrap_or(FILES_WANTED).min(FILES_WANTED);
    if current >= wanted {
        return Some(current);
    }
    let raised = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => Some(wanted),
        Err(_) => Some(current),
    }
}
