//! Reads facts about processes from `/proc`: start time, parent, session. Without `/proc`, finds nothing.

use std::io::{self, Read};

use super::protocol::ProcessId;

/// Longer than `/proc/PID/stat` can be: 52 numbers of at most 20 digits, and a name of at most 64 bytes.
const STAT_MAX: usize = 2_048;

/// All process numbers.
pub fn all() -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return Vec::new();
    };
    let name = |entry: io::Result<std::fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
    entries
        .filter_map(name)
        .filter_map(|name| name.parse().ok())
        .collect()
}

/// Returns true unless the process is a zombie or gone.
pub fn is_alive(pid: u32) -> bool {
    stat_field(pid, 0).is_some_and(|state| state != "Z" && state != "X")
}

/// The start time of a process, in clock ticks since the system started. Together with the number, it identifies a process
/// uniquely.
pub fn started_at(pid: u32) -> Option<u64> {
    stat_field(pid, 19)?.parse().ok()
}

pub fn parent_of(pid: u32) -> Option<u32> {
    stat_field(pid, 1)?.parse().ok()
}

impl ProcessId {
    /// The process that has this number now. `started` is 0 if the system does not report it.
    pub fn new(pid: u32) -> ProcessId {
        let started = started_at(pid).unwrap_or_default();
        ProcessId { pid, started }
    }

    /// Returns true if exactly this process runs, not another one with the same number.
    pub fn lives(&self) -> bool {
        started_at(self.pid) == Some(self.started) && is_alive(self.pid)
    }
}

/// A field of `/proc/PID/stat`, counted from the state, which follows the name in parentheses. The name itself may contain
/// parentheses and spaces.
pub fn stat_field(pid: u32, position: usize) -> Option<String> {
    let mut buffer = [0; STAT_MAX];
    let mut file = std::fs::File::open(format!("/proc/{pid}/stat")).ok()?;
    // The system returns the complete line in one read, while a reader that does not know its length would read eight times.
    let length = file.read(&mut buffer).ok()?;
    let stat = String::from_utf8_lossy(&buffer[..length]);
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(position).map(str::to_owned)
}

/// A variable in the environment that a process was started with. `None` also for processes of other users.
pub fn variable(pid: u32, name: &str) -> Option<String> {
    variable_in(&std::fs::read(format!("/proc/{pid}/environ")).ok()?, name)
}

/// Like [`variable`], for an environment that was already read.
pub fn variable_in(environment: &[u8], name: &str) -> Option<String> {
    let mut variables = environment.split(|&byte| byte == 0);
    let value = variables.find_map(|variable| {
        let rest = variable.strip_prefix(name.as_bytes())?;
        rest.strip_prefix(b"=")
    })?;
    String::from_utf8(value.to_owned()).ok()
}

/// Returns true if a process is inside `exec`, between its old memory and its new one, or has released its memory because it is
/// dying: it then has neither arguments nor environment. False for kernel threads, which never have any.
pub fn is_between_programs(pid: u32) -> bool {
    const KERNEL_THREAD: u64 = 0x0020_0000;
    let words = std::fs::read(format!("/proc/{pid}/cmdline"));
    let flags = stat_field(pid, 6).and_then(|flags| flags.parse::<u64>().ok());
    words.is_ok_and(|words| words.is_empty())
        && flags.is_some_and(|flags| flags & KERNEL_THREAD == 0)
        && is_alive(pid)
}

/// Returns true if a process has a pending SIGKILL that it has not acted on: a driver holds it.
pub fn is_being_killed(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    pending(&status) & (1 << (SIGKILL - 1)) != 0
}

const SIGKILL: u32 = 9;

/// proc_pid_status(5): masks of pending signals, of the thread and of the process.
fn pending(status: &str) -> u64 {
    let masks = status
        .lines()
        .filter_map(|line| {
            line.strip_prefix("SigPnd:")
                .or(line.strip_prefix("ShdPnd:"))
        })
        .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    masks.fold(0, |all, mask| all | mask)
}

/// The id of this boot: process numbers of another boot are meaningless.
pub fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_identified_by_its_start_time_too() {
        let own = ProcessId::new(std::process::id());
        assert!(own.lives());
        let other = ProcessId {
            started: own.started + 1,
            ..own
        };
        assert!(
            !other.lives(),
            "the number alone does not identify a process"
        );
        assert_ne!(started_at(1), Some(own.started));
    }

    #[test]
    fn a_killed_process_that_still_runs_is_recognized_by_its_pending_signals() {
        let status = "Name:\tx\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000004100\n";
        assert_ne!(pending(status) & (1 << (SIGKILL - 1)), 0);
        assert_eq!(pending("SigPnd:\t0000000000004000\n") & 0x100, 0);
        assert!(!is_being_killed(std::process::id()));
    }

    #[test]
    fn an_environment_variable_matches_by_its_full_name() {
        let environment = b"AB=1\0A=2\0";
        assert_eq!(variable_in(environment, "A").as_deref(), Some("2"));
        assert_eq!(variable_in(environment, "B"), None);
    }
}
