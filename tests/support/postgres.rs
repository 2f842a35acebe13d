//! A private PostgreSQL server, if its programs are installed: in a temporary folder, on a Unix socket, under an unprivileged
//! account. Tests of one process share a server, and each creates its own database.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::external_programs::{is_for_later, skipped};
use crate::service::wait_for;

/// Password of the only user, part of every URL here.
pub const PASSWORD: &str = "hunter2-of-the-database";
const USER: &str = "pool";

/// A running server. It stops when the last reference is dropped.
pub struct Server {
    folder: tempfile::TempDir,
    programs: PathBuf,
    /// The server's account; `None` for the current one.
    account: Option<(u32, u32)>,
    running: Mutex<Option<Child>>,
}

/// The server of this process, while tests use it.
static SHARED: Mutex<Weak<Server>> = Mutex::new(Weak::new());
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// The server shared by the tests of this process, or `None` (with a message) if PostgreSQL is not installed.
pub fn shared() -> Option<Arc<Server>> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.upgrade() {
        return Some(server);
    }
    let server = Arc::new(Server::start()?);
    *shared = Arc::downgrade(&server);
    Some(server)
}

/// The folder with `initdb` and `postgres` of the newest version.
fn programs() -> Option<PathBuf> {
    if is_for_later() {
        return None;
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let versions = versions.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    let mut found: Vec<PathBuf> = versions.collect();
    found.sort();
    let path = std::env::var_os("PATH").unwrap_or_default();
    found.extend(std::env::split_paths(&path));
    let has = |folder: &&PathBuf, name: &str| folder.join(name).is_file();
    found
        .iter()
        .rev()
        .find(|folder| has(folder, "initdb") && has(folder, "postgres") && has(folder, "psql"))
        .cloned()
}

/// PostgreSQL refuses to run as root, so this returns the account of its package or the unprivileged fallback account.
fn account() -> Option<(u32, u32)> {
    let own = fs::metadata("/proc/self").map(|process| process.uid());
    if own.ok() != Some(0) {
        return None;
    }
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of = |name: &str| {
        let line = passwd
            .lines()
            .find(|line| line.starts_with(&format!("{name}:")))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    of("postgres")
        .or_else(|| of("nobody"))
        .or(Some((65534, 65534)))
}

impl Server {
    /// A separate server, for tests that stop it.
    pub fn start() -> Option<Server> {
        let Some(programs) = programs() else {
            skipped(
                "postgres",
                "PostgreSQL is not installed; run `.ci/postgres` and then `cargo test --test outside postgres::`",
            );
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let account = account();
        let password = folder.path().join("password");
        fs::write(&password, PASSWORD).unwrap();
        if let Some((user, group)) = account {
            for path in [folder.path(), &password] {
                chown(path, Some(user), Some(group)).unwrap();
            }
        }
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
        let server = Server {
            folder,
            programs,
            account,
            running: Mutex::new(None),
        };
        let made = server
            .command("initdb")
            .args(["--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"])
            .args(["--auth=scram-sha-256", "--username", USER])
            .arg(format!("--pwfile={}", password.display()))
            .arg("--pgdata")
            .arg(server.data())
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
        server.run();
        Some(server)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        if let Some((user, group)) = self.account {
            command.uid(user).gid(group);
        }
        command
    }

    fn running(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the server unless it runs, and returns once it accepts connections.
    pub fn run(&self) {
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"))
            .unwrap();
        let child = self
            .command("postgres")
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(self.folder.path())
            .args(["-c", "listen_addresses=", "-c", "max_connections=200"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        *self.running() = Some(child);
        wait_for("PostgreSQL to answer", || {
            self.ask("postgres", "SELECT 1") == Ok("1".to_owned())
        });
    }

    fn signal(&self, signal: Signal) {
        let running = self.running();
        let pid = running.as_ref().expect("it runs").id();
        kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
    }

    /// Stops the server like a crash: connections break, and unsynced data is lost.
    pub fn crash(&self) {
        self.signal(Signal::SIGQUIT);
        let child = self.running().take();
        child.expect("it runs").wait().unwrap();
    }

    /// Stops the server, which ends all sessions and writes everything, and starts it again.
    pub fn restart(&self) {
        self.signal(Signal::SIGINT);
        let child = self.running().take();
        child.expect("it runs").wait().unwrap();
        self.run();
    }

    /// Stops all its processes: connections stay open without responses.
    pub fn freeze(&self) {
        self.signal_all(Signal::SIGSTOP);
    }

    pub fn thaw(&self) {
        self.signal_all(Signal::SIGCONT);
    }

    fn signal_all(&self, signal: Signal) {
        let own = self.running().as_ref().expect("it runs").id();
        let mut all = vec![own];
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let status = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let after_name = status.rsplit(')').next().unwrap_or_default();
            let parent = after_name.split_whitespace().nth(1);
            if parent == Some(&own.to_string()) {
                all.extend(entry.file_name().to_string_lossy().parse::<u32>());
            }
        }
        for pid in all {
            let _ = kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal);
        }
    }

    /// Creates a database and returns its URL with the password.
    pub fn database(&self) -> String {
        let nth = DATABASES.fetch_add(1, Ordering::Relaxed);
        let name = format!("pool_{}_{nth}", std::process::id());
        self.ask(
            "postgres",
            &format!("CREATE DATABASE {name} TEMPLATE template0"),
        )
        .unwrap();
        self.url(&name)
    }

    pub fn url(&self, database: &str) -> String {
        let socket = self.folder.path().display().to_string().replace('/', "%2F");
        format!("postgres://{USER}:{PASSWORD}@{socket}/{database}")
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The output of `psql` for a statement.
    pub fn ask(&self, database: &str, sql: &str) -> Result<String, String> {
        let output = Command::new(self.programs.join("psql"))
            .env("PGPASSWORD", PASSWORD)
            .env("PGCONNECT_TIMEOUT", "10")
            .args([
                "--no-psqlrc",
                "--tuples-only",
                "--no-align",
                "--username",
                USER,
            ])
            .arg("--host")
            .arg(self.folder.path())
            .args(["--dbname", database, "--command", sql])
            .output()
            .unwrap();
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.running().take() {
            let pid = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
            let _ = kill(pid, Signal::SIGCONT);
            let _ = kill(pid, Signal::SIGQUIT);
            let _ = child.wait();
        }
    }
}

/// The database name in a URL of [`Server::database`].
pub fn name_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or_default()
}
