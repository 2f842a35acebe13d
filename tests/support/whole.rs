//! Starts the real binary in a separate folder and speaks HTTP to it over plain sockets. Uses none of the program's
//! crates. Each test and benchmark uses a part of it.
//! One file because it is one handle on one process, with the calls that tests make of it.
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::described;
pub use crate::streamed::{Stream, split};

const PATIENCE: Duration = Duration::from_secs(30);
/// How long a client reads on without a byte. Longer than a node is frozen in a test, so that the client is not what gives up.
const ANSWER_PATIENCE: Duration = Duration::from_secs(90);
const ONE_DEVICE: &str = "inventory: {provider: fixed, devices: [{name: gpu0, memory: 16GiB}]}\n";

/// Polls until the condition holds; a test never sleeps for a guessed time.
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
    /// Further variables of its environment, also after a restart.
    env: Vec<(String, String)>,
}

impl Pool {
    /// The three models of the repository on a host with 64 MiB.
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

    /// The same, where engines wait for another controller, for at most this time.
    pub fn that_adopts(files: &[(String, String)], config: &str, within: &str) -> Pool {
        Pool::that_adopts_on_devices(files, &format!("{ONE_DEVICE}{config}"), within)
    }

    /// The same on the devices in the configuration.
    pub fn that_adopts_on_devices(files: &[(String, String)], config: &str, within: &str) -> Pool {
        let env = [("ON_RESTART", "adopt"), ("ADOPT_WITHIN", within)];
        let env = env.map(|(key, value)| (format!("MODEL_POOL__POOL__{key}"), value.to_owned()));
        Pool::from_files(files, config, env.to_vec())
    }

    /// The same on the devices in the configuration.
    pub fn with_devices(files: &[(String, String)], config: &str) -> Pool {
        Pool::from_files(files, config, Vec::new())
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

    /// The same as [`Pool::with_models`], with its state on this disk.
    pub fn on_disk(files: &[(String, String)], config: &str, disk: &Path) -> Pool {
        let folder = folder_with(files);
        std::os::unix::fs::symlink(disk, folder.path().join("data")).unwrap();
        Pool::with_catalogue(folder, &format!("{ONE_DEVICE}{config}"), Vec::new())
    }

    /// The same as [`Pool::with_models`], with these variables in its environment.
    pub fn with_env(files: &[(String, String)], config: &str, env: &[(&str, &str)]) -> Pool {
        let env = env
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Pool::from_files(files, &format!("{ONE_DEVICE}{config}"), env.collect())
    }

    /// Models from these files on the GPUs of NVML, with this library.
    pub fn on_gpus(files: &[(String, String)], library: &Path, config: &str) -> Pool {
        Pool::on_gpus_with_env(files, library, config, &[])
    }

    /// The same, with these variables in its environment.
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

    /// A start that should fail: exit status and output.
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

    /// Reads the address from the log; the system chose the port.
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
        // With TLS the tests make their own connections; it listens before it logs that.
        if self.log().contains("serving https") {
            return;
        }
        let base = (self.env.iter()).find(|it| it.0 == "MODEL_POOL__SERVER__BASE_PATH");
        let ready = format!("{}/ready", base.map_or("/llm", |it| &it.1));
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

    /// Another process takes over from this one; returns when it serves, with the old one.
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

    /// From the next start on.
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
        let records = self.journal().into_iter();
        let pid = |record: Value| record["engine"]["pid"].as_u64();
        records
            .filter_map(pid)
            .filter_map(|pid| u32::try_from(pid).ok())
            .collect()
    }

