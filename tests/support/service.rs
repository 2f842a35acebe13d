//! Starts the real binary in a separate folder, restarts and stops it. Independent of the program's crates. Each test and benchmark
//! uses a part of it.

mod calls;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, SystemTime};

use serde_json::Value;

pub use crate::streamed_response::{Stream, split};

const PATIENCE: Duration = Duration::from_secs(30);
const ONE_DEVICE: &str = "inventory: {provider: fixed, devices: [{name: gpu0, memory: 16GiB}]}\n";

/// Polls until the condition holds; tests never sleep for a guessed time.
pub fn wait_for(what: &str, mut so: impl FnMut() -> bool) {
    let began = SystemTime::now();
    while !so() {
        assert!(
            began.elapsed().unwrap_or_default() < PATIENCE,
            "waited in vain for {what}"
        );
        thread::park_timeout(Duration::from_millis(10));
    }
}

pub struct Pool {
    folder: tempfile::TempDir,
    child: Child,
    address: String,
    /// Additional environment variables, kept over restarts.
    env: Vec<(String, String)>,
}

impl Pool {
    /// The repository's three models on a host with 64 MiB.
    pub fn demo() -> Pool {
        Pool::demo_with("evening: {cleanup: null, reopen: null}\n")
    }

    pub fn demo_with(config: &str) -> Pool {
        Pool::start(config, "catalog: {models_dir: config/models}\n")
    }

    /// Models from these files, on one device of 16 GiB.
    pub fn with_models(files: &[(String, String)], config: &str) -> Pool {
        Pool::with_devices(files, &format!("{ONE_DEVICE}{config}"))
    }

    /// As `with_models`; engines wait for the next controller, for at most this time.
    pub fn that_adopts(files: &[(String, String)], config: &str, within: &str) -> Pool {
        Pool::that_adopts_on_devices(files, &format!("{ONE_DEVICE}{config}"), within)
    }

    /// As `that_adopts`, on the devices in the configuration.
    pub fn that_adopts_on_devices(files: &[(String, String)], config: &str, within: &str) -> Pool {
        let env = [("ON_RESTART", "adopt"), ("ADOPT_WITHIN", within)];
        let env = env.map(|(key, value)| (format!("MODEL_POOL__POOL__{key}"), value.to_owned()));
        Pool::from_files(files, config, env.to_vec())
    }

    /// As `with_models`, on the devices in the configuration.
    pub fn with_devices(files: &[(String, String)], config: &str) -> Pool {
        Pool::from_files(files, config, Vec::new())
    }

    /// As `with_devices`, with these environment variables.
    pub fn with_devices_and_env(
        files: &[(String, String)],
        config: &str,
        env: Vec<(String, String)>,
    ) -> Pool {
        Pool::from_files(files, config, env)
    }

    fn from_files(files: &[(String, String)], config: &str, env: Vec<(String, String)>) -> Pool {
        Pool::with_catalogue(folder_with(files), config, env)
    }

    fn with_catalogue(folder: tempfile::TempDir, config: &str, env: Vec<(String, String)>) -> Pool {
        let more = format!(
            "catalog: {{models_dir: {:?}}}\nevening: {{cleanup: null, reopen: null}}\n",
            folder.path().join("models")
        );
        Pool::in_folder(folder, &format!("{config}{more}"), env)
    }

    /// As [`Pool::with_models`], with its state on this disk.
    pub fn on_disk(files: &[(String, String)], config: &str, disk: &Path) -> Pool {
        let folder = folder_with(files);
        std::os::unix::fs::symlink(disk, folder.path().join("data")).unwrap();
        Pool::with_catalogue(folder, &format!("{ONE_DEVICE}{config}"), Vec::new())
    }

    /// As [`Pool::with_models`], with these environment variables.
    pub fn with_env(files: &[(String, String)], config: &str, env: &[(&str, &str)]) -> Pool {
        let env = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Pool::from_files(files, &format!("{ONE_DEVICE}{config}"), env.collect())
    }

