//! A real vLLM that computes on the CPU, under the pool: `.ci/vllm` brings it; without it these tests print that they
//! were skipped. One start takes half a minute and more, so that each test asks one engine for many things. The same
//! script of requests goes to the double, in `tests/program/engines/script.rs`.

mod flags;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use support::required::skipped;
use support::vllm_script;
use support::whole::{Pool, wait_for};

/// A machine that does other things, too, imports its many files slowly.
const LOAD_WITHIN: Duration = Duration::from_secs(15 * 60);
/// For what it does once it has loaded.
const WITHIN: Duration = Duration::from_secs(120);

/// One vLLM at a time: several would take each other's processors and memory.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The environment with vLLM, if it is there.
fn environment() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/vllm");
    // It is written last.
    let there = folder.join("version").is_file().then_some(folder);
    if there.is_none() {
        skipped(
            "vllm",
            "there is no vLLM. Bring one with `.ci/vllm`, and run `cargo test --test outside vllm::`",
        );
    }
    there
}

fn demo() -> PathBuf {
    // Its heads have 32 numbers, the fewest that vLLM computes with on the CPU.
    Path::new(env!("CARGO_MANIFEST_DIR")).join("demo/models/tiny-guide")
}

/// The demo model with a template that shows tools, in the form of Hermes.
fn with_tools(folder: &Path) {
    for entry in std::fs::read_dir(demo()).expect("the demo model").flatten() {
        std::fs::copy(entry.path(), folder.join(entry.file_name())).expect("copied");
    }
    let template = "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}{% endfor %} Answer with <tool_call>{\"name\": …, \"arguments\": …}</tool_call><|im_end|>\n{% endif %}{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
    std::fs::write(folder.join("chat_template.jinja"), template).expect("written");
}

/// A model of the real vLLM.
fn real(environment: &Path, name: &str, folder: &Path, pool: &str) -> (String, String) {
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: VLLMEngine\n  model_path: {:?}\n  program: {:?}\n  command_prefix: [nice, -n, \"15\"]\n  max_total_tokens: 512\n  engine_kwargs: {{dtype: float32, enforce_eager: true}}\n  env: {{OMP_NUM_THREADS: \"1\", VLLM_CPU_KVCACHE_SPACE: \"1\", PYTHONDONTWRITEBYTECODE: \"\"}}\ndeployment_config: {{max_ongoing_requests: 4}}\npool_config: {{memory_gib: 4, min_resident: 0s, load_deadline: 15m, {pool}}}\n",
        folder.display().to_string(),
        environment.join("bin/vllm").display().to_string()
    );
    (format!("{name}.yaml"), text)
}

fn embedded(name: &str, pool: &str) -> (String, String) {
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CandleEngine\n  model_path: {:?}\n  max_total_tokens: 512\npool_config: {{min_resident: 0s, {pool}}}\n",
        demo().display().to_string()
    );
    (format!("{name}.yaml"), text)
}

/// A pool of 5 GiB of host memory, whose engines wait for another controller.
fn pool(files: &[(String, String)]) -> Pool {
    let config = "inventory: {provider: host, host_memory: 5GiB, headroom: 0%}\npool: {on_restart: adopt, adopt_within: 2m, queue_timeout: 20m, stall_after: 10s, first_token_after: 20s, idle_probe: off}\n";
    Pool::with_devices(files, config)
}

