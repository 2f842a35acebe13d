//! How much host memory an engine's processes have for themselves: anonymous and shared pages, not
//! the mapped weight files that other replicas may share. It owns the sampling and the peak; all
//! engines share one look at the processes of the system. It never looks at GPU memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::unistd::{Pid, getsid};

use crate::guardian::proc;
use crate::pool::Bytes;

/// A change that is not worth a report.
const QUIET: u64 = Bytes::MIB;
/// How long one look at all processes serves every engine that asks.
const LOOK_MAX: Duration = Duration::from_millis(1_500);

/// The processes of the system by their sessions: each engine leads one of its own.
type Sessions = BTreeMap<u32, Vec<u32>>;

/// The last look, and when it was taken.
static SEEN: Mutex<Option<(Instant, Arc<Sessions>)>> = Mutex::new(None);

/// Follows one engine's memory.
pub(super) struct Meter {
    leader: u32,
    reported: Bytes,
    pub peak: Bytes,
}

impl Meter {
    pub fn new(leader: u32) -> Meter {
        Meter {
            leader,
            reported: Bytes::ZERO,
            peak: Bytes::ZERO,
        }
    }

    /// What the processes hold now; `None` where the system cannot tell. Counts as reported.
    pub async fn read(&mut self) -> Option<Bytes> {
        let leader = self.leader;
        let now = tokio::task::spawn_blocking(move || measure(leader)).await;
        let now = now.ok().flatten()?;
        self.peak = self.peak.max(now);
        self.reported = now;
        Some(now)
    }

    /// The same, when it differs from what was reported by more than 1 MiB.
    pub async fn changed(&mut self) -> Option<Bytes> {
        let before = self.reported;
        let now = self.read().await?;
        if now.0.abs_diff(before.0) > QUIET {
            return Some(now);
        }
        self.reported = before;
        None
    }
}

fn measure(leader: u32) -> Option<Bytes> {
    let held = members(leader).into_iter().filter_map(own_pages);
    let held: Vec<Bytes> = held.collect();
    (!held.is_empty()).then(|| held.into_iter().sum())
}

/// The processes of the session that a process leads, as they were at the last look.
#[expect(
    clippy::disallowed_methods,
    reason = "the age of what is shared by all engines"
)]
fn members(leader: u32) -> Vec<u32> {
    let mut shared = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    let fresh = shared
        .as_ref()
        .filter(|(at, seen)| at.elapsed() < LOOK_MAX && seen.contains_key(&leader));
    let seen = match fresh {
        Some((_, seen)) => Arc::clone(seen),
        None => {
            let seen = Arc::new(look());
            *shared = Some((Instant::now(), Arc::clone(&seen)));
            seen
        }
    };
    drop(shared);
    seen.get(&leader).cloned().unwrap_or_default()
}

fn look() -> Sessions {
    let mut sessions = Sessions::new();
    for process in proc::all() {
        if let Ok(session) = getsid(Some(Pid::from_raw(process.cast_signed()))) {
            let session = session.as_raw().cast_unsigned();
            sessions.entry(session).or_default().push(process);
        }
    }
    sessions
}

fn own_pages(process: u32) -> Option<Bytes> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    sum_of(&status)
}

/// `RssAnon` and `RssShmem` of a `/proc/PID/status`. A zombie has neither.
fn sum_of(status: &str) -> Option<Bytes> {
    let lines = status.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        matches!(name, "RssAnon" | "RssShmem").then_some(value)
    });
    lines
        .map(|value| {
            let kib: u64 = value.trim().strip_suffix(" kB")?.parse().ok()?;
            Some(Bytes(kib << 10))
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapped_files_are_not_counted() {
        let status =
            "Name:\tx\nVmRSS:\t 900 kB\nRssAnon:\t 100 kB\nRssFile:\t 790 kB\nRssShmem:\t 10 kB\n";
        assert_eq!(sum_of(status), Some(Bytes(110 << 10)));
        assert_eq!(sum_of("Name:\tx\nState:\tZ (zombie)\n"), Some(Bytes::ZERO));
        assert_eq!(sum_of("RssAnon:\tmany\n"), None);
    }

    #[test]
    fn the_members_of_a_session_are_found_by_its_leader() {
        let own = getsid(None).expect("a session").as_raw().cast_unsigned();
        assert!(members(own).contains(&std::process::id()));
    }
}
