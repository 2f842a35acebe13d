//! The machine's memory and that of single processes, from `/proc` and the control groups.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::cgroup;
use super::sysfs::{ROOT_VARIABLE, Root};
use pool::Bytes;

/// The machine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineMemory {
    pub total: Bytes,
    /// Memory that programs can take without swapping.
    pub available: Bytes,
}

impl MachineMemory {
    /// The machine's memory, or the part that the control groups of this process leave of it: the smallest limit at any level.
    /// `None` if the system does not report it.
    pub(super) fn read(root: &Root) -> Option<MachineMemory> {
        let text = root.text("/proc/meminfo").ok()?;
        let machine = MachineMemory {
            total: sum(&text, &["MemTotal:"])?,
            available: sum(&text, &["MemAvailable:"])?,
        };
        let groups = cgroup::limits(root).into_iter();
        Some(groups.fold(machine, |memory, group| MachineMemory {
            total: memory.total.min(group.limit),
            available: memory.available.min(group.limit.saturating_sub(group.used)),
        }))
    }
}

/// The folder with the files of the machine: `/`, or the value of `MODEL_POOL_DEVICE_ROOT`.
pub fn device_root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| std::env::var_os(ROOT_VARIABLE).map_or("/".into(), PathBuf::from))
}

/// The machine's memory, or the part that the control groups of this process leave of it; `None` if the system does not report it.
pub fn machine_memory() -> Option<MachineMemory> {
    MachineMemory::read(&Root::new(device_root()))
}

/// The memory that comes back when the process ends. File pages, such as its program and mapped weights, belong to the machine and
/// already count as available.
pub(super) fn own_memory(pid: u32) -> Option<Bytes> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    sum(&text, &["RssAnon:", "RssShmem:"])
}

/// The sum of these fields of a `/proc` file, which are in KiB; `None` if all of them are missing.
fn sum(text: &str, names: &[&str]) -> Option<Bytes> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const MIB: u64 = Bytes::MIB;

    /// A machine with 8 GiB, of which 4 are available, and these files.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let folder = tempfile::tempdir().expect("a folder");
        let meminfo = "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n";
        for (path, text) in files.iter().chain(&[("proc/meminfo", meminfo)]) {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        }
        let root = Root::new(folder.path());
        (folder, root)
    }

    fn read(files: &[(&str, &str)]) -> (u64, u64) {
        let (_folder, root) = machine(files);
        let memory = MachineMemory::read(&root).expect("memory");
        (memory.total.0 / MIB, memory.available.0 / MIB)
    }

    const UNIFIED: (&str, &str) = (
        "proc/self/mountinfo",
        "24 1 0:21 / /proc rw - proc proc rw\n31 24 0:27 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw\n",
    );
    const SERVICE: (&str, &str) = (
        "proc/self/cgroup",
        "0::/system.slice/model-pool.service/main\n",
    );

    #[test]
    fn without_a_cgroup_limit_the_memory_of_the_machine_counts() {
        assert_eq!(read(&[]), (8192, 4096));
        let none = ("sys/fs/cgroup/system.slice/memory.max", "max\n");
        assert_eq!(read(&[UNIFIED, SERVICE, none]), (8192, 4096));
    }

    #[test]
    fn the_tightest_cgroup_limit_applies_and_file_pages_count_as_available() {
        let group = "sys/fs/cgroup/system.slice";
        let files = [
            UNIFIED,
            SERVICE,
            (&format!("{group}/memory.max"), "2147483648\n"),
            (&format!("{group}/memory.current"), "1610612736\n"),
            (
                &format!("{group}/memory.stat"),
                "anon 536870912\nfile 1073741824\ninactive_file 805306368\nactive_file 268435456\n",
            ),
            (&format!("{group}/model-pool.service/memory.max"), "max\n"),
            (
                &format!("{group}/model-pool.service/memory.high"),
                "3221225472\n",
            ),
        ];
        assert_eq!(read(&files), (2048, 1536), "512 MiB of 2 GiB are in use");
        let tighter = (
            &*format!("{group}/model-pool.service/main/memory.high"),
            "1073741824\n",
        );
        let files: Vec<_> = files.into_iter().chain([tighter]).collect();
        assert_eq!(read(&files), (1024, 1024));
    }

    #[test]
    fn version_1_below_a_slurm_job_and_in_a_container_is_read() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let job = "sys/fs/cgroup/memory/slurm/uid_1000/job_7";
        let files = [
            ("proc/self/mountinfo", mounts),
            (
                "proc/self/cgroup",
                "9:name=systemd:/\n4:memory:/slurm/uid_1000/job_7/step_0\n0::/\n",
            ),
            (
                &format!("{job}/step_0/memory.limit_in_bytes"),
                "9223372036854771712\n",
            ),
            (&format!("{job}/memory.limit_in_bytes"), "1073741824\n"),
            (&format!("{job}/memory.usage_in_bytes"), "536870912\n"),
            (
                &format!("{job}/memory.stat"),
                "cache 1\ntotal_inactive_file 268435456\n",
            ),
        ];
        assert_eq!(read(&files), (1024, 768));
        // The mount of a container without its own namespace begins at its group.
        let inside = "35 31 0:32 /docker/a /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let files = [
            ("proc/self/mountinfo", inside),
            ("proc/self/cgroup", "4:memory:/docker/a\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n"),
        ];
        assert_eq!(read(&files), (512, 512));
    }

    #[test]
    fn a_cgroup_limit_below_current_use_leaves_no_memory_and_an_invalid_one_is_ignored() {
        let group = "sys/fs/cgroup/system.slice";
        let files = [
            UNIFIED,
            SERVICE,
            (&format!("{group}/memory.max"), "1048576\n"),
            (&format!("{group}/memory.current"), "2097152\n"),
        ];
        assert_eq!(read(&files), (1, 0));
        for text in ["", "-5", "12 MiB", "\u{0}"] {
            let garbage = (&*format!("{group}/memory.max"), text);
            assert_eq!(read(&[UNIFIED, SERVICE, garbage]), (8192, 4096), "{text}");
        }
    }
}
