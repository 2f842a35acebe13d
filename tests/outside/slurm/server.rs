//! A private Slurm: munged, slurmctld and two slurmd on the loopback address, with fake GPUs, in a temporary folder. Uses only the
//! programs of an installed Slurm, not its configuration.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use support::external_programs::{is_for_later, skipped};
use support::service::wait_for;

/// GPUs of each node.
pub const GPUS: u32 = 2;

pub struct SlurmServer {
    folder: tempfile::TempDir,
    port: u16,
    munged: Child,
    slurmctld: Option<Child>,
    nodes: Vec<Child>,
}

/// The programs of daemons are not on every user's PATH.
fn daemon(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.push("/usr/sbin".into());
    let mut found = folders.into_iter().map(|folder| folder.join(name));
    found.find(|path| path.is_file())
}

fn free_port() -> u16 {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    socket.local_addr().unwrap().port()
}

impl SlurmServer {
    /// Returns when both nodes are idle.
    pub fn start() -> Option<SlurmServer> {
        let all = ["munged", "slurmctld", "slurmd", "sbatch"];
        if is_for_later() || all.iter().any(|name| daemon(name).is_none()) {
            skipped(
                "slurm",
                "Slurm is not installed; run `.ci/slurm` and then `cargo test --test outside slurm::`",
            );
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        for name in ["munge", "state", "n0", "n1"] {
            fs::create_dir(path.join(name)).unwrap();
        }
        for gpu in 0..GPUS * 2 {
            fs::write(path.join(format!("gpu{gpu}")), "").unwrap();
        }
        let key: Vec<u8> = (0..1024_u32).map(|at| (at * 7 % 251) as u8).collect();
        fs::write(path.join("munge/key"), key).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(path.join("munge/key"), mode).unwrap();
        let munged = munged(path);
        wait_for("munged to listen", || path.join("munge/socket").exists());
        let port = free_port();
        fs::write(path.join("slurm.conf"), configuration(path, port)).unwrap();
        let gres = "NodeName=n0 Name=gpu Type=fake File=DIR/gpu[0-1]\nNodeName=n1 Name=gpu Type=fake File=DIR/gpu[2-3]\n";
        let gres = gres.replace("DIR", &path.display().to_string());
        fs::write(path.join("gres.conf"), gres).unwrap();
        let mut server = SlurmServer {
            port,
            munged,
            slurmctld: None,
            nodes: Vec::new(),
            folder,
        };
        server.start_controller();
        for node in ["n0", "n1"] {
            let child = server.daemon("slurmd", &["-D", "-N", node]);
            server.nodes.push(child);
        }
        wait_for("both nodes to be idle", || {
            let nodes = server.client("sinfo", &["-h", "-p", "gpu", "-o", "%D%T"]);
            nodes.trim() == "2idle"
        });
        Some(server)
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn conf(&self) -> PathBuf {
        self.path().join("slurm.conf")
    }

    fn daemon(&self, name: &str, arguments: &[&str]) -> Child {
        let output = fs::File::create(self.path().join(format!("{name}.output"))).unwrap();
        Command::new(daemon(name).unwrap())
            .args(arguments)
            .env("SLURM_CONF", self.conf())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(output)
            .spawn()
            .unwrap()
    }

    pub fn start_controller(&mut self) {
        let child = self.daemon("slurmctld", &["-D"]);
        self.slurmctld = Some(child);
        wait_for("slurmctld to answer", || {
            self.client("scontrol", &["ping"]).contains(" is UP")
        });
    }

    pub fn kill_controller(&mut self) {
        let mut child = self.slurmctld.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Output of a Slurm client.
    pub fn client(&self, name: &str, arguments: &[&str]) -> String {
        let output = Command::new(name)
            .args(arguments)
            .env("SLURM_CONF", self.conf())
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for SlurmServer {
    fn drop(&mut self) {
        if self.slurmctld.is_some() {
            // Running jobs end with their processes.
            let user = Command::new("id").arg("-u").output().unwrap();
            let user = String::from_utf8_lossy(&user.stdout).trim().to_owned();
            self.client("scancel", &["--full", &format!("--user={user}")]);
            wait_for("the jobs to end", || {
                self.client("squeue", &["-h", "-t", "RUNNING,COMPLETING"])
                    .trim()
                    .is_empty()
            });
        }
        let all = self.nodes.iter_mut().chain(&mut self.slurmctld);
        for child in all.chain([&mut self.munged]) {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            let log = fs::read_to_string(self.path().join("slurmctld.log")).unwrap_or_default();
            eprintln!("--- slurmctld at port {} ---\n{log}", self.port);
        }
    }
}

fn munged(path: &Path) -> Child {
    let option =
        |name: &str, file: &str| format!("--{name}={}", path.join("munge").join(file).display());
    Command::new(daemon("munged").unwrap())
        // The folder is below a world-writable folder.
        .args(["--foreground", "--force"])
        .args([
            option("key-file", "key"),
            option("socket", "socket"),
            option("pid-file", "pid"),
            option("log-file", "log"),
            option("seed-file", "seed"),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn configuration(path: &Path, port: u16) -> String {
    let output = |name: &str, arguments: &[&str]| {
        let output = Command::new(name).args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let (host, user) = (output("hostname", &["-s"]), output("id", &["-un"]));
    let nodes: String = (0..2)
        .map(|node| {
            let port = free_port();
            format!("NodeName=n{node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=1000 Gres=gpu:fake:{GPUS}\n")
        })
        .collect();
    let text = "ClusterName=test\nSlurmctldHost=HOST(127.0.0.1)\nSlurmctldPort=PORT\nSlurmUser=USER\nSlurmdUser=USER\n\
        AuthType=auth/munge\nCredType=cred/munge\nAuthInfo=socket=DIR/munge/socket\n\
        CommunicationParameters=NoCtldInAddrAny,NoInAddrAny\nMessageTimeout=3\n\
        StateSaveLocation=DIR/state\nSlurmdSpoolDir=DIR/%n\n\
        SlurmctldPidFile=DIR/slurmctld.pid\nSlurmdPidFile=DIR/%n.pid\n\
        SlurmctldLogFile=DIR/slurmctld.log\nSlurmdLogFile=DIR/%n.log\n\
        ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\nMpiDefault=none\n\
        SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nGresTypes=gpu\n\
        SchedulerParameters=sched_interval=1,bf_interval=1,sched_min_interval=0,batch_sched_delay=0\n\
        ReturnToService=2\nSlurmdParameters=config_overrides\nSlurmctldTimeout=10\nSlurmdTimeout=30\nKillWait=2\nMinJobAge=300\n\
        PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\n\
        PartitionName=gpu Nodes=n0,n1 Default=YES MaxTime=60 State=UP\nPartitionName=down Nodes=n0 State=DOWN\n\
        PartitionName=low Nodes=n0,n1 PriorityTier=1 GraceTime=60 State=UP\n\
        PartitionName=high Nodes=n0,n1 PriorityTier=10 PreemptMode=OFF State=UP\n";
    let text = text
        .replace("HOST", &host)
        .replace("PORT", &port.to_string())
        .replace("USER", &user)
        .replace("DIR", &path.display().to_string());
    // Slurm needs to know nodes before partitions.
    match text.split_once("PartitionName") {
        Some((before, after)) => format!("{before}{nodes}PartitionName{after}"),
        None => format!("{text}{nodes}"),
    }
}
