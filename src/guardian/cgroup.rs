//! A control group (version 2) for one engine, if we may create one below our own. A process born in it stays in it, so one write
//! ends all of its processes, even when parentage is no longer known. Without a group, parents and marks are used instead. No
//! limits are set.
//!
//! Moving a process into a group takes the kernel many milliseconds, while starting one in it takes none. The guardian therefore
//! moves into the group while it waits, starts the engine there, and moves out.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

const NAME: &str = "model-pool-";

/// The folder of this process's control group, if the system uses version 2.
pub fn own() -> Option<PathBuf> {
    let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    own_in(&groups, &mounts)
}

/// `groups` and `mounts` have the format of `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn own_in(groups: &str, mounts: &str) -> Option<PathBuf> {
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    // proc_pid_mountinfo(5): the dash is followed by the type of the file system and its source.
    let mount = mounts.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        system.starts_with("cgroup2 ").then_some(mount)
    })?;
    let mut fields = mount.split(' ').skip(3);
    let (root, point) = (fields.next()?, fields.next()?);
    let below = Path::new(path).strip_prefix(root).ok()?;
    Some(Path::new(point).join(below))
}

/// The group for the engine of a guardian with this token, below our own group.
pub fn folder_of(own: &Path, token: &str) -> PathBuf {
    own.join(format!("{NAME}{token}"))
}

/// Creates the group and moves this process into it. Returns false without permission, or if the kernel cannot kill a group as a
/// unit.
pub fn enter(folder: &Path) -> bool {
    if std::fs::create_dir(folder).is_err() {
        return false;
    }
    let entered = folder.join("cgroup.kill").exists() && move_to(folder);
    if !entered {
        remove(folder);
    }
    entered
}

/// Moves this process back to the parent group.
pub fn leave(folder: &Path) -> bool {
    folder.parent().is_some_and(move_to)
}

fn move_to(folder: &Path) -> bool {
    let file = File::options()
        .write(true)
        .open(folder.join("cgroup.procs"));
    file.and_then(|mut file| file.write_all(b"0")).is_ok()
}

/// Removes groups that killed guardians left behind. A group with processes stays.
pub fn remove_empty(own: &Path) {
    for entry in std::fs::read_dir(own).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(NAME) {
            remove(&entry.path());
        }
    }
}

/// Kills every process in the group, if it exists.
pub fn kill(folder: &Path) {
    let file = File::options().write(true).open(folder.join("cgroup.kill"));
    let _ = file.and_then(|mut file| file.write_all(b"1"));
}

/// Removes the group. Returns true if it is gone; a group with processes stays.
pub fn remove(folder: &Path) -> bool {
    std::fs::remove_dir(folder).is_ok() || !folder.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_group_is_found_below_the_cgroup_v2_mount() {
        let mounts = "24 1 0:21 / /proc rw - proc proc rw\n31 24 0:27 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw\n";
        let groups = "1:name=systemd:/x\n0::/system.slice/model-pool.service\n";
        let expected = "/sys/fs/cgroup/system.slice/model-pool.service";
        assert_eq!(own_in(groups, mounts).as_deref(), Some(Path::new(expected)));
        let old = "31 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
        assert_eq!(own_in(groups, old), None);
        let inside = "31 24 0:27 /docker/a /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        let group = own_in("0::/docker/a/b\n", inside);
        assert_eq!(group.as_deref(), Some(Path::new("/sys/fs/cgroup/b")));
    }
}
