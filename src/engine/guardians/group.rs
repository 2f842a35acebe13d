//! The processes of one engine whose guardian is gone: its session, its process group, and every process with its tag. Finds and
//! kills them, even in engines of an earlier run, and never touches a process without an engine's mark.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getpgid, getsid};

use crate::launch::TAG;
use guardian::protocol::ProcessId;
use guardian::{cgroup, proc};

/// Time limit for killed processes to disappear.
const SWEEP_MAX: Duration = Duration::from_secs(2);

/// The process that leads the engine's session and group, and the tag that its descendants inherit in their
/// environment.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub leader: ProcessId,
    pub tag: String,
    /// The engine's control group, if there is one; no process escapes it.
    pub cgroup: Option<PathBuf>,
}

impl Group {
    /// Kills the remains of an engine that lost its guardian, and returns when they are gone. Returns the processes that still
    /// exist after 2 s, which hang in the kernel.
    pub async fn sweep(&self) -> Vec<u32> {
        if let Some(folder) = &self.cgroup {
            cgroup::kill(folder);
        }
        let mut waited = Duration::ZERO;
        let mut pause = Duration::from_millis(1);
        let mut found = self.find(None).await;
        loop {
            for &process in &found.ours {
                // The process was found just now, so its number cannot have been reused.
                let _ = kill(raw(process), Signal::SIGKILL);
            }
            let is_empty = self.cgroup.as_deref().is_none_or(cgroup::remove);
            let is_done = found.ours.is_empty() && found.unknown.is_empty() && is_empty;
            if is_done || waited >= SWEEP_MAX {
                return found.ours;
            }
            tokio::time::sleep(pause).await;
            waited += pause;
            pause = (pause * 2).min(Duration::from_millis(50));
            // A killed process may have left a new child behind.
            let unknown = Some(found.unknown).filter(|_| found.ours.is_empty());
            found = self.find(unknown).await;
        }
    }

    /// Searches these processes, or all.
    async fn find(&self, among: Option<Vec<u32>>) -> GroupProcesses {
        let group = self.clone();
        let scan = move || {
            let mut found = GroupProcesses::default();
            // If the leader is gone, its number may have been reused, and so may its session.
            let leads = proc::started_at(group.leader.pid)
                .is_none_or(|started| started == group.leader.started);
            for process in among.unwrap_or_else(proc::all) {
                match group.kinship(process, leads) {
                    Kinship::Ours => found.ours.push(process),
                    Kinship::Unknown => found.unknown.push(process),
                    Kinship::Foreign => {}
                }
            }
            found
        };
        tokio::task::spawn_blocking(scan).await.unwrap_or_default()
    }

    fn kinship(&self, process: u32, leads: bool) -> Kinship {
        let has_tag = || {
            let environment = std::fs::read(format!("/proc/{process}/environ")).ok()?;
            let tag = proc::variable_in(&environment, TAG);
            (!environment.is_empty()).then(|| tag.is_some_and(|tag| tag == self.tag))
        };
        let is_member = leads && self.is_member(process);
        let is_ours = match is_member.then_some(true).or_else(has_tag) {
            Some(is_ours) => is_ours,
            None if proc::is_between_programs(process) => return Kinship::Unknown,
            // The process may have completed its exec just now.
            None => has_tag().unwrap_or(false),
        };
        if is_ours && proc::is_alive(process) {
            Kinship::Ours
        } else {
            Kinship::Foreign
        }
    }

    fn is_member(&self, process: u32) -> bool {
        let leader = raw(self.leader.pid);
        let process = Some(raw(process));
        getsid(process) == Ok(leader) || getpgid(process) == Ok(leader)
    }
}

/// The relation of a process to an engine.
enum Kinship {
    Ours,
    Foreign,
    /// The process is in an exec and shows no environment yet.
    Unknown,
}

#[derive(Default)]
struct GroupProcesses {
    ours: Vec<u32>,
    unknown: Vec<u32>,
}

/// The tag for a new engine. It names the guardian by process namespace, number and start time, which keeps engines of other
/// containers from being mistaken for orphans. A launch counter makes each engine's tag unique.
pub(super) fn new_tag(guardian: ProcessId, replica: pool::ReplicaId) -> String {
    let namespace = namespace().unwrap_or_default();
    let launch = LAUNCHES.fetch_add(1, Ordering::Relaxed);
    let ProcessId { pid, started } = guardian;
    format!("{namespace}.{pid}.{started}.{launch}.{replica}")
}

static LAUNCHES: AtomicU64 = AtomicU64::new(0);

/// A process of an engine whose guardian is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    pub pid: u32,
    /// The replica's number in the dead controller.
    pub replica: String,
}

/// Kills every process of an engine whose guardian is gone, and returns them. Call at the start of the controller, before any
/// launch. Engines whose guardians live, ours or another pool's, are left alone. Without `/proc`, finds nothing. Blocks for some
/// milliseconds.
pub fn kill_orphans() -> Vec<Orphan> {
    let Some(namespace) = namespace() else {
        return Vec::new();
    };
    let mut orphans = Vec::new();
    for pid in proc::all() {
        let Some(tag) = proc::variable(pid, TAG) else {
            continue;
        };
        let fields: Vec<&str> = tag.split('.').collect();
        let &[place, guardian, started, _, replica] = fields.as_slice() else {
            continue;
        };
        let (Ok(guardian), Ok(started)) = (guardian.parse(), started.parse::<u64>()) else {
            continue;
        };
        let lives = proc::started_at(guardian) == Some(started);
        if place == namespace && !lives && kill(raw(pid), Signal::SIGKILL).is_ok() {
            let replica = replica.to_owned();
            orphans.push(Orphan { pid, replica });
        }
    }
    orphans
}

fn raw(process: u32) -> Pid {
    Pid::from_raw(process.cast_signed())
}

/// For example `4026531836`, from `pid:[4026531836]`: the other characters would break a tag.
fn namespace() -> Option<String> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    let digits: String = link
        .to_str()?
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    Some(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_names_the_guardian_and_is_unique() {
        let own = ProcessId::new(std::process::id());
        let tag = new_tag(own, pool::ReplicaId(9));
        let fields: Vec<&str> = tag.split('.').collect();
        assert_eq!(fields.len(), 5, "{tag}");
        assert_ne!(tag, new_tag(own, pool::ReplicaId(9)));
        assert_eq!(fields[1], own.pid.to_string());
        assert_eq!(fields[2], own.started.to_string());
    }
}
