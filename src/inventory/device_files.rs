//! The device files that a process opens to compute on a GPU. A GPU whose file cannot be opened is listed by its driver, and no
//! engine of this account could use it: Slurm and container runtimes forbid it by a device cgroup.

use std::fs::OpenOptions;
use std::io::ErrorKind;

use super::sysfs::Root;

/// The reason why the file cannot be opened; `None` if it can, or if it does not exist.
pub(super) fn closed(root: &Root, absolute: &str) -> Option<String> {
    let path = root.path(absolute);
    match OpenOptions::new().read(true).write(true).open(path) {
        Ok(_) => None,
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => Some(format!("{absolute} cannot be opened ({error})")),
    }
}
