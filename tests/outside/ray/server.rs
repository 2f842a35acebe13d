//! A private Ray, with a head and machines that have configurable numbers of GPUs. Everything runs in network and process
//! namespaces: Ray's ports accept commands from every caller, and its `stop` would end every Ray of the machine.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use support::external_programs::skipped;

const INSIDE: &str = "MODEL_POOL_TEST_IS_INSIDE";
const PORT: u16 = 8265;
/// Each job starts one or two Python processes, which takes seconds even on an idle machine.
const PATIENCE: Duration = Duration::from_secs(180);
/// Brings the loopback interface up, and executes the test.
const BEGIN: &str = "import fcntl, os, socket, struct, sys
fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh14x', b'lo', 0x41))
os.execv(sys.argv[1], sys.argv[1:])";

/// The folder of Ray's programs, if `.ci/ray` has installed it.
fn programs() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/ray");
    // This file is installed last.
    let there = folder.join("version").is_file();
    there.then(|| folder.join("bin"))
}

/// Returns true inside the namespaces, where the test continues. Outside, it runs the test inside and returns false once it has
/// passed, or if Ray is not installed.
///
/// # Panics
/// If the test fails inside.
pub fn is_inside(test: &str) -> bool {
    static ALONE: Mutex<()> = Mutex::new(());
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let Some(programs) = programs() else {
        let how =
            "there is no Ray. Bring one with `.ci/ray`, and run `cargo test --test outside ray::`";
        skipped("ray", how);
        return false;
    };
    // One at a time: each Ray needs 1 GB.
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let namespaces = ["--net", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let can = |more: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args(more)
            .args(namespaces)
            .arg("true")
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    let user: &[&str] = match (can(&[]), can(&["--map-root-user"])) {
        (true, _) => &[],
        (false, true) => &["--map-root-user"],
        (false, false) => {
            skipped(
                "ray",
                "no network namespace can be made here; run the test as root",
            );
            return false;
        }
    };
    let status = Command::new("unshare")
        .args(user)
        .args(namespaces)
        // A shell as the first process reaps orphans.
        .args(["/bin/sh", "-c", "\"$@\"; exit $?", "sh"])
        .arg(programs.join("python"))
        .args(["-c", BEGIN])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(INSIDE, "yes")
        .status()
        .unwrap();
    assert!(status.success(), "{test} has failed in its namespace");
    false
}

/// Polls until the condition holds.
pub fn wait_for(what: &str, mut so: impl FnMut() -> bool) {
    let began = SystemTime::now();
    while !so() {
        let waited = began.elapsed().unwrap_or_default();
        assert!(waited < PATIENCE, "waited in vain for {what}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

pub struct RayServer {
    folder: tempfile::TempDir,
    programs: PathBuf,
    token: Option<String>,
    machines: u16,
}

impl RayServer {
    /// Starts a head without GPUs. With a token, Ray rejects calls without it.
    pub fn start(token: Option<&str>) -> RayServer {
        let server = RayServer {
            folder: tempfile::Builder::new().prefix("ray").tempdir().unwrap(),
            programs: programs().unwrap(),
            token: token.map(str::to_owned),
            machines: 0,
        };
        let temporary = server.folder.path().join("t");
        server.ray(&[
            "--head",
            "--node-ip-address=127.0.0.1",
            "--port=6379",
            &format!("--dashboard-port={PORT}"),
            "--num-cpus=2",
            "--num-gpus=0",
            "--min-worker-port=20000",
            "--max-worker-port=20099",
            &format!("--temp-dir={}", temporary.display()),
        ]);
        server
    }

    /// Adds a machine with this address.
    pub fn add_machine(&mut self, gpus: u32, labels: &str) -> String {
        self.machines += 1;
        let number = self.machines;
        let address = format!("127.0.0.{}", number + 1);
        let first_port = 20_000 + number * 100;
        self.ray(&[
            "--address=127.0.0.1:6379",
            &format!("--node-ip-address={address}"),
            "--num-cpus=4",
            &format!("--num-gpus={gpus}"),
            &format!("--labels={labels}"),
            &format!("--min-worker-port={first_port}"),
            &format!("--max-worker-port={}", first_port + 99),
            &format!("--dashboard-agent-listen-port={}", 52_400 + number),
        ]);
        address
    }

    /// `ray start`, which ends once the processes run.
    fn ray(&self, arguments: &[&str]) {
        let output = Command::new(self.programs.join("ray"))
            .arg("start")
            .args(arguments)
            .args([
                "--disable-usage-stats",
                "--include-log-monitor=false",
                "--object-store-memory=80000000",
                "--log-style=record",
                "--log-color=false",
            ])
            .envs(self.environment())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    fn environment(&self) -> Vec<(&str, String)> {
        let mode = if self.token.is_some() {
            "token"
        } else {
            "disabled"
        };
        let mut variables = vec![
            ("RAY_USAGE_STATS_ENABLED", "0".to_owned()),
            ("RAY_AUTH_MODE", mode.to_owned()),
            ("HOME", self.path().display().to_string()),
            // Ray's own Python is not on the PATH of its jobs.
            ("PATH", "/usr/local/bin:/usr/bin:/bin".to_owned()),
            ("SECRET_OF_RAY", "secret-of-rays-environment".to_owned()),
        ];
        variables.extend(
            self.token
                .iter()
                .map(|token| ("RAY_AUTH_TOKEN", token.clone())),
        );
        variables
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{PORT}")
    }

    /// JSON from a path of the dashboard.
    pub fn get(&self, path: &str) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", PORT)).unwrap();
        let token = self.token.as_ref();
        let token = token.map(|token| format!("Authorization: Bearer {token}\r\n"));
        let head = format!(
            "GET {path} HTTP/1.0\r\nHost: ray\r\n{}\r\n",
            token.unwrap_or_default()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (_, body) = response.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap_or_else(|_| panic!("{response}"))
    }

    /// Jobs that Ray has not ended.
    pub fn live_jobs(&self) -> Vec<String> {
        let jobs = self.get("/api/jobs/");
        let jobs = jobs.as_array().unwrap().iter();
        let live = jobs.filter(|job| job["status"] == "RUNNING" || job["status"] == "PENDING");
        live.map(|job| job["submission_id"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// Kills the dashboard like a crash, and returns the command that starts it again.
    pub fn kill_dashboard(&self) -> Vec<String> {
        let (pid, words) = processes()
            .find(|(_, words)| {
                words
                    .iter()
                    .any(|word| word.ends_with("dashboard/dashboard.py"))
            })
            .expect("a dashboard");
        kill(pid);
        let ended = || TcpStream::connect(("127.0.0.1", PORT)).is_err();
        wait_for("the dashboard to be gone", ended);
        words
    }

    pub fn start_dashboard(&self, words: &[String]) {
        let child = Command::new(&words[0])
            .args(&words[1..])
            .envs(self.environment())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        // The process ends with the namespace.
        drop(child.unwrap());
        wait_for("the dashboard to answer", || {
            TcpStream::connect(("127.0.0.1", PORT)).is_ok()
        });
    }
}

/// Processes of this namespace, with their command lines.
pub fn processes() -> impl Iterator<Item = (u32, Vec<String>)> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        let words = line
            .split(|byte| *byte == 0)
            .filter(|word| !word.is_empty());
        let words = words.map(|word| String::from_utf8_lossy(word).into_owned());
        Some((pid, words.collect()))
    })
}

pub fn kill(pid: u32) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).unwrap());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
}
