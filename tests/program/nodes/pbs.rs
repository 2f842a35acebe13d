//! The pool requests nodes from stand-ins for PBS (S2). Their jobs are folders; a starting job runs the submitted script in a
//! separate shell as pbs_mom does, which makes the nodes real.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use support::family::{chat, stub};
use support::service::{Pool, wait_for};

use super::{NO_ROOM, node, one_device, requested_node, token};

const QSUB: &str = r##"#!/bin/bash
cd "$(dirname "$0")"
[ "$*" = "-f" ] || exit 2
number=$(($(ls jobs | wc -l) + 1))
mkdir "jobs/$number"
cat > "jobs/$number/script"
sed -n 's/^#PBS -v MODEL_POOL_LEASE=//p' "jobs/$number/script" > "jobs/$number/mark"
echo "$number.pbs01"
"##;
const QSELECT: &str = r#"#!/bin/bash
cd "$(dirname "$0")"
[ -e away ] && { echo "qselect: cannot connect to server pbs01 (errno=111)" >&2; exit 111; }
for job in jobs/*; do
  [ -d "$job" ] || continue
  state=live
  [ -e "$job/exit" ] && state=finished
  [ -e "$job/deleted" ] && state=deleted
  case "$state $*" in
    finished*-x*) echo "${job#jobs/}.pbs01";;
    live*-x*) ;;
    live*) echo "${job#jobs/}.pbs01";;
  esac
done
"#;
const QSTAT: &str = r#"#!/bin/bash
cd "$(dirname "$0")"
for id in "$@"; do
  case $id in -*) continue;; esac
  job=jobs/${id%%.*}
  echo "Job Id: $id"
  echo "    Job_Name = model-pool.pool"
  if [ -e $job/exit ]; then
    echo "    job_state = F"
    echo "    Exit_status = $(cat $job/exit)"
    echo "    mtime = $(date -u '+%a %b %e %H:%M:%S %Y')"
  elif [ -e $job/started ]; then
    echo "    job_state = R"
  else
    echo "    job_state = Q"
    echo "    comment = Not Running: Not enough free nodes available"
  fi
  [ -e $job/started ] && echo "    exec_host = rack-7/0*16" && echo "    stime = $(cat $job/started)"
  echo "    Resource_List.walltime = 01:00:00"
  printf '    Variable_List = PBS_O_HOME=/home/lab,PBS_O_QUEUE=gpu,\n\tMODEL_POOL_LEASE=%s\n\n' "$(cat $job/mark)"
done
"#;
const QSIG: &str = r#"#!/bin/bash
cd "$(dirname "$0")"
echo "qsig $*" >> calls
[ "$1 $2" = "-s SIGURG" ] && kill -URG -- "-$(cat "jobs/${3%%.*}/pid")"
"#;
const QDEL: &str = r#"#!/bin/bash
cd "$(dirname "$0")"
echo "qdel $*" >> calls
touch "jobs/${1%%.*}/deleted"
"#;
/// The process that pbs_mom starts: the user's shell, which runs the script. SIGTERM or SIGUSR1 would end it.
const MOM: &str = r#"echo $$ > pid
LC_ALL=C date -u '+%a %b %e %H:%M:%S %Y' > started.new
mv started.new started
bash script
echo $? > exit.new
mv exit.new exit
"#;

/// The folder of a cluster's programs and jobs.
struct Cluster {
    folder: tempfile::TempDir,
    jobs: Vec<Child>,
}

impl Cluster {
    fn new() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("jobs")).unwrap();
        let cluster = Cluster {
            folder,
            jobs: Vec::new(),
        };
        for (name, text) in [
            ("qsub", QSUB),
            ("qselect", QSELECT),
            ("qstat", QSTAT),
            ("qsig", QSIG),
            ("qdel", QDEL),
        ] {
            cluster.program(name, text);
        }
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn pool(&self) -> Pool {
        let folder = self.folder.path().display();
        let config = format!(
            "{NO_ROOM}cluster:
  kind: pbs
  controller: http://127.0.0.1:1
  token_file: {folder}/token
  program: {folder}/node
  node_data: {folder}/data-%j
  node_options: [--config, {folder}/node.yaml]
  scale_down_after: 1s
  shapes: [{{name: one, gpus: 1, memory: 4GiB, time_limit: 1h}}]
  pbs: {{bin_dir: {folder}, log_dir: {folder}, queue: gpu}}
"
        );
        Pool::with_devices(&[stub("a", &[])], &config)
    }

    /// The job gets its machine. The pool's address is set now because the configuration could not contain it.
    fn starts(&mut self, pool: &Pool, number: u32) {
        self.program(
            "node",
            &format!(
                "#!/bin/sh\nshift 3\nexec {} node --controller http://{} \"$@\"\n",
                env!("CARGO_BIN_EXE_model-pool"),
                pool.address()
            ),
        );
        fs::write(self.path("node.yaml"), one_device("4GiB")).unwrap();
        fs::write(self.path("token"), token(pool, json!({}))).unwrap();
        let mode = PermissionsExt::from_mode(0o600);
        fs::set_permissions(self.path("token"), mode).unwrap();
        let job = Command::new("sh")
            .args(["-c", MOM])
            .current_dir(self.path(&format!("jobs/{number}")))
            .env("PBS_JOBID", format!("{number}.pbs01"))
            .env("PBS_ENVIRONMENT", "PBS_BATCH")
            .env("CUDA_VISIBLE_DEVICES", "GPU-0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        self.jobs.push(job);
    }

    fn log(&self, number: u32) -> String {
        self.read(&format!("model-pool-{number}.pbs01.log"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for job in &mut self.jobs {
            let group = format!("-{}", job.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = job.wait();
        }
    }
}

fn wait_for_reason(pool: &Pool, part: &str) {
    wait_for(&format!("the reason `{part}`"), || {
        requested_node(pool)["reason"]
            .as_str()
            .is_some_and(|reason| reason.contains(part))
    });
}

#[test]
fn s2_a_pbs_job_adds_a_node_with_a_known_end_that_drains_when_idle() {
    let mut cluster = Cluster::new();
    let pool = cluster.pool();
    thread::scope(|scope| {
        let response = scope.spawn(|| pool.post("/v1/chat/completions", &chat("a", false)));
        wait_for_reason(
            &pool,
            "lease 1.pbs01: all nodes of this shape are in use; it starts when one becomes free",
        );
        cluster.starts(&pool, 1);
        let (status, text) = response.join().unwrap();
        assert_eq!(status, 200, "{text}; {}", cluster.log(1));
    });
    assert_eq!(requested_node(&pool), Value::Null);
    assert_eq!(node(&pool, "pbs-1")["state"], "joined");
    wait_for("the end of its time to be known", || {
        node(&pool, "pbs-1")["ends_at"].is_string()
    });
    let script = cluster.read("jobs/1/script");
    for part in ["\n#PBS -q gpu\n", "\n#PBS -l select=1:ngpus=1\n"] {
        assert!(script.contains(part), "{script}");
    }
    let secret = cluster.read("token");
    assert!(
        !script.contains(secret.trim()),
        "the token is in the script"
    );

    let body = json!({"model": "a"}).to_string();
    let (status, text, _) =
        pool.request("POST", "/llm/admin/unload", &body, Some(&pool.admin_key()));
    assert_eq!(status, 200, "{text}");
    wait_for("the job to end on its own", || {
        !cluster.read("jobs/1/exit").is_empty()
    });
    assert_eq!(cluster.read("jobs/1/exit"), "0\n", "{}", cluster.log(1));
    assert_eq!(cluster.read("calls"), "qsig -s SIGURG 1.pbs01\n");
    assert!(!cluster.log(1).contains("ending immediately"));
    wait_for("the pool to know that it is gone", || {
        node(&pool, "pbs-1") == Value::Null
    });
}

#[test]
fn s2_a_pbs_request_is_found_after_an_outage_and_a_kill_and_cancelled_at_the_end() {
    let cluster = Cluster::new();
    let mut pool = cluster.pool();
    let body = chat("a", false);
    thread::scope(|scope| {
        let asked = scope.spawn(|| pool.post("/v1/chat/completions", &body));
        wait_for_reason(&pool, "lease 1.pbs01");
        fs::write(cluster.path("away"), "").unwrap();
        wait_for_reason(&pool, "the cluster cannot be reached");
        let pid = pool.pid().to_string();
        let mut kill = Command::new("kill");
        assert!(kill.args(["-KILL", &pid]).status().unwrap().success());
        let _ = asked.join();
    });
    fs::remove_file(cluster.path("away")).unwrap();
    pool.kill_and_restart();
    thread::scope(|scope| {
        let _asked = scope.spawn(|| pool.post("/v1/chat/completions", &body));
        wait_for_reason(&pool, "lease 1.pbs01: all nodes of this shape are in use");
        assert!(!cluster.path("jobs/2").exists(), "one is enough");
        pool.terminate();
    });
    assert!(pool.wait(Duration::from_secs(60)));
    assert_eq!(cluster.read("calls"), "qdel 1.pbs01\n");
}
