//! Shared code of the tests with a real vLLM: its environment, its models' files, a pool, and access to its metrics and processes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::external_programs::skipped;
use support::service::Pool;

/// Importing its many files is slow on a busy machine.
const LOAD_WITHIN: Duration = Duration::from_secs(15 * 60);
/// Time limit for operations after the load.
pub const WITHIN: Duration = Duration::from_secs(120);
pub const CHAT: &str = "/v1/chat/completions";

/// One vLLM at a time: several would compete for processors and memory.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The environment with vLLM, if it is installed.
pub fn environment() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/vllm");
    // This file is installed last.
    let there = folder.join("version").is_file().then_some(folder);
    if there.is_none() {
        skipped(
            "vllm",
            "vLLM is missing. Install it with `.ci/vllm`, and run `cargo test --test outside vllm::`",
        );
    }
    there
}

/// A demo model with heads of 32 numbers, the minimum that vLLM supports on the CPU.
pub fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("demo/models/tiny-guide")
}

pub fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("the model").flatten() {
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

/// Builds a model file for the real vLLM.
pub struct RealModel<'a> {
    pub environment: &'a Path,
    pub name: &'a str,
    pub folder: &'a Path,
    /// Instead of the environment's `bin/vllm`.
    pub program: Option<PathBuf>,
    pub memory_gib: f64,
    pub context: u32,
    /// Additional keys of `engine_config`, of its `engine_kwargs` and of `pool_config`.
    pub engine: &'a str,
    pub kwargs: &'a str,
    pub pool: &'a str,
    /// Additional keys of the document.
    pub more: &'a str,
}

impl<'a> RealModel<'a> {
    pub fn new(environment: &'a Path, name: &'a str, folder: &'a Path) -> RealModel<'a> {
        RealModel {
            environment,
            name,
            folder,
            program: None,
            memory_gib: 4.0,
            context: 512,
            engine: "",
            kwargs: "",
            pool: "",
            more: "",
        }
    }

    /// The file's name and text.
    pub fn file(&self) -> (String, String) {
        let program = self.program.clone();
        let program = program.unwrap_or_else(|| self.environment.join("bin/vllm"));
        let text = format!(
            "engine_config:\n  model_id: {name}\n  type: VLLMEngine\n  model_path: {folder:?}\n  program: {program:?}\n  max_total_tokens: {context}\n  {engine}\n  engine_kwargs: {{dtype: float32, enforce_eager: true, {kwargs}}}\n  env: {{OMP_NUM_THREADS: \"1\", PYTHONDONTWRITEBYTECODE: \"\"}}\ndeployment_config: {{max_ongoing_requests: 4}}\npool_config: {{memory_gib: {memory}, load_deadline: 15m, {pool}}}\n{more}",
            name = self.name,
            folder = self.folder.display().to_string(),
            program = program.display().to_string(),
            context = self.context,
            engine = self.engine,
            kwargs = self.kwargs,
            memory = self.memory_gib,
            pool = self.pool,
            more = self.more,
        );
        (format!("{}.yaml", self.name), text)
    }
}

/// The demo model on the embedded engine.
pub fn embedded(name: &str, folder: &Path, context: u32, pool: &str) -> (String, String) {
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CandleEngine\n  model_path: {:?}\n  max_total_tokens: {context}\npool_config: {{{pool}}}\n",
        folder.display().to_string()
    );
    (format!("{name}.yaml"), text)
}

/// A pool with 5 GiB of host memory, whose engines wait for another controller. The time limit of a first token is long: vLLM
/// compiles some functions on first use, such as the one for probabilities.
pub fn pool(files: &[(String, String)]) -> Pool {
    pool_with(files, PATIENT, "")
}

/// A pool that detects a silent engine soon.
pub fn watchful_pool(files: &[(String, String)]) -> Pool {
    pool_with(files, "stall_after: 10s, first_token_after: 20s", "")
}

