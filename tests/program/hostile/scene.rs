//! A scene: a machine of eight GPUs, the real program, a model with the misbehaving engine, and two well-behaved models under
//! constant load. At its end nothing is left of any engine, and no client of the good models noticed anything.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use support::machine::{GIB, Machine};
use support::service::{Pool, Stream, wait_for};
use support::stub::stub_engine;

const GPUS: usize = 8;
/// Memory that an engine holds on its GPU.
pub const HELD_GIB: u64 = 10;
/// Long enough for a busy machine, short enough for a test.
const POOL: &str = "pool: {heartbeat: 300ms, heartbeat_timeout: 300ms, heartbeat_misses: 4}\n";
/// Limits after which the bad engine counts as dead.
const LIMITS: [(&str, &str); 4] = [
    ("stall_after", "1500ms"),
    ("first_token_after", "1500ms"),
    ("idle_probe", "400ms"),
    ("stop_grace", "300ms"),
];

pub struct Scene {
    // Ends before the pool, which shows its log when a test fails.
    crowd: Crowd,
    machine: Machine,
    pool: Arc<Pool>,
    /// Part of the environment of every process of this scene's engines.
    mark: String,
    _folder: TempDir,
}

impl Scene {
    /// The bad engine has these flags in addition to every engine's.
    pub fn new(flags: &[&str]) -> Scene {
        Scene::with(flags, &[])
    }

    /// `pool` adds or replaces keys of its `pool_config`.
    pub fn with(flags: &[&str], pool: &[(&str, &str)]) -> Scene {
        let own = |key: &str| pool.iter().any(|(name, _)| *name == key);
        let limits = LIMITS.iter().filter(|(name, _)| !own(name));
        let words: Vec<String> = limits
            .chain(pool)
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        let pool = words.join(", ");
        Scene::played(|machine, mark| {
            let engine = stub_engine().display().to_string();
            model(machine, "bad", &engine, flags, &pool, mark)
        })
    }

    /// The caller writes the bad model's file; `mark` is added to its environment.
    pub fn played(bad: impl FnOnce(&Machine, &str) -> (String, String)) -> Scene {
        let folder = tempfile::tempdir().expect("a folder");
        let machine = Machine::new(folder.path()).gpus(GPUS, "NVIDIA H100 80GB HBM3", 80 * GIB);
        let mark = folder.path().display().to_string();
        let engine = stub_engine().display().to_string();
        let good = |name| model(&machine, name, &engine, &[], "", &mark);
        let files = [bad(&machine, &mark), good("good-a"), good("good-b")];
        let pool = Arc::new(Pool::on_gpus(&files, &machine.library(), POOL));
        let crowd = Crowd::ask(&pool);
        Scene {
            machine,
            pool,
            crowd,
            mark,
            _folder: folder,
        }
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// A plain request to the bad model: status, error code, and message or response.
    pub fn ask(&self) -> RequestResult {
        let (status, text) = self
            .pool
            .post("/v1/chat/completions", &question("bad", false));
        let body: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
        let words = |name: &str| body["error"][name].as_str().unwrap_or_default().to_owned();
        RequestResult {
            status,
            code: words("code"),
            message: words("message"),
        }
    }

    pub fn stream(&self) -> Stream {
        self.pool
            .stream("/v1/chat/completions", &question("bad", true))
    }

    pub fn admin(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.pool.admin(method, path, body)
    }

    pub fn load(&self) {
        let (status, response) = self.admin("POST", "/llm/admin/load", &json!({"model": "bad"}));
        assert_eq!(status, 200, "{response}");
    }

    pub fn unload(&self) {
        let (status, response) = self.admin("POST", "/llm/admin/unload", &json!({"model": "bad"}));
        assert_eq!(status, 200, "{response}");
    }

    /// The engine's process.
    pub fn pid(&self) -> u32 {
        let (_, models) = self.admin("GET", "/llm/admin/models", &Value::Null);
        let models = models["models"].as_array().cloned().unwrap_or_default();
        let bad = models.iter().find(|model| model["model"] == "bad");
        let pid = bad.and_then(|bad| bad["replicas"][0]["pid"].as_u64());
        u32::try_from(pid.unwrap_or_else(|| panic!("no process in {models:?}"))).expect("a pid")
    }

    /// History records of the bad model of one kind.
    pub fn history(&self, kind: &str) -> Vec<String> {
        let path = "/llm/admin/events?limit=500&model=bad";
        let (_, events) = self.admin("GET", path, &Value::Null);
        let events = events["events"].as_array().cloned().unwrap_or_default();
        let of_kind = events.iter().filter(|event| event["kind"] == kind);
        of_kind
            .filter_map(|event| Some(event["reason"].as_str()?.to_owned()))
            .collect()
    }

    /// Waits for a record of this kind with this text.
    pub fn told(&self, kind: &str, words: &str) {
        wait_for(&format!("a {kind} with {words:?}"), || {
            let history = self.history(kind);
            history.iter().any(|reason| reason.contains(words))
        });
    }

    pub fn metrics(&self) -> String {
        self.pool.request("GET", "/metrics", "", None).1
    }

    /// Waits for the metrics to count one load of the bad model with this result.
    pub fn counted(&self, result: &str) {
        let line = format!("model_pool_loads_total{{model=\"bad\",result=\"{result}\"}} ");
        wait_for(&line, || self.metrics().contains(&line));
    }

    pub fn log_folder(&self) -> PathBuf {
        self.pool.folder().join("data/logs")
    }

    /// A client of the bad model that requests a stream and does not read it.
    pub fn unread(&self) -> TcpStream {
        let body = question("bad", true);
        let mut socket = TcpStream::connect(self.pool.address()).expect("connected");
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        socket.write_all(request.as_bytes()).expect("sent");
        socket
    }

    /// Living processes of the bad model's engine and all their descendants.
    pub fn bad_processes(&self) -> BTreeSet<u32> {
        marked(&format!("{}=bad", self.mark))
    }

    /// Ends the scene, and checks for remains.
    pub fn end(mut self) {
        wait_for("the others to have served many requests", || {
            self.crowd.asked.load(Ordering::SeqCst) >= 10
        });
        let failures = self.crowd.leave();
        assert!(failures.is_empty(), "others were disturbed: {failures:?}");
        let Ok(mut pool) = Arc::try_unwrap(self.pool) else {
            panic!("the pool is still referenced")
        };
        pool.terminate();
        assert!(pool.wait(Duration::from_secs(20)), "it does not end");
        let left = marked(&self.mark);
        assert!(left.is_empty(), "processes are left behind: {left:?}");
        for gpu in 0..GPUS {
            assert_eq!(self.machine.used(gpu), 0, "memory of GPU {gpu} is left");
        }
    }
}

/// Result of a request.
#[derive(Debug)]
pub struct RequestResult {
    pub status: u16,
    pub code: String,
    pub message: String,
}

impl RequestResult {
    /// An error of this status and code whose message has all these words.
    pub fn is(&self, status: u16, code: &str, words: &[&str]) {
        assert_eq!(
            (self.status, self.code.as_str()),
            (status, code),
            "{self:?}"
        );
        for word in words {
            assert!(self.message.contains(word), "no {word:?} in {self:?}");
        }
    }
}

/// A stream that was cut: without a regular end, and with an error of this code and text.
pub fn is_cut(text: &str, code: &str, words: &[&str]) {
    assert!(!text.contains("[DONE]"), "a false end: {text}");
    let last = text.trim_end().rsplit("data: ").next().unwrap_or_default();
    let last: Value = serde_json::from_str(last).unwrap_or_default();
    assert_eq!(last["error"]["code"], code, "{text}");
    let message = last["error"]["message"].as_str().unwrap_or_default();
    for word in words {
        assert!(message.contains(word), "no {word:?} in {message}");
    }
}

pub fn question(model: &str, stream: bool) -> String {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    json!({"model": model, "stream": stream, "messages": messages}).to_string()
}

/// A model whose engine is this program with these flags.
pub fn model(
    machine: &Machine,
    name: &str,
    program: &str,
    flags: &[&str],
    pool: &str,
    mark: &str,
) -> (String, String) {
    let state = machine.state_file().display().to_string();
    let bytes = (HELD_GIB * GIB).to_string();
    let mut words = vec!["--fake-gpu-state", &state, "--fake-gpu-bytes", &bytes];
    words.extend(flags);
    let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
    let file = format!(
        "engine_config:\n  model_id: {name}\n  type: CommandEngine\n  listen: port\n  \
         env: {{SCENE: \"{mark}={name}\"}}\n  \
         command: [{program:?}, \"--port\", \"{{{{ port }}}}\", {}]\n\
         pool_config: {{memory_gib: {HELD_GIB}, {pool}}}\n",
        words.join(", ")
    );
    (format!("{name}.yaml"), file)
}

/// Processes with the mark in their environment, which excludes zombies.
fn marked(mark: &str) -> BTreeSet<u32> {
    let carries = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mark = mark.as_bytes();
        environment.windows(mark.len()).any(|window| window == mark)
    };
    fs::read_dir("/proc")
        .expect("/proc")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(carries)
        .collect()
}

