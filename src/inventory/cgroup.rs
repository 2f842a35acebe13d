//! The memory limits of the control groups that this process is in. systemd's `MemoryMax` and `MemoryHigh`, Slurm and container
//! runtimes set them, at any level between the process's own group and the root.
//!
//! The formats are documented in cgroups(7), proc_pid_cgroup(5), proc_pid_mountinfo(5), and of "Control Group v2" and "Memory Resource
//! Controller" in the kernel's administrator's guide.

use std::path::{Path, PathBuf};

use super::sysfs::{Root, field};
use pool::Bytes;

/// One group with a limit, and the memory in use below it that the kernel cannot reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupMemory {
    pub limit: Bytes,
    pub used: Bytes,
}

/// Names of files in one version of control groups.
struct Version {
    limits: &'static [&'static str],
    used: &'static str,
    /// File pages in `memory.stat`, which the kernel frees when memory is needed.
    reclaimable: [&'static str; 2],
}

const VERSION_1: Version = Version {
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    reclaimable: ["total_inactive_file", "total_active_file"],
};
const VERSION_2: Version = Version {
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    reclaimable: ["inactive_file", "active_file"],
};

/// The groups with a limit, from the process's own group upwards. A machine may use both versions.
pub(super) fn limits(root: &Root) -> Vec<GroupMemory> {
    let groups = root.text("/proc/self/cgroup").unwrap_or_default();
    let mounts = root.text("/proc/self/mountinfo").unwrap_or_default();
    let mut found = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(id), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let (version, mount) = if id == "0" && controllers.is_empty() {
            (VERSION_2, mount_of(&mounts, |kind, _| kind == "cgroup2"))
        } else if controllers.split(',').any(|name| name == "memory") {
            let is_memory = |kind: &str, options: &str| {
                kind == "cgroup" && options.split(',').any(|option| option == "memory")
            };
            (VERSION_1, mount_of(&mounts, is_memory))
        } else {
            continue;
        };
        let Some((mount_root, point)) = mount else {
            continue;
        };
        // In a container the path may lead out of what is mounted; its own group is then the mount itself.
        let below = Path::new(path).strip_prefix(mount_root);
        let mut group = PathBuf::from(point).join(below.unwrap_or(Path::new("")));
        loop {
            found.extend(memory_of(root, &group, &version));
            if group == Path::new(point) || !group.pop() {
                break;
            }
        }
    }
    found
}

/// The root and the mount point of the first file system that `is_it` accepts by its type and options.
fn mount_of(mounts: &str, is_it: impl Fn(&str, &str) -> bool) -> Option<(&str, &str)> {
    mounts.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        let (kind, options) = (system.next()?, system.nth(1)?);
        let mut fields = mount.split(' ').skip(3);
        is_it(kind, options).then_some((fields.next()?, fields.next()?))
    })
}

fn memory_of(root: &Root, group: &Path, version: &Version) -> Option<GroupMemory> {
    let number = |name: &str| root.number(group.join(name)).ok();
    // `max` is not a number and means no limit; version 1 writes the largest multiple of a page.
    let limits = version.limits.iter().filter_map(|name| number(name));
    let limit = limits.filter(|limit| *limit < i64::MAX as u64 >> 1).min()?;
    let stat = root.text(group.join("memory.stat")).unwrap_or_default();
    let reclaimable = version.reclaimable.iter();
    let reclaimable = reclaimable.filter_map(|name| field(&stat, name)?.parse::<u64>().ok());
    let used = number(version.used).unwrap_or(0);
    Some(GroupMemory {
        limit: Bytes(limit),
        used: Bytes(used.saturating_sub(reclaimable.sum::<u64>())),
    })
}
