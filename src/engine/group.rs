//! All processes of one engine: its session, its process group, and what escaped from both. It
//! owns how they are found and killed, also those that a controller which died left behind. It
//! never touches a process that does not carry an engine's mark.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, getpgid, getsid};

use super::environment::TAG;

/// How long killed processes may take to disappear after the leader has.
const SWEEP_MAX: Duration = Duration::from_secs(2);

/// The process that leads the engine's session and group, and the tag that its descendants inherit
/// in their environment. Valid until the leader is reaped: a zombie keeps its number from being
/// given to somebody else.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub leader: u32,
    pub tag: String,
}

impl Group {
    /// To the whole process group. A group that is gone already is no error.
    pub fn signal(&self, signal: Signal) {
        match killpg(raw(self.leader), signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => {
                tracing::warn!(leader = self.leader, %signal, %error, "cannot signal an engine")
            }
        }
    }

    /// SIGTERM, and SIGCONT so that a stopped process can obey it.
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT);
    }

    /// Kills what is left after the leader ended, and comes back when it is gone. Returns the
    /// processes that are still there after 2 s, which hang in the kernel.
    pub async fn sweep(&self) -> Vec<u32> {
        self.signal(Signal::SIGKILL);
        let mut waited = Duration::ZERO;
        let mut pause = Duration::from_millis(1);
        let mut found = self.find(None).await;
        loop {
            for &process in &found.ours {
                // Found a moment ago, too short for its number to be another's by now.
                let _ = kill(raw(process), Signal::SIGKILL);
            }
            let is_done = found.ours.is_empty() && found.unknown.is_empty();
            if is_done || waited >= SWEEP_MAX {
                return found.ours;
            }
            tokio::time::sleep(pause).await;
            waited += pause;
            pause = (pause * 2).min(Duration::from_millis(50));
            // One that was killed may have left a child behind that was not there before.
            let unknown = Some(found.unknown).filter(|_| found.ours.is_empty());
            found = self.find(unknown).await;
        }
    }

    /// Living processes of the session or the group; with the leader.
    pub fn members(&self) -> Vec<u32> {
        let mut members = processes();
        members.retain(|&process| self.is_member(process) && is_alive(process));
        members
    }

    /// Looks among these processes, or among all.
    async fn find(&self, among: Option<Vec<u32>>) -> Found {
        let group = self.clone();
        let scan = move || {
            let mut found = Found::default();
            for process in among.unwrap_or_else(processes) {
                match group.kinship(process) {
                    Kinship::Ours => found.ours.push(process),
                    Kinship::Unknown => found.unknown.push(process),
                    Kinship::Foreign => {}
                }
            }
            found
        };
        tokio::task::spawn_blocking(scan).await.unwrap_or_default()
    }

    fn kinship(&self, process: u32) -> Kinship {
        if process == self.leader {
            return Kinship::Foreign;
        }
        let has_tag = || {
            let environment = environment_of(process)?;
            let tag = tag_in(&environment);
            (!environment.is_empty()).then(|| tag.is_some_and(|tag| tag == self.tag))
        };
        let is_ours = match self.is_member(process).then_some(true).or_else(has_tag) {
            Some(is_ours) => is_ours,
            None if is_in_exec(process) => return Kinship::Unknown,
            // It may have come out of exec a moment ago.
            None => has_tag().unwrap_or(false),
        };
        match is_ours && is_alive(process) {
            true => Kinship::Ours,
            false => Kinship::Foreign,
        }
    }

    fn is_member(&self, process: u32) -> bool {
        let leader = raw(self.leader);
        let process = Some(raw(process));
        getsid(process) == Ok(leader) || getpgid(process) == Ok(leader)
    }
}

/// Whether a process belongs to an engine.
enum Kinship {
    Ours,
    Foreign,
    /// It is about to become another program and shows no environment yet.
    Unknown,
}

#[derive(Default)]
struct Found {
    /// Alive, without the leader.
    ours: Vec<u32>,
    unknown: Vec<u32>,
}