fn wait_long(what: &str, within: Duration, mut so: impl FnMut() -> bool) {
    let began = SystemTime::now();
    while !so() {
        assert!(
            began.elapsed().unwrap_or_default() < within,
            "waited in vain for {what}"
        );
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

fn admin(pool: &Pool, method: &str, path: &str, body: &Value) -> Value {
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let (status, text, _) = pool.request(method, path, &body, Some(&pool.admin_key()));
    assert!(status < 300, "{method} {path}: {status} {text}");
    serde_json::from_str(&text).unwrap_or_default()
}

fn state(pool: &Pool, model: &str) -> String {
    let path = format!("/llm/admin/models?model={model}");
    let answer = admin(pool, "GET", &path, &Value::Null);
    let one = answer["models"].get(0).unwrap_or(&answer);
    one["state"].as_str().unwrap_or_default().to_owned()
}

/// Loads it, and waits as long as that takes.
fn load(pool: &Pool, model: &str) {
    let order = json!({"model": model, "wait": false});
    admin(pool, "POST", "/llm/admin/load", &order);
    wait_long("the load", LOAD_WITHIN, || {
        let state = state(pool, model);
        assert_ne!(state, "failed", "{}", pool.log());
        state == "ready"
    });
}

/// What the engine itself says that it computes now.
fn running(pool: &Pool) -> f64 {
    let words = std::fs::read(format!("/proc/{}/cmdline", server(pool))).expect("its command line");
    let words = String::from_utf8_lossy(&words);
    let mut words = words.split('\0').skip_while(|word| *word != "--port");
    let port: u16 = words.nth(1).and_then(|it| it.parse().ok()).expect("a port");
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    let head = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    socket.write_all(head.as_bytes()).expect("sent");
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("its numbers");
    let mut lines = text.lines();
    let line = lines.find(|line| line.starts_with("vllm:num_requests_running{"));
    let number = line.and_then(|line| line.rsplit_once(' ')?.1.parse().ok());
    number.unwrap_or_else(|| panic!("{text}"))
}

/// The process that serves HTTP, of the only engine of vLLM.
fn server(pool: &Pool) -> u32 {
    let is_vllm = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains("bin/vllm")
    };
    let found = pool.engine_pids().into_iter().find(is_vllm);
    found.expect("an engine of vLLM")
}

fn long(model: &str, stream: bool) -> String {
    json!({
        "model": model, "stream": stream, "max_tokens": 480, "ignore_eos": true, "temperature": 0,
        "messages": [{"role": "user", "content": "Go on"}],
    })
    .to_string()
}

#[test]
fn it_serves_under_the_pool_as_its_documentation_says() {
    let Some(environment) = environment() else {
        return;
    };
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    with_tools(folder.path());
    let mut pool = pool(&[
        real(&environment, "real", folder.path(), "keep_hot: 1h"),
        embedded("embedded", "memory_gib: 0.06"),
        embedded("urgent", "memory_gib: 3, priority: 1"),
    ]);
    load(&pool, "real");
    load(&pool, "embedded");
    same_text(&pool);
    vllm_script::run(&pool, "real");
    leaving(&pool);
    adopted(&mut pool);
    // The pool has 5 GiB: one of them has to go.
    let body = json!({"model": "urgent", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]});
    let (status, text) = pool.post("/v1/chat/completions", &body.to_string());
    assert_eq!(status, 200, "{text}");
    let path = "/llm/admin/events?kind=evict";
    let evicted = admin(&pool, "GET", path, &Value::Null).to_string();
    assert!(
        evicted.contains("preempted by urgent: priority 1 over 0 (P2)"),
        "{evicted}"
    );
    wait_long("its processes to be gone", WITHIN, || {
        pool.engine_pids().len() <= 2
    });
}

/// Greedy, the first tokens of both engines are the same.
fn same_text(pool: &Pool) {
    for (path, asked) in [
        (
            "/v1/chat/completions",
            json!({"messages": [{"role": "user", "content": "What is keep-hot?"}]}),
        ),
        ("/v1/completions", json!({"prompt": "A model pool is"})),
    ] {
        let text = |model: &str| {
            let mut body = asked.clone();
            for (key, value) in [
                ("model", json!(model)),
                ("max_tokens", json!(24)),
                ("temperature", json!(0)),
            ] {
                body[key] = value;
            }
            let (status, text) = pool.post(path, &body.to_string());
            assert_eq!(status, 200, "{model}: {text}");
            let answer: Value = serde_json::from_str(&text).expect("JSON");
            let choice = &answer["choices"][0];
            let content = [&choice["message"]["content"], &choice["text"]];
            let content = content.into_iter().find_map(Value::as_str);
            (
                content.unwrap_or_default().to_owned(),
                answer["usage"]["completion_tokens"].clone(),
            )
        };
        assert_eq!(text("real"), text("embedded"), "{path}");
    }
}

