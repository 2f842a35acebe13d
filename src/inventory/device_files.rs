//! The device files that a process opens to compute on a GPU. A GPU whose file cannot be opened is listed by its driver, and no
//! engine of this account could use it: Slurm and container runtimes forbid it by a device cgroup.

use std::fs::OpenOptions;
use std::io::ErrorKind;

use super::sysfs::Root;

/// The reason why the file cannot be opened. `None` if it can, or if it does not exist: NVIDIA's driver makes its files on demand.
pub(super) fn closed(root: &Root, absolute: &str) -> Option<String> {
    unusable(root, absolute, true)
}

/// The reason why a file of `/dev/dri` cannot be opened. ROCm and Level Zero skip a GPU whose file is missing or forbidden, and do
/// not count it (`topology_sysfs_check_node_supported` in `topology.c` of ROCm's libhsakmt).
pub(super) fn closed_drm(root: &Root, absolute: &str) -> Option<String> {
    unusable(root, absolute, false)
}

fn unusable(root: &Root, absolute: &str, may_be_missing: bool) -> Option<String> {
    let path = root.path(absolute);
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) => None,
        Err(error) if may_be_missing && error.kind() == ErrorKind::NotFound => None,
        Err(error) => Some(format!("{absolute} cannot be opened ({error})")),
    }
}
