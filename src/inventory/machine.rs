//! The machine's memory and that of single processes, from `/proc` and the control group.

use std::path::Path;

use pool::Bytes;

/// The machine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineMemory {
    pub total: Bytes,
    /// Memory that programs can take without swapping.
    pub available: Bytes,
}

/// The machine's memory, or the part that this process's control group leaves of it; `None` if the system does not report it.
pub fn machine_memory() -> Option<MachineMemory> {
    let meminfo = Path::new("/proc/meminfo");
    let machine = MachineMemory {
        total: field(meminfo, &["MemTotal:"])?,
        available: field(meminfo, &["MemAvailable:"])?,
    };
    let number = |name: &str| -> Option<Bytes> {
        let text = std::fs::read_to_string(Path::new("/sys/fs/cgroup").join(name)).ok()?;
        text.trim().parse().ok().map(Bytes)
    };
    // `max` is not a number and means no limit.
    let Some(limit) = number("memory.max") else {
        return Some(machine);
    };
    let used = number("memory.current").unwrap_or_default();
    Some(MachineMemory {
        total: machine.total.min(limit),
        available: machine.available.min(limit.saturating_sub(used)),
    })
}

/// The memory that comes back when the process ends. File pages, such as its program and mapped weights, belong to the machine and
/// already count as available.
pub(super) fn own_memory(pid: u32) -> Option<Bytes> {
    field(
        Path::new(&format!("/proc/{pid}/status")),
        &["RssAnon:", "RssShmem:"],
    )
}

/// The sum of these fields in a `/proc` file; `None` if the file or all of the fields are missing.
pub(super) fn field(file: &Path, names: &[&str]) -> Option<Bytes> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut found = None;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        if words.next().is_some_and(|name| names.contains(&name)) {
            let kib: u64 = words.next()?.parse().ok()?;
            found = Some(found.unwrap_or(Bytes::ZERO) + Bytes(kib.saturating_mul(1 << 10)));
        }
    }
    found
}