/// A client that leaves, plain or streamed, leaves no work behind.
fn leaving(pool: &Pool) {
    for stream in [true, false] {
        let asked = pool.stream("/v1/chat/completions", &long("real", stream));
        let is_over = || asked.text().contains("\"usage\"") || asked.text().contains("[DONE]");
        wait_long("the engine to compute it", WITHIN, || {
            assert!(!is_over(), "it was over too soon");
            running(pool) >= 1.0
        });
        drop(asked);
        wait_long("the engine to stop", WITHIN, || running(pool) == 0.0);
    }
}

/// A controller that is killed leaves the engine to the next one, which serves at once.
fn adopted(pool: &mut Pool) {
    let before = pool.engine_pids();
    pool.kill_and_restart();
    wait_for("the adoption", || state(pool, "real") == "ready");
    assert_eq!(pool.engine_pids(), before);
    let body =
        json!({"model": "real", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]});
    let (status, text) = pool.post("/v1/chat/completions", &body.to_string());
    assert_eq!(status, 200, "{text}");
}

#[test]
fn a_killed_core_and_a_stopped_server_are_found_and_requests_are_placed_again_or_told_why() {
    let Some(environment) = environment() else {
        return;
    };
    let _alone = alone();
    let pool = pool(&[real(&environment, "real", &demo(), "keep_hot: 1h")]);
    load(&pool, "real");
    let body =
        json!({"model": "real", "max_tokens": 4, "messages": [{"role": "user", "content": "Hi"}]});
    let body = body.to_string();
    let asked = pool.stream("/v1/chat/completions", &long("real", true));
    wait_long("the first token", WITHIN, || {
        asked.text().contains("\"delta\"")
    });
    let core = core(&pool);
    // Stopped, it takes a request and says nothing of it; then it ends.
    signal(core, Signal::SIGSTOP);
    let waiting = pool.stream("/v1/chat/completions", &body);
    wait_long("the second request to be there", WITHIN, || {
        admin(&pool, "GET", "/llm/admin/models?model=real", &Value::Null)
            .to_string()
            .contains("\"in_flight\":2")
    });
    signal(core, Signal::SIGKILL);
    wait_long("the stream to end", WITHIN, || {
        asked.text().contains("\"error\"")
    });
    assert!(!asked.text().contains("[DONE]"), "{}", asked.text());
    wait_long("the crash to be told", WITHIN, || {
        pool.log().contains("crash real (r1)")
    });
    // It crashed soon after it was ready and cools down, so that there is no second place.
    wait_long("the other to be told", WITHIN, || {
        !waiting.text().is_empty()
    });
    let text = waiting.text();
    assert!(text.contains("engine_crashed"), "{text}");
    assert!(!text.contains("See stack trace"), "{text}");
    // Every line of the log is the service's own.
    for line in pool.log().lines() {
        assert!(line.starts_with("20") || line.trim().is_empty(), "{line}");
    }
    let (status, text, head) = pool.request("POST", "/v1/chat/completions", &body, None);
    assert!(
        status == 503 && head.contains("retry-after:"),
        "{status} {head} {text}"
    );
    wait_long("its processes to be gone", WITHIN, || {
        pool.engine_pids().is_empty()
    });
    // An administrator need not wait until it has cooled down.
    load(&pool, "real");
    signal(server(&pool), Signal::SIGSTOP);
    let waiting = pool.stream("/v1/chat/completions", &body);
    wait_long("the stop to be found", WITHIN, || {
        !waiting.text().is_empty()
    });
    assert!(
        waiting.text().contains("engine_crashed"),
        "{}",
        waiting.text()
    );
    wait_long("its processes to be gone", WITHIN, || {
        pool.engine_pids().is_empty()
    });
}

/// vLLM's process that computes.
fn core(pool: &Pool) -> u32 {
    let all = below(server(pool));
    let core = all
        .iter()
        .find(|(_, name)| name.starts_with("VLLM::EngineCor"));
    core.unwrap_or_else(|| panic!("no core among {all:?}")).0
}

/// The processes below one, with their names.
fn below(pid: u32) -> Vec<(u32, String)> {
    let children = |pid: u32| -> Vec<u32> {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
        let tasks = tasks.into_iter().flatten().flatten();
        let texts = tasks.map(|it| std::fs::read_to_string(it.path().join("children")));
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

fn signal(pid: u32, signal: Signal) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), signal).expect("sent");
}