    /// Models from these files on NVML GPUs, with this library.
    pub fn on_gpus(files: &[(String, String)], library: &Path, config: &str) -> Pool {
        Pool::on_gpus_with_env(files, library, config, &[])
    }

    /// As `on_gpus`, with these environment variables.
    pub fn on_gpus_with_env(
        files: &[(String, String)],
        library: &Path,
        config: &str,
        env: &[(&str, &str)],
    ) -> Pool {
        let folder = folder_with(files);
        let more = format!(
            "catalog: {{models_dir: {:?}}}\ninventory: {{provider: nvml}}\nevening: {{cleanup: null, reopen: null}}\n",
            folder.path().join("models")
        );
        let library = library.display().to_string();
        let own = [("MODEL_POOL_NVML_LIBRARY", library.as_str())];
        let all = own.iter().chain(env);
        let env = all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let env: Vec<(String, String)> = env.collect();
        Pool::in_folder(folder, &format!("{config}{more}"), env)
    }

    fn start(config: &str, more: &str) -> Pool {
        let folder = tempfile::tempdir().unwrap();
        Pool::in_folder(folder, &format!("{config}{more}"), Vec::new())
    }

    fn in_folder(folder: tempfile::TempDir, config: &str, env: Vec<(String, String)>) -> Pool {
        let text = format!(
            "server: {{listen: \"127.0.0.1:0\", keep_alive_comment: 200ms}}\nstate: {{dir: {:?}}}\n{config}",
            folder.path().join("data")
        );
        fs::write(folder.path().join("config.yaml"), text).unwrap();
        let child = spawn(folder.path(), &env);
        let mut pool = Pool {
            folder,
            child,
            address: String::new(),
            env,
        };
        pool.find();
        pool
    }

    /// A start that must fail; returns exit status and output.
    pub fn refused(config: &str) -> (Option<i32>, String) {
        let folder = tempfile::tempdir().unwrap();
        let own = if config.contains("state:") {
            String::new()
        } else {
            format!("state: {{dir: {:?}}}\n", folder.path().join("data"))
        };
        fs::write(folder.path().join("config.yaml"), format!("{config}{own}")).unwrap();
        let mut child = spawn(folder.path(), &[]);
        let mut status = None;
        wait_for("the start to be refused", || {
            status = child.try_wait().unwrap();
            status.is_some()
        });
        let log = fs::read_to_string(folder.path().join("log")).unwrap();
        (status.and_then(|status| status.code()), log)
    }

