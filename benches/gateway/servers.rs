//! The processes of the bench: the pool with its engine, and nginx in front of the same engine. Reads their processor time and
//! memory, and the machine's, from the system.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::time::ClockId;
use nix::unistd::Pid;

pub const MODEL: &str = "m";

pub fn wait_for(what: &str, mut so: impl FnMut() -> bool) {
    let began = SystemTime::now();
    while !so() {
        let waited = began.elapsed().unwrap_or_default();
        assert!(
            waited < Duration::from_secs(60),
            "waited in vain for {what}"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}

/// A server in a separate folder, which is removed when it ends.
pub struct Server {
    pub name: String,
    pub address: String,
    child: Child,
    _folder: tempfile::TempDir,
}

impl Server {
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The processes that a request passes through, including nginx's workers.
    pub fn pids(&self) -> Vec<u32> {
        let own = self.child.id();
        let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
        let is_nginx = self.name == "nginx";
        let children = children.ok().filter(|_| is_nginx).unwrap_or_default();
        let children = children
            .split_whitespace()
            .filter_map(|pid| pid.parse().ok());
        std::iter::once(own).chain(children).collect()
    }

    /// The processor time used so far.
    pub fn cpu(&self) -> Duration {
        self.pids().into_iter().map(cpu_of).sum()
    }

    pub fn resident_bytes(&self) -> u64 {
        self.memory_bytes("VmRSS:")
    }

    /// Anonymous memory, which excludes pages of files.
    pub fn anonymous_bytes(&self) -> u64 {
        self.memory_bytes("RssAnon:")
    }

    fn memory_bytes(&self, kind: &str) -> u64 {
        let pids = self.pids().into_iter();
        pids.map(|pid| memory_of(pid, kind)).sum()
    }

    /// Processes that no request passes through: the guardians of the pool's engines, including a spare.
    pub fn guardians(&self) -> Vec<u32> {
        if self.name == "nginx" {
            return Vec::new();
        }
        let threads = fs::read_dir(format!("/proc/{}/task", self.child.id()));
        let threads = threads.into_iter().flatten().flatten();
        // Each thread lists the processes that it started.
        let started =
            threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        let pids = started.flat_map(|text| {
            let pids = text.split_whitespace().filter_map(|pid| pid.parse().ok());
            pids.collect::<Vec<u32>>()
        });
        pids.collect()
    }
}

/// The engine behind a place.
#[derive(Clone)]
pub struct Engine {
    pub address: String,
    pub pid: u32,
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = self.child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        for _ in 0..300 {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// User and system time of all threads of a process, including threads that have ended.
pub fn cpu_of(pid: u32) -> Duration {
    let pid = Pid::from_raw(pid.cast_signed());
    let now = ClockId::pid_cpu_clock_id(pid).and_then(ClockId::now);
    now.map_or(Duration::ZERO, Duration::from)
}

/// The same for this process and for child processes that it has waited for.
pub fn own_cpu() -> Duration {
    let time = |time: TimeVal| {
        let seconds = Duration::from_secs(time.tv_sec().unsigned_abs());
        seconds + Duration::from_micros(time.tv_usec().unsigned_abs())
    };
    let of = |who: UsageWho| {
        getrusage(who).map(|usage| time(usage.user_time()) + time(usage.system_time()))
    };
    let all = [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN];
    all.into_iter().filter_map(|who| of(who).ok()).sum()
}

/// The time that all processors have worked, for any process: user, system, and interrupts, which belong to no process. Excludes
/// time taken by a hypervisor. `None` if the system does not report it.
pub fn machine_cpu() -> Option<Duration> {
    /// Indices into `user nice system idle iowait irq softirq steal`.
    const WORKED: [usize; 5] = [0, 1, 2, 5, 6];
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    let worked: u64 = WORKED.iter().filter_map(|nth| ticks.get(*nth)).sum();
    // A tick is 10 ms on all common Linux systems.
    (worked > 0).then(|| Duration::from_millis(worked * 10))
}

pub fn memory_of(pid: u32, kind: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(kind));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// A pool with one model whose engine is this program in place of vLLM, which makes plain requests eligible for plain forwarding.
/// Returns the engine too.
pub fn pool(name: &str, program: &Path) -> (Server, Engine) {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |file: &str| folder.path().join(file);
    let own = std::env::current_exe().expect("this program");
    fs::create_dir(at("models")).expect("a new folder");
    let model = format!(
        "engine_config:\n  model_id: {MODEL}\n  type: VLLMEngine\n  listen: port\n  hf_model_id: org/m\n  fetch: engine\n  program: {:?}\n  max_total_tokens: 4096\n  engine_kwargs: {{kv_cache_memory_bytes: 1073741824}}\ndeployment_config: {{max_ongoing_requests: 20000}}\npool_config: {{priority: 2, memory_gib: 1, stall_after: 1h, first_token_after: 1h}}\n",
        own.display().to_string()
    );
    fs::write(at("models/m.yaml"), model).expect("a new file");
    let config = format!(
        "server: {{listen: \"127.0.0.1:0\"}}\nstate: {{dir: {:?}}}\ncatalog: {{models_dir: {:?}}}\ninventory: {{provider: fixed, devices: [{{name: gpu0, memory: 16GiB}}]}}\nevening: {{cleanup: null, reopen: null}}\n",
        at("data"),
        at("models")
    );
    fs::write(at("config.yaml"), config).expect("a new file");
    let log = fs::File::create(at("log")).expect("a new file");
    let child = Command::new(program)
        .arg("--config")
        .arg(at("config.yaml"))
        .env("NO_COLOR", "1")
        .env("MODEL_POOL__POOL__ON_RESTART", "stop")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("the pool starts");
    let mut address = None;
    wait_for("the pool to serve", || {
        let said = fs::read_to_string(at("log")).unwrap_or_default();
        let line = said
            .split_once("serving http://")
            .map(|(_, rest)| rest.to_owned());
        address = line.and_then(|rest| Some(rest.split_once("/v1")?.0.to_owned()));
        address.is_some()
    });
    let mut engine = None;
    wait_for("the engine to be ready", || {
        engine = journal(&at("data/engines"));
        engine.is_some()
    });
    let server = Server {
        name: name.to_owned(),
        address: address.expect("just found"),
        child,
        _folder: folder,
    };
    (server, engine.expect("just found"))
}

/// The engine of a pool, once it is ready.
fn journal(folder: &Path) -> Option<Engine> {
    let entry = fs::read_dir(folder).ok()?.flatten().find(|entry| {
        entry
            .path()
            .extension()
            .is_some_and(|extension| extension == "json")
    })?;
    let text = fs::read_to_string(entry.path()).ok()?;
    let record: serde_json::Value = serde_json::from_str(&text).ok()?;
    record["ready_at_ms"].as_u64()?;
    let place = record["endpoint"].to_string();
    let port = place.split_once("127.0.0.1:")?.1;
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    Some(Engine {
        address: format!("127.0.0.1:{port}"),
        pid: u32::try_from(record["engine"]["pid"].as_u64()?).ok()?,
    })
}

/// nginx as a plain reverse proxy of the engine; `None` if nginx is not on the path.
pub fn nginx(engine: &str) -> Option<Server> {
    let found = Command::new("nginx")
        .arg("-v")
        .stderr(Stdio::null())
        .status();
    if !found.is_ok_and(|status| status.success()) {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let address = format!("127.0.0.1:{}", free_port());
    let here = folder.path().display();
    let user = if rustix::process::geteuid().is_root() {
        "user root;"
    } else {
        ""
    };
    let config = format!(
        "daemon off; {user} pid {here}/pid; error_log {here}/errors crit; worker_processes auto; worker_rlimit_nofile {};
events {{ worker_connections 65536; }}
http {{
  access_log off; client_body_temp_path {here}/body; proxy_temp_path {here}/proxy;
  fastcgi_temp_path {here}/f; uwsgi_temp_path {here}/u; scgi_temp_path {here}/s;
  keepalive_requests 1000000000;
  upstream engine {{ server {engine}; keepalive 512; keepalive_requests 1000000000; }}
  server {{
    listen {address} backlog=4096;
    location / {{
      proxy_pass http://engine; proxy_http_version 1.1; proxy_set_header Connection \"\";
      proxy_buffering off; proxy_read_timeout 1h;
    }}
  }}
}}
",
        files_limit()
    );
    fs::write(folder.path().join("nginx.conf"), config).expect("a new file");
    let child = Command::new("nginx")
        .args(["-e", "stderr", "-p"])
        .arg(folder.path())
        .args(["-c", "nginx.conf"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("nginx starts");
    wait_for("nginx to listen", || TcpStream::connect(&address).is_ok());
    Some(Server {
        name: "nginx".to_owned(),
        address,
        child,
        _folder: folder,
    })
}

/// Raises this process's limit of open files as far as allowed. Child processes inherit it.
pub fn files_limit() -> u64 {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 1024;
    };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    }
}