/// The tag for a new engine of this controller. It names the controller by its process namespace,
/// number and start, so that nobody mistakes another container's engines for orphans, and counts
/// launches, so that no engine is ever swept away with another.
pub(super) fn new_tag(replica: crate::pool::ReplicaId) -> String {
    let own = std::process::id();
    let namespace = namespace().unwrap_or_default();
    let started = started_at(own).unwrap_or_default();
    let launch = LAUNCHES.fetch_add(1, Ordering::Relaxed);
    format!("{namespace}.{own}.{started}.{launch}.{replica}")
}

static LAUNCHES: AtomicU64 = AtomicU64::new(0);

/// A process of an engine whose controller is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    pub pid: u32,
    /// As the dead controller counted.
    pub replica: String,
}

/// Kills every process of an engine whose controller no longer lives, and returns them. For the
/// start of the controller, before anything is launched; engines of controllers that still live
/// are left alone. It reads `/proc`, and finds nothing where there is none. Blocks for some
/// milliseconds.
pub fn kill_orphans() -> Vec<Orphan> {
    let Some(namespace) = namespace() else {
        return Vec::new();
    };
    let mut orphans = Vec::new();
    for pid in processes() {
        let Some(tag) = environment_of(pid).and_then(|environment| tag_in(&environment)) else {
            continue;
        };
        let fields: Vec<&str> = tag.split('.').collect();
        let &[place, controller, started, _, replica] = fields.as_slice() else {
            continue;
        };
        let (Ok(controller), Ok(started)) = (controller.parse(), started.parse::<u64>()) else {
            continue;
        };
        let lives = started_at(controller) == Some(started);
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

/// All process numbers; none where there is no `/proc`.
fn processes() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let name = |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
    entries
        .filter_map(name)
        .filter_map(|name| name.parse().ok())
        .collect()
}

/// The environment that a process was started with. `None` also for processes of other users.
fn environment_of(process: u32) -> Option<Vec<u8>> {
    std::fs::read(format!("/proc/{process}/environ")).ok()
}

/// The engine's tag.
fn tag_in(environment: &[u8]) -> Option<String> {
    let mut variables = environment.split(|&byte| byte == 0);
    let value = variables.find_map(|variable| {
        variable
            .strip_prefix(TAG.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"="))
    })?;
    String::from_utf8(value.to_owned()).ok()
}

/// Whether a process is inside `exec`, between its old memory and its new one: it has neither
/// words nor environment then. A thread of the kernel never has.
fn is_in_exec(process: u32) -> bool {
    const KERNEL_THREAD: u64 = 0x0020_0000;
    let words = std::fs::read(format!("/proc/{process}/cmdline"));
    let flags = stat_field(process, 6).and_then(|flags| flags.parse::<u64>().ok());
    words.is_ok_and(|words| words.is_empty())
        && flags.is_some_and(|flags| flags & KERNEL_THREAD == 0)
        && is_alive(process)
}

/// Not a zombie and not gone.
fn is_alive(process: u32) -> bool {
    stat_field(process, 0).is_some_and(|state| state != "Z" && state != "X")
}

/// When a process started, in clock ticks since the system did. With the number it names a process
/// for ever.
fn started_at(process: u32) -> Option<u64> {
    stat_field(process, 19)?.parse().ok()
}

/// A field of `/proc/PID/stat`, counted from the state, which follows the name in brackets. The
/// name may hold brackets and spaces itself.
fn stat_field(process: u32, position: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(position).map(str::to_owned)
}

/// Such as `pid:[4026531836]`, without what would break a tag.
fn namespace() -> Option<String> {
    let link = std::fs::read_link(Path::new("/proc/self/ns/pid")).ok()?;
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
    fn our_own_engines_are_no_orphans_and_the_start_of_a_process_is_its_own() {
        let tag = new_tag(crate::pool::ReplicaId(9));
        let fields: Vec<&str> = tag.split('.').collect();
        assert_eq!(fields.len(), 5, "{tag}");
        assert_ne!(tag, new_tag(crate::pool::ReplicaId(9)));
        let own = std::process::id();
        assert_eq!(fields[1], own.to_string());
        assert_eq!(started_at(own).unwrap().to_string(), fields[2]);
        assert_ne!(started_at(1), started_at(own));
        assert!(is_alive(own));
    }
}