/// A pool with long time limits whose clients need a key.
pub fn pool_with_keys(files: &[(String, String)]) -> Pool {
    pool_with(files, PATIENT, "auth: {inference: key}\n")
}

const PATIENT: &str = "stall_after: 2m, first_token_after: 10m";

fn pool_with(files: &[(String, String)], of_pool: &str, more: &str) -> Pool {
    let config = format!(
        "inventory: {{provider: host, host_memory: 5GiB, headroom: 0%}}\npool: {{queue_timeout: 20m, idle_probe: off, {of_pool}}}\n{more}"
    );
    Pool::that_adopts_on_devices(files, &config, "2m")
}

/// As `wait_for`, for conditions that take longer than the program's own work.
pub fn wait_long(what: &str, within: Duration, mut so: impl FnMut() -> bool) {
    let began = SystemTime::now();
    while !so() {
        assert!(
            began.elapsed().unwrap_or_default() < within,
            "waited in vain for {what}"
        );
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

pub fn admin(pool: &Pool, method: &str, path: &str, body: &Value) -> Value {
    let (status, response) = pool.admin(method, path, body);
    assert!(status < 300, "{method} {path}: {status} {response}");
    response
}

pub fn shown(pool: &Pool, model: &str) -> Value {
    let path = format!("/llm/admin/models?model={model}");
    let response = admin(pool, "GET", &path, &Value::Null);
    let one = response["models"].get(0);
    one.cloned().unwrap_or(response)
}

pub fn state(pool: &Pool, model: &str) -> String {
    let shown = shown(pool, model);
    shown["state"].as_str().unwrap_or_default().to_owned()
}

/// Orders a load without waiting for it.
pub fn order_load(pool: &Pool, model: &str) {
    let order = json!({"model": model, "wait": false});
    admin(pool, "POST", "/llm/admin/load", &order);
}

/// Loads the model, and returns the load time.
pub fn load(pool: &Pool, model: &str) -> Duration {
    let began = SystemTime::now();
    order_load(pool, model);
    wait_long("the load", LOAD_WITHIN, || {
        let shown = shown(pool, model);
        let state = shown["state"].as_str().unwrap_or_default();
        let has_failed = ["cooling", "quarantined", "broken"].contains(&state);
        assert!(!has_failed, "{shown}\n{}", pool.log());
        state == "ready"
    });
    began.elapsed().unwrap_or_default()
}

/// Loads a model that must fail, and returns the reason.
pub fn failed_load(pool: &Pool, model: &str) -> String {
    order_load(pool, model);
    let mut reason = String::new();
    wait_long("the load to fail", LOAD_WITHIN, || {
        let shown = shown(pool, model);
        assert_ne!(shown["state"], "ready", "{model} should not be ready");
        let last = shown["last_failure"].as_str().unwrap_or_default();
        reason = last.to_owned();
        !reason.is_empty()
    });
    // Prevents another attempt during the next case. The model may have no replica any more.
    let unload = json!({"model": model}).to_string();
    let key = pool.admin_key();
    let (status, text, _) = pool.request("POST", "/llm/admin/unload", &unload, Some(&key));
    assert!(status == 200 || status == 409, "{status} {text}");
    reason
}

/// Status and JSON of a request.
pub fn ask(pool: &Pool, path: &str, body: &Value) -> Value {
    let (status, text) = pool.post(path, &body.to_string());
    assert_eq!(status, 200, "{path} {body}: {text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A chat of four tokens.
pub fn short(model: &str) -> Value {
    json!({"model": model, "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]})
}

/// A chat of several hundred tokens.
pub fn long(model: &str, stream: bool) -> String {
    json!({
        "model": model, "stream": stream, "max_tokens": 480, "ignore_eos": true, "temperature": 0,
        "messages": [{"role": "user", "content": "Go on"}],
    })
    .to_string()
}

/// The HTTP server process of the only vLLM engine.
pub fn server(pool: &Pool) -> u32 {
    let is_vllm = |pid: &u32| arguments(*pid).iter().any(|word| word.contains("bin/vllm"));
    let found = pool.engine_pids().into_iter().find(is_vllm);
    found.expect("an engine of vLLM")
}

pub fn arguments(pid: u32) -> Vec<String> {
    let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&words);
    words.split('\0').map(str::to_owned).collect()
}

/// The argument after a flag.
pub fn argument(pid: u32, flag: &str) -> Option<String> {
    let words = arguments(pid);
    let at = words.iter().position(|word| word == flag)?;
    words.get(at + 1).cloned()
}

/// The engine's own response, bypassing the pool.
pub fn of_the_engine(pool: &Pool, path: &str) -> String {
    of_process(server(pool), path)
}

/// A connection to an engine's own port, by its process.
pub fn connect(pid: u32) -> TcpStream {
    let port = argument(pid, "--port").and_then(|port| port.parse::<u16>().ok());
    TcpStream::connect(("127.0.0.1", port.expect("a port"))).expect("it listens")
}

/// The own response of any engine, by its process.
pub fn of_process(pid: u32, path: &str) -> String {
    let mut socket = connect(pid);
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    socket.write_all(head.as_bytes()).expect("sent");
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("its answer");
    text
}

/// A value of the engine's own `/metrics`, by name.
pub fn number(pool: &Pool, name: &str) -> f64 {
    number_of_process(server(pool), name)
}

/// A value of any engine's `/metrics`, with or without labels.
pub fn number_of_process(pid: u32, name: &str) -> f64 {
    let text = of_process(pid, "/metrics");
    let mut lines = text.lines();
    let line = lines.find(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(['{', ' ']))
    });
    let number = line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok());
    number.unwrap_or_else(|| panic!("no {name} in {text}"))
}

/// Number of requests that the engine reports as running.
pub fn running(pool: &Pool) -> f64 {
    number(pool, "vllm:num_requests_running")
}

/// vLLM's process that computes.
pub fn core(pool: &Pool) -> u32 {
    let all = below(server(pool));
    let core = all
        .iter()
        .find(|(_, name)| name.starts_with("VLLM::EngineCor"));
    core.unwrap_or_else(|| panic!("no core among {all:?}")).0
}

/// The descendants of a process, with their names.
pub fn below(pid: u32) -> Vec<(u32, String)> {
    let children = |pid: u32| -> Vec<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        let tasks = tasks.into_iter().flatten().flatten();
        let texts = tasks.map(|task| std::fs::read_to_string(task.path().join("children")));
        let texts: Vec<String> = texts.filter_map(Result::ok).collect();
        let words = texts.iter().flat_map(|text| text.split_whitespace());
        words.filter_map(|word| word.parse().ok()).collect()
    };
    let (mut all, mut next) = (Vec::new(), children(pid));
    while let Some(pid) = next.pop() {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        all.push((pid, name));
        next.extend(children(pid));
    }
    all
}

/// Resident memory of all processes of the engine, in bytes.
pub fn resident(pool: &Pool) -> u64 {
    let server = server(pool);
    let pids = below(server).into_iter().map(|(pid, _)| pid);
    let kibibytes: u64 = pids.chain([server]).map(support::net::memory_kib).sum();
    kibibytes * 1024
}

pub fn signal(pid: u32, signal: Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), signal).expect("sent");
}

/// Parts of a test that share a slow start. A failing part does not hide later ones.
#[derive(Default)]
pub struct Parts(Vec<&'static str>);

impl Parts {
    pub fn run(&mut self, name: &'static str, part: impl FnOnce()) {
        println!("-- {name}");
        // The panic is printed where it happens.
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(part)).is_err() {
            self.0.push(name);
        }
    }
}

impl Drop for Parts {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(self.0.is_empty(), "parts that failed: {:?}", self.0);
        }
    }
}
