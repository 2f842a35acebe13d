//! The script of a job: its text, and its behaviour in a shell.

use std::process::{Child, Command, Stdio};

use super::*;

#[test]
fn the_script_has_every_option_quoted_and_never_the_token() {
    let mut section = section();
    section.node_data = Some("/scratch/a b/%j".to_owned());
    section.node_options = vec!["--listen".to_owned(), "0.0.0.0:0; rm -r /".to_owned()];
    section.shapes[0].select = Some("ncpus=16:gpu_type=a100".to_owned());
    let pbs = &mut section.pbs;
    pbs.queue = Some("gpu".to_owned());
    pbs.account = Some("lab".to_owned());
    pbs.select = Some("ncpus=1".to_owned());
    pbs.log_dir = Some("/shared/logs".into());
    pbs.options = vec!["-l filesystems=home".to_owned()];
    pbs.setup = "module load cuda\n".to_owned();
    let script = Pbs::new(&section).script("a2", Some(5)).expect("rendered");
    let expected = r#"#!/bin/bash
#PBS -N model-pool.lab
#PBS -v MODEL_POOL_LEASE=a2.5
#PBS -S /bin/bash
#PBS -q gpu
#PBS -A lab
#PBS -l select=1:ngpus=2:ncpus=16:gpu_type=a100
#PBS -l place=pack
#PBS -l walltime=08:00:01
#PBS -r n
#PBS -m n
#PBS -j oe
#PBS -o /dev/null
#PBS -l filesystems=home

exec >>/shared/logs/model-pool-"$PBS_JOBID.log" 2>&1 || exit 73
mp_node= mp_sent= mp_ends= mp_again=yes
"#;
    assert!(script.starts_with(expected), "{script}");
    for part in [
        "\nset -e\nmodule load cuda\nset +e\ntrap - EXIT\nif [ -z \"${CUDA_VISIBLE_DEVICES+set}\" ]; then\n",
        "\nmodel-pool node --controller https://pool.example.org:8443 --name \"pbs-${PBS_JOBID%%.*}\" --token-file '/shared/the token' --demand 5 --data '/scratch/a b/'\"$PBS_JOBID\" --remove-data --listen '0.0.0.0:0; rm -r /' &\nmp_node=$!\n",
        "sleep 28681 &",
    ] {
        assert!(script.contains(part), "`{part}` is missing in:\n{script}");
    }
    let unknown = Pbs::new(&section).script("a3", None).expect_err("unknown");
    assert!(unknown.to_string().contains("a2, free"), "{unknown}");
}

#[test]
fn an_exclusive_machine_needs_no_gpu_variable() {
    let mut section = section();
    section.pbs.exclusive = true;
    section.pbs.requeue = true;
    section.pbs.gpu_resource = "gpus".to_owned();
    let script = Pbs::new(&section).script("a2", None).expect("rendered");
    for part in [
        "\n#PBS -v MODEL_POOL_LEASE=a2\n",
        "\n#PBS -l select=1:gpus=2\n",
        "\n#PBS -l place=pack:exclhost\n",
        "\n#PBS -r y\n",
    ] {
        assert!(script.contains(part), "`{part}` is missing in:\n{script}");
    }
    assert!(!script.contains("CUDA_VISIBLE_DEVICES"));
    assert!(!script.contains("/dev/null\n#PBS") && !script.contains("exec >>"));
}

/// A node that reports SIGTERM and exits some time later.
const NODE: &str = "trap 'echo drains; sleep 0.2; echo drained; exit 5' TERM\ntouch $(dirname $0)/up\nwhile :; do sleep 0.1; done";

/// Runs the script of this shape as a job.
fn job(folder: &tempfile::TempDir, change: impl FnOnce(&mut ClusterSection)) -> Child {
    let mut section = section();
    section.program = folder.path().join("node").display().to_string();
    section.pbs.log_dir = Some(folder.path().to_owned());
    change(&mut section);
    let script = Pbs::new(&section).script("a2", None).expect("rendered");
    write(folder, "script", &script);
    Command::new("bash")
        .arg(folder.path().join("script"))
        .env("PBS_JOBID", "7.pbs01")
        .env("CUDA_VISIBLE_DEVICES", "GPU-1,GPU-2")
        .stdin(Stdio::null())
        .spawn()
        .expect("a shell")
}

fn signal(job: &Child, name: &str) {
    let pid = job.id().to_string();
    let sent = Command::new("kill").args([name, &pid]).status();
    assert!(sent.expect("kill").success());
}

fn status(mut job: Child) -> Option<i32> {
    job.wait().expect("its end").code()
}

#[test]
fn a_node_gets_a_single_sigterm_despite_repeated_signals_and_site_settings() {
    for setup in ["", "set -euo pipefail"] {
        let folder = played(&[("node", NODE)]);
        let job = job(&folder, |section| section.pbs.setup = setup.to_owned());
        while !folder.path().join("up").exists() {
            std::thread::yield_now();
        }
        signal(&job, "-URG");
        signal(&job, "-URG");
        assert_eq!(status(job), Some(5), "the node's own status");
        let log = read(&folder, "model-pool-7.pbs01.log");
        assert_eq!(log.matches("drains").count(), 1, "{log}");
        assert!(log.ends_with("drained\n"), "{log}");
    }
}

#[test]
fn a_node_drains_before_the_end_of_its_time() {
    let folder = played(&[("node", NODE)]);
    let job = job(&folder, |section| {
        section.shapes[0].time_limit = Length::from_secs(2);
    });
    assert_eq!(status(job), Some(5));
    let log = read(&folder, "model-pool-7.pbs01.log");
    assert!(log.ends_with("drains\ndrained\n"), "{log}");
}

#[test]
fn a_job_without_known_gpus_or_a_writable_log_starts_no_node() {
    let folder = played(&[("node", NODE)]);
    let unset = "unset CUDA_VISIBLE_DEVICES".to_owned();
    let blind = job(&folder, |section| section.pbs.setup = unset);
    assert_eq!(status(blind), Some(78));
    let log = read(&folder, "model-pool-7.pbs01.log");
    assert!(log.contains("cluster.pbs.exclusive"), "{log}");
    let mute = job(&folder, |section| {
        section.pbs.log_dir = Some("/nonexistent".into());
    });
    assert_eq!(status(mute), Some(73));
    assert!(!folder.path().join("up").exists());
}
