//! The GPUs of the Slurm job that this process runs in, for a job without `CUDA_VISIBLE_DEVICES`: other jobs may have the machine's
//! other GPUs.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::path::Path;

const JOB: &str = "SLURM_JOB_ID";
/// The indices of the job's GPUs, as in `nvidia-smi`. A step may have fewer than its job.
const GPUS: [&str; 2] = ["SLURM_STEP_GPUS", "SLURM_JOB_GPUS"];

/// The job's GPUs in the form of `CUDA_VISIBLE_DEVICES`. `None` outside of a job, and if the job can open only its own GPUs.
///
/// # Errors
/// If the job's GPUs are unknown, with advice.
pub(crate) fn visible(environment: &BTreeMap<String, String>) -> Result<Option<String>, String> {
    find(environment, Path::new("/dev"))
}

fn find(environment: &BTreeMap<String, String>, devices: &Path) -> Result<Option<String>, String> {
    let Some(job) = environment.get(JOB) else {
        return Ok(None);
    };
    let gpus = gpu_files(devices);
    let can_open = |name: &String| {
        let opened = OpenOptions::new()
            .read(true)
            .write(true)
            .open(devices.join(name));
        opened.is_ok()
    };
    // A device cgroup hides the other GPUs from the driver too, and renumbers the rest.
    if gpus.iter().any(|gpu| !can_open(gpu)) || gpus.is_empty() {
        return Ok(None);
    }
    let named = GPUS.iter().find_map(|name| environment.get(*name));
    match named.map(|text| indices(text)) {
        Some(Some(indices)) => Ok(Some(indices)),
        Some(None) => Err(format!(
            "Slurm's job {job} names its GPUs as `{}`, which is not a list of indices; set CUDA_VISIBLE_DEVICES in cluster.slurm.setup, or list inventory.devices",
            named.map_or("", String::as_str)
        )),
        None => Err(format!(
            "Slurm's job {job} does not say which of the machine's {} GPUs are its own: {} and CUDA_VISIBLE_DEVICES are not set, and no device cgroup limits it; request GPUs for the job (gres), set CUDA_VISIBLE_DEVICES in cluster.slurm.setup, list inventory.devices, or set inventory.provider to host",
            gpus.len(),
            GPUS.join(", ")
        )),
    }
}

/// The names `nvidia0`, `nvidia1` and so on, in the folder of devices.
fn gpu_files(devices: &Path) -> Vec<String> {
    let entries = fs::read_dir(devices).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let is_gpu = |name: &String| {
        let digits = name.strip_prefix("nvidia").unwrap_or_default();
        !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
    };
    names.filter(is_gpu).collect()
}

/// `0,2` or `0-1,3` as `0,1,3`. `None` for other texts.
fn indices(text: &str) -> Option<String> {
    let mut all = Vec::new();
    for part in text.split(',').map(str::trim) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        all.extend((first..=last).map(|index| index.to_string()));
    }
    (!all.is_empty()).then(|| all.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A folder with these GPUs; `closed` ones cannot be opened.
    fn machine(gpus: u32, closed: &[u32]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for gpu in 0..gpus {
            let path = folder.path().join(format!("nvidia{gpu}"));
            if closed.contains(&gpu) {
                symlink("/nonexistent/device", path).expect("linked");
            } else {
                fs::write(path, "").expect("written");
            }
        }
        fs::write(folder.path().join("nvidiactl"), "").expect("written");
        folder
    }

    fn environment(variables: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        variables.iter().map(owned).collect()
    }

    #[test]
    fn a_job_uses_the_gpus_slurm_assigned_and_a_step_its_subset() {
        let folder = machine(4, &[]);
        let mut variables = vec![("SLURM_JOB_ID", "13"), ("SLURM_JOB_GPUS", "1-2,3")];
        let found = find(&environment(&variables), folder.path());
        assert_eq!(found, Ok(Some("1,2,3".to_owned())));
        variables.push(("SLURM_STEP_GPUS", "2"));
        let found = find(&environment(&variables), folder.path());
        assert_eq!(found, Ok(Some("2".to_owned())));
    }

    #[test]
    fn jobs_confined_by_a_device_cgroup_and_processes_outside_jobs_use_all_visible_gpus() {
        let job = environment(&[("SLURM_JOB_ID", "13"), ("SLURM_JOB_GPUS", "3")]);
        assert_eq!(find(&job, machine(4, &[0, 1]).path()), Ok(None));
        assert_eq!(find(&job, machine(0, &[]).path()), Ok(None));
        assert_eq!(find(&environment(&[]), machine(4, &[]).path()), Ok(None));
    }

    #[test]
    fn a_job_with_unknown_gpus_is_refused_with_advice() {
        let folder = machine(2, &[]);
        for variables in [
            &[("SLURM_JOB_ID", "13")][..],
            &[("SLURM_JOB_ID", "13"), ("SLURM_JOB_GPUS", "all")],
            &[("SLURM_JOB_ID", "13"), ("SLURM_JOB_GPUS", "")],
        ] {
            let error = find(&environment(variables), folder.path()).expect_err("unknown");
            assert!(
                error.contains("job 13") && error.contains("CUDA_VISIBLE_DEVICES"),
                "{error}"
            );
        }
    }
}
