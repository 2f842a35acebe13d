//! The entry point, run by a real shell as Ray runs it: in a separate session, with its output in a file.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use super::*;

/// A node that reports its start and drains.
const NODE: &str = "#!/bin/sh
folder=$(dirname \"$0\")
trap 'echo drained >>\"$folder/output\"; exit 0' TERM
echo \"$*\" >>\"$folder/output\"
echo $$ >\"$folder/pid\"
while :; do sleep 0.05; done
";

struct Job {
    folder: tempfile::TempDir,
    child: Child,
}

fn submission(folder: &std::path::Path, limit_seconds: u64) -> Value {
    let mut section = section();
    section.program = folder.join("the node").display().to_string();
    section.node_options = vec!["--config".to_owned(), "it's".to_owned()];
    section.ray.grace = Length::from_secs(1);
    section.ray.setup = "export MODEL_POOL_TEST=yes".to_owned();
    let mut shape = shape("a1", 1, 28_800);
    shape.time_limit = Length::from_secs(limit_seconds);
    submission::body(&section, &shape, Some(7), "model-pool.lab.7", &[])
}

impl Job {
    fn start(node: &str, limit_seconds: u64) -> Job {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("the node");
        std::fs::write(&program, node).expect("written");
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("set");
        let body = submission(folder.path(), limit_seconds);
        let child = Command::new("/bin/sh")
            .args(["-c", body["entrypoint"].as_str().expect("a script")])
            .env("TMPDIR", folder.path())
            .stdout(std::fs::File::create(folder.path().join("log")).expect("created"))
            // A process group is enough: no process here has a terminal.
            .process_group(0)
            .spawn()
            .expect("a shell");
        Job { folder, child }
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn wait_for_node(&self) -> Pid {
        loop {
            let pid = self.file("pid").trim().parse().ok().and_then(Pid::from_raw);
            match pid {
                Some(pid) => return pid,
                None => std::thread::yield_now(),
            }
        }
    }

    fn end(&mut self) -> ExitStatus {
        self.child.wait().expect("waited")
    }

    /// Returns true if the script's temporary state exists.
    fn has_state(&self) -> bool {
        let entries = std::fs::read_dir(self.folder.path()).expect("a folder");
        let mut names = entries.flatten().map(|entry| entry.file_name());
        names.any(|name| name.to_string_lossy().starts_with("tmp."))
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = kill_process_group(self.pid(), Signal::KILL);
    }
}

fn is_alive(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_node_gets_its_arguments_without_secrets_and_its_status_ends_the_job() {
    let mut job = Job::start(
        "#!/bin/sh\necho \"$MODEL_POOL_TEST $*\" >\"$(dirname \"$0\")/output\"\nexit 7\n",
        600,
    );
    assert_eq!(job.end().code(), Some(7));
    assert_eq!(
        job.file("output").trim(),
        format!(
            "yes node --controller https://pool.example.org:8443 --name ray-7 --token-file /shared/the token --demand 7 --data {}/model-pool.lab.7 --remove-data --config it's",
            job.folder.path().display()
        )
    );
    assert!(!job.has_state());
    let start = start_line::of_log(&job.file("log")).expect("a start");
    assert!(now().as_secs() - start < 60, "{start}");
}

#[test]
fn a_stopped_job_signals_only_its_node_and_ends_after_the_drain() {
    let mut job = Job::start(NODE, 600);
    let node = job.wait_for_node();
    // Ray signals the entry point and its descendants; the node is not among them.
    let below = format!("/proc/{0}/task/{0}/children", job.child.id());
    let children = std::fs::read_to_string(below).unwrap_or_default();
    assert!(
        !children
            .split(' ')
            .any(|pid| pid == node.as_raw_nonzero().to_string()),
        "{children}"
    );
    kill_process(job.pid(), Signal::TERM).expect("signalled");
    assert_eq!(job.end().code(), Some(0));
    assert!(
        job.file("output").ends_with("drained\n"),
        "{}",
        job.file("output")
    );
    assert!(!is_alive(node) && !job.has_state());
}

#[test]
fn the_node_dies_when_ray_kills_the_entry_point() {
    let mut job = Job::start(NODE, 600);
    let node = job.wait_for_node();
    kill_process(job.pid(), Signal::KILL).expect("killed");
    assert_eq!(job.end().code(), None);
    while is_alive(node) || job.has_state() {
        std::thread::yield_now();
    }
    assert!(!job.file("output").contains("drained"), "at once");
}

#[test]
fn the_time_limit_drains_a_node_and_ends_a_node_that_does_not_drain() {
    let mut job = Job::start(NODE, 2);
    assert_eq!(job.end().code(), Some(124));
    assert!(job.file("output").ends_with("drained\n"));
    let stubborn = NODE.replace(
        "trap 'echo drained >>\"$folder/output\"; exit 0' TERM",
        "trap '' TERM",
    );
    let mut job = Job::start(&stubborn, 2);
    // `timeout` is killed together with its program.
    assert!(matches!(job.end().code(), Some(124 | 137)));
    let node = job.wait_for_node();
    while is_alive(node) {
        std::thread::yield_now();
    }
}

#[test]
fn a_cancelling_job_names_its_target() {
    let body = submission::cancel_body("model-pool.lab.7");
    assert_eq!(body["submission_id"], "model-pool.lab.7.cancel");
    let entrypoint = body["entrypoint"].as_str().expect("a script");
    assert!(
        entrypoint.contains("_ray_internal_job_actor_model-pool.lab.7\""),
        "{entrypoint}"
    );
}