    /// The service's journal of its engines.
    pub fn journal(&self) -> Vec<Value> {
        let Ok(entries) = fs::read_dir(self.data().join("engines")) else {
            return Vec::new();
        };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| {
            path.extension()
                .is_some_and(|extension| extension == "json")
        });
        paths.sort();
        let text = |path: &PathBuf| fs::read_to_string(path).ok();
        let records = paths.iter().filter_map(text);
        records
            .filter_map(|text| serde_json::from_str(&text).ok())
            .collect()
    }

    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// The folder of the model files.
    pub fn models(&self) -> PathBuf {
        self.folder.path().join("models")
    }

    pub fn post(&self, path: &str, body: &str) -> (u16, String) {
        let (status, body, _) = self.request("POST", path, body, None);
        (status, body)
    }

    /// Status, body and head (lower case) of one answer on a separate connection.
    pub fn request(
        &self,
        method: &str,
        path: &str,
        body: &str,
        key: Option<&str>,
    ) -> (u16, String, String) {
        let mut socket = self.send(method, path, body, key);
        let mut answer = Vec::new();
        // A refused large body may reset the connection after the answer was sent.
        let _ = socket.read_to_end(&mut answer);
        self.described(method, path, body, split(&answer))
    }

    /// Status and answer of a call in JSON; null: without a body. An answer that is no JSON is its text.
    pub fn call(&self, key: Option<&str>, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let body = match body {
            Value::Null => String::new(),
            body => body.to_string(),
        };
        let (status, text, _) = self.request(method, path, &body, key);
        let answer = serde_json::from_str(&text);
        (status, answer.unwrap_or(Value::String(text)))
    }

    /// The same by an administrator.
    pub fn admin(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.call(Some(&self.admin_key()), method, path, body)
    }

    /// The same as `request` without a key, and without a look at the OpenAPI document.
    pub fn request_unchecked(&self, method: &str, path: &str, body: &str) -> (u16, String, String) {
        let (mut answer, mut socket) = (Vec::new(), self.send(method, path, body, None));
        let _ = socket.read_to_end(&mut answer);
        split(&answer)
    }

    /// An exchange that the OpenAPI document describes.
    fn described(
        &self,
        method: &str,
        path: &str,
        body: &str,
        answer: (u16, String, String),
    ) -> (u16, String, String) {
        if method == "POST" {
            described::check(self, path, body, (answer.0, &answer.1, &answer.2));
        }
        answer
    }

    /// The same with these additional header lines.
    pub fn request_with(
        &self,
        method: &str,
        path: &str,
        body: &str,
        lines: &[(&str, &str)],
    ) -> (u16, String, String) {
        let (mut answer, mut socket) = (Vec::new(), self.send_with(method, path, body, lines));
        let _ = socket.read_to_end(&mut answer);
        self.described(method, path, body, split(&answer))
    }

    /// The same for a POST whose body is not JSON.
    pub fn request_as(&self, kind: &str, path: &str, body: &str) -> (u16, String, String) {
        let mut answer = Vec::new();
        let mut socket = self.send_as(kind, "POST", path, body, &[]);
        let _ = socket.read_to_end(&mut answer);
        split(&answer)
    }

    fn send(&self, method: &str, path: &str, body: &str, key: Option<&str>) -> TcpStream {
        let bearer = key.map(|key| format!("Bearer {key}"));
        let line = bearer.as_deref().map(|it| ("Authorization", it));
        self.send_with(method, path, body, line.as_slice())
    }

    fn send_with(&self, method: &str, path: &str, body: &str, lines: &[(&str, &str)]) -> TcpStream {
        self.send_as("application/json", method, path, body, lines)
    }

    fn send_as(
        &self,
        kind: &str,
        method: &str,
        path: &str,
        body: &str,
        lines: &[(&str, &str)],
    ) -> TcpStream {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        socket.set_read_timeout(Some(ANSWER_PATIENCE)).unwrap();
        let line = |(name, value): &(&str, &str)| format!("{name}: {value}\r\n");
        let key: String = lines.iter().map(line).collect();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{key}Connection: close\r\n\r\n",
            self.address,
            body.len()
        );
        socket.write_all(head.as_bytes()).unwrap();
        let _ = socket.write_all(body.as_bytes());
        socket
    }

    /// A request whose answer is read while the test goes on. Dropping it disconnects the client.
    pub fn stream(&self, path: &str, body: &str) -> Stream {
        self.stream_with(path, body, &[])
    }

    pub fn stream_with(&self, path: &str, body: &str, lines: &[(&str, &str)]) -> Stream {
        let socket = self.send_with("POST", path, body, lines);
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (into, mut from) = (Arc::clone(&bytes), socket.try_clone().unwrap());
        let reader = thread::spawn(move || {
            let mut chunk = [0; 4096];
            loop {
                match from.read(&mut chunk) {
                    Ok(0) => break,
                    Ok(count) => into.lock().unwrap().extend_from_slice(&chunk[..count]),
                    // With a timeout set, a read ends like this when the process was stopped and continued.
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        eprintln!("the stream broke off: {error}");
                        break;
                    }
                }
            }
        });
        Stream {
            socket,
            bytes,
            reader: Some(reader),
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Engines that wait for another service can end.
        for record in self.journal() {
            let guardian = record["guardian"]["pid"].to_string();
            for signal in ["-TERM", "-CONT"] {
                let _ = Command::new("kill").args([signal, &guardian]).status();
            }
        }
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
        // A test that is over leaves no engine behind, even if it failed.
        .env("MODEL_POOL__POOL__ON_RESTART", "stop")
        .envs(env.iter().cloned())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}