    /// Reads the address from the log, because the system chooses the port.
    fn find(&mut self) {
        let mut address = None;
        wait_for("the service to listen", || {
            let log = self.log();
            let line = log
                .lines()
                .rev()
                .find_map(|line| line.split_once("serving http"));
            address = line
                .and_then(|(_, rest)| rest.split_once("://")?.1.split_once("/v1"))
                .map(|(address, _)| address.to_owned());
            address.is_some()
        });
        self.address = address.expect("just found");
        // With TLS, tests make their own connections; the service listens before it logs this line.
        if self.log().contains("serving https") {
            return;
        }
        let base = (self.env.iter()).find(|(name, _)| name == "MODEL_POOL__SERVER__BASE_PATH");
        let ready = format!("{}/ready", base.map_or("/llm", |(_, value)| value));
        wait_for("the service to be ready", || {
            self.request("GET", &ready, "", None).0 == 200
        });
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Waits until the log contains this text: a line about an engine may follow the response to its request.
    pub fn wait_for_log(&self, text: &str) {
        wait_for(&format!("the log to say {text:?}"), || {
            self.log().contains(text)
        });
    }

    /// Engine output passes through other processes and may arrive after their responses.
    pub fn wait_for_engine_log(&self, model: &str, texts: &[&str]) {
        let path = format!("/llm/admin/logs?model={model}&tail=500");
        for text in texts {
            wait_for(&format!("{text:?} in the log of {model}"), || {
                let (_, log, _) = self.request("GET", &path, "", Some(&self.admin_key()));
                log.contains(text)
            });
        }
    }

    pub fn admin_key(&self) -> String {
        fs::read_to_string(self.folder.path().join("data/admin.key"))
            .unwrap()
            .trim()
            .to_owned()
    }

    pub fn kill_and_restart(&mut self) {
        self.kill();
        self.restart();
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn restart(&mut self) {
        fs::remove_file(self.folder.path().join("log")).unwrap();
        self.child = spawn(self.folder.path(), &self.env);
        self.find();
    }

    /// Another process takes over from this one. Returns the old process once the new one serves.
    pub fn take_over(&mut self) -> Child {
        fs::remove_file(self.folder.path().join("log")).unwrap();
        let new = spawn_with(self.folder.path(), &self.env, &["serve", "--takeover"]);
        let old = std::mem::replace(&mut self.child, new);
        let address = self.address.clone();
        self.find();
        assert_eq!(self.address, address, "the same socket");
        old
    }

    /// Removes the variables that a service manager sets.
    pub fn forget_env(&mut self) {
        let is_ours = |(name, _): &(String, String)| name.starts_with("MODEL_POOL");
        self.env.retain(is_ours);
    }

    pub fn take_over_from_nobody(&mut self) {
        fs::remove_file(self.folder.path().join("log")).unwrap();
        self.child = spawn_with(self.folder.path(), &self.env, &["serve", "--takeover"]);
        self.find();
    }

    /// Takes effect at the next start.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.env.push((name.to_owned(), value.to_owned()));
    }

    pub fn terminate(&self) {
        let status = Command::new("kill")
            .args(["-TERM", &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(status.success());
    }

    pub fn wait(&mut self, within: Duration) -> bool {
        let began = SystemTime::now();
        while began.elapsed().unwrap_or_default() < within {
            if self.child.try_wait().unwrap().is_some() {
                return true;
            }
            thread::park_timeout(Duration::from_millis(10));
        }
        false
    }

    /// The engines' processes, from the service's journal.
    pub fn engine_pids(&self) -> Vec<u32> {
        engine_pids_in(&self.data())
    }

    /// The service's journal of its engines.
    pub fn journal(&self) -> Vec<Value> {
        journal_in(&self.data())
    }

    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The folder of the model files.
    pub fn models(&self) -> PathBuf {
        self.folder.path().join("models")
    }
}

/// The journal of engines in the data folder of a service or a node.
pub fn journal_in(data: &Path) -> Vec<Value> {
    let entries = fs::read_dir(data.join("engines")).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    });
    paths.sort();
    let texts = paths
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok());
    texts
        .filter_map(|text| serde_json::from_str(&text).ok())
        .collect()
}

/// The engines' processes, from the journal in a data folder.
pub fn engine_pids_in(data: &Path) -> Vec<u32> {
    let pid = |record: &Value| u32::try_from(record["engine"]["pid"].as_u64()?).ok();
    journal_in(data).iter().filter_map(pid).collect()
}

/// Ends engines that wait for another controller, from the journal in a data folder.
pub fn end_engines_in(data: &Path) {
    for record in journal_in(data) {
        let guardian = record["guardian"]["pid"].to_string();
        for signal in ["-TERM", "-CONT"] {
            let _ = Command::new("kill").args([signal, &guardian]).status();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        end_engines_in(&self.folder.path().join("data"));
        if thread::panicking() {
            eprintln!("--- the service's log ---\n{}", self.log());
        }
    }
}

fn folder_with(files: &[(String, String)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("models")).unwrap();
    for (name, text) in files {
        fs::write(folder.path().join("models").join(name), text).unwrap();
    }
    folder
}

fn spawn(folder: &Path, env: &[(String, String)]) -> Child {
    spawn_with(folder, env, &[])
}

fn spawn_with(folder: &Path, env: &[(String, String)], words: &[&str]) -> Child {
    let log = fs::File::create(folder.join("log")).unwrap();
    Command::new(crate::program())
        .current_dir(crate::root())
        .args(words)
        .args(["--config".as_ref(), folder.join("config.yaml").as_os_str()])
        .env("NO_COLOR", "1")
        // A finished test leaves no engine behind, even if it failed.
        .env("MODEL_POOL__POOL__ON_RESTART", "stop")
        .envs(env.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}
