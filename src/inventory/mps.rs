//! NVIDIA's Multi-Process Service: a daemon with a server process through which the programs of a machine compute on its GPUs
//! simultaneously.
//!
//! A CUDA program uses the service if a control daemon runs ("Multi-Process Service", NVIDIA, and nvidia-cuda-mps-control(1)). NVML
//! reports such programs in a separate list of processes. The memory of the server itself belongs to no engine, and a GPU exception
//! that one program causes ends all programs on the same GPU ("Error Containment").

use std::collections::BTreeMap;

use super::sysfs::Root;

/// Names the folder of the daemon's files.
pub(super) const PIPE_DIRECTORY: &str = "CUDA_MPS_PIPE_DIRECTORY";
const DEFAULT_DIRECTORY: &str = "/tmp/nvidia-mps";

/// The warning about a running daemon.
pub(super) const NOTICE: &str = "NVIDIA's Multi-Process Service (MPS) runs: an error of one engine on a GPU ends all engines there, and the memory of the MPS server counts as that of other programs";

/// The folder of a running control daemon that engines of this process would use.
pub(super) fn daemon(root: &Root, environment: &BTreeMap<String, String>) -> Option<String> {
    let named = environment.get(PIPE_DIRECTORY);
    let named = named.filter(|folder| !folder.is_empty());
    let folder = named.map_or(DEFAULT_DIRECTORY, String::as_str);
    // The file goes with the daemon unless that was killed.
    let pid = root.number(format!("{folder}/nvidia-cuda-mps-control.pid"));
    let is_alive = pid.is_ok_and(|pid| root.path(format!("/proc/{pid}")).exists());
    // In a container with its own process ids, only the socket of the daemon outside is certain.
    let is_lent = || named.is_some() && root.path(format!("{folder}/control")).exists();
    (is_alive || is_lent()).then(|| folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_daemon_is_found_by_its_living_process_or_by_the_named_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = Root::new(folder.path());
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, text).expect("written");
        };
        let none = BTreeMap::new();
        let named = |folder: &str| BTreeMap::from([(PIPE_DIRECTORY.to_owned(), folder.to_owned())]);
        assert_eq!(daemon(&root, &none), None);
        write("tmp/nvidia-mps/nvidia-cuda-mps-control.pid", "4711\n");
        write("tmp/nvidia-mps/control", "");
        assert_eq!(daemon(&root, &none), None, "the daemon was killed");
        write("proc/4711/stat", "");
        assert_eq!(daemon(&root, &none).as_deref(), Some(DEFAULT_DIRECTORY));
        assert_eq!(daemon(&root, &named("/mps")), None);
        write("mps/control", "");
        assert_eq!(daemon(&root, &named("/mps")).as_deref(), Some("/mps"));
        assert_eq!(
            daemon(&root, &named("")).as_deref(),
            Some(DEFAULT_DIRECTORY)
        );
    }
}