/// Clients that constantly use the other models.
struct Crowd {
    enough: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    failures: Arc<Mutex<Vec<String>>>,
    people: Vec<JoinHandle<()>>,
}

impl Crowd {
    fn ask(pool: &Arc<Pool>) -> Crowd {
        let mut crowd = Crowd {
            enough: Arc::default(),
            asked: Arc::default(),
            failures: Arc::default(),
            people: Vec::new(),
        };
        for (model, stream) in [("good-a", true), ("good-b", false)] {
            let pool = Arc::clone(pool);
            let enough = Arc::clone(&crowd.enough);
            let asked = Arc::clone(&crowd.asked);
            let failures = Arc::clone(&crowd.failures);
            crowd.people.push(thread::spawn(move || {
                while !enough.load(Ordering::SeqCst) {
                    let (status, text) =
                        pool.post("/v1/chat/completions", &question(model, stream));
                    let whole = if stream {
                        text.contains("data: [DONE]") && !text.contains("\"error\"")
                    } else {
                        text.contains("goodbye")
                    };
                    asked.fetch_add(1, Ordering::SeqCst);
                    if status != 200 || !whole {
                        failures
                            .lock()
                            .unwrap()
                            .push(format!("{model}: {status} {text}"));
                    }
                    let (ready, why, _) = pool.request("GET", "/llm/ready", "", None);
                    if ready != 200 {
                        failures.lock().unwrap().push(format!("not ready: {why}"));
                    }
                    // Clients pause between requests to read the response.
                    thread::park_timeout(Duration::from_millis(20));
                }
            }));
        }
        crowd
    }

    /// Failures among all requests.
    fn leave(&mut self) -> Vec<String> {
        self.enough.store(true, Ordering::SeqCst);
        let ended = self.people.drain(..).map(JoinHandle::join);
        let broken = ended.filter_map(|end| end.err().map(|_| "a client broke".to_owned()));
        let broken: Vec<String> = broken.collect();
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.drain(..).chain(broken).collect()
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        let failures = self.leave();
        if !failures.is_empty() {
            eprintln!("others were disturbed: {failures:?}");
        }
    }
}
