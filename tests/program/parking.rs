//! Sleeping engines with the real program: vLLM's double on a fake GPU is put to sleep when its model must leave and woken on
//! demand, and its memory moves between the accounts of GPU and host.

use std::path::Path;
use std::time::Instant;

use serde_json::{Value, json};
use support::double::vllm_double;
use support::folder::write_tiny_weights;
use support::machine::{GIB, Machine};
use support::service::{Pool, wait_for};

/// The GPU holds a model of this size and a sleeper's remainder, but not two models.
const GPU_BYTES: u64 = 80 * GIB;
const MODEL_BYTES: u64 = 60 * GIB;
/// GPU memory that vLLM's processes keep while asleep, at most.
const RESIDENT_BYTES: u64 = 2 * GIB;

/// A model with weights of 1 MiB whose engine takes 60 GiB, loads for 1.5 s and sleeps.
fn model(folder: &Path, machine: &Machine, name: &str, pool: &str) -> (String, String) {
    let weights = folder.join(name);
    std::fs::create_dir(&weights).expect("a folder");
    write_tiny_weights(&weights);
    let state = machine.state_file().display().to_string();
    let program = vllm_double().display().to_string();
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: VLLMEngine\n  model_path: {:?}\n  program: {program:?}\n  env: {{MODEL_POOL_FAKE_NVML: {state:?}, VLLM_DOUBLE_LOAD_MS: '1500', VLLM_DOUBLE_WEIGHTS_BYTES: '1048576'}}\npool_config: {{memory_gib: 60, sleep: weights, min_resident: 0s, {pool}}}\n",
        weights.display().to_string()
    );
    (format!("{name}.yaml"), text)
}

fn admin(pool: &Pool, method: &str, path: &str, body: &Value) -> Value {
    let (status, response) = pool.admin(method, path, body);
    assert!(status < 300, "{status} {response}");
    response
}

fn get(pool: &Pool, path: &str) -> Value {
    admin(pool, "GET", path, &Value::Null)
}

/// Seconds until the response, which must succeed.
#[expect(clippy::disallowed_methods, reason = "real programs in real time")]
fn ask(pool: &Pool, model: &str) -> f64 {
    let began = Instant::now();
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]});
    let (status, text) = pool.post("/v1/chat/completions", &body.to_string());
    assert_eq!(status, 200, "{text}");
    began.elapsed().as_secs_f64()
}

/// State of a model in the list of loaded models.
fn status(pool: &Pool, model: &str) -> String {
    let lists = get(pool, "/llm/hot-models");
    for list in ["hot_models", "loading_models", "asleep_models"] {
        let all = lists[list].as_array().expect("a list");
        if let Some(found) = all.iter().find(|entry| entry["model_name"] == model) {
            return found["status"].as_str().expect("a word").to_owned();
        }
    }
    "cold".to_owned()
}

fn host(pool: &Pool) -> Value {
    get(pool, "/llm/admin/devices")["hosts"][0].clone()
}

fn records(pool: &Pool, kind: &str) -> Vec<String> {
    let page = get(pool, "/llm/admin/events");
    let events = page["events"].as_array().expect("events");
    let of_kind = events.iter().filter(|event| event["kind"] == kind);
    of_kind.map(|event| event["reason"].to_string()).collect()
}

fn two_models(folder: &Path, pool_of_a: &str) -> (Machine, Pool) {
    let machine = Machine::new(folder).gpus(1, "NVIDIA H100 80GB HBM3", GPU_BYTES);
    let files = [
        model(folder, &machine, "a", pool_of_a),
        model(folder, &machine, "b", ""),
    ];
    let library = machine.library();
    (machine, Pool::on_gpus(&files, &library, ""))
}

#[test]
fn two_models_that_exclude_each_other_take_turns_by_sleeping_and_waking() {
    let folder = tempfile::tempdir().expect("a folder");
    let (machine, pool) = two_models(folder.path(), "");
    let cold = ask(&pool, "a");
    let pid = pool.engine_pids();
    ask(&pool, "b");
    wait_for("a to sleep and b to be seen ready", || {
        (status(&pool, "a").as_str(), status(&pool, "b").as_str()) == ("asleep", "ready")
    });
    let used = machine.used(0);
    assert!(
        used > MODEL_BYTES - GIB && used <= MODEL_BYTES + RESIDENT_BYTES,
        "the awake one and the rest of the other: {used}"
    );
    let host = host(&pool);
    assert_eq!(
        (&host["sleepers"], &host["held_bytes"]),
        (&json!(1), &json!(1 << 20))
    );
    // Reading the status does not wake it (L2).
    get(&pool, "/v1/models");
    get(&pool, "/metrics");
    assert_eq!(status(&pool, "a"), "asleep");
    let plan = admin(&pool, "POST", "/llm/admin/plan", &json!({"model": "a"}));
    assert!(plan["wakes"].is_string(), "{plan}");
    assert!(
        plan["candidates"][0]["place"].to_string().contains("wakes"),
        "{plan}"
    );
    let awake = ask(&pool, "a");
    assert!(awake < cold, "awake in {awake} s, loaded in {cold} s");
    wait_for("a to be seen ready and b to sleep", || {
        (status(&pool, "a").as_str(), status(&pool, "b").as_str()) == ("ready", "asleep")
    });
    let same = pool.engine_pids();
    assert!(
        pid.iter().all(|pid| same.contains(pid)),
        "its process went on: {pid:?} {same:?}"
    );
    wait_for("the history to tell of it", || {
        let ready = records(&pool, "ready").join("\n");
        records(&pool, "sleep").len() == 2 && ready.contains("awake after")
    });
    let metrics = get(&pool, "/metrics").as_str().expect("text").to_owned();
    for line in [
        "model_pool_recent_load_seconds{model=\"a\",source=\"asleep\"}",
        "model_pool_replicas{model=\"b\",state=\"asleep\"} 1",
        "kind=\"held\"} 1048576",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
}

#[test]
fn an_idle_model_is_put_to_sleep_and_a_cleanup_stops_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (machine, pool) = two_models(folder.path(), "keep_hot: 500ms");
    ask(&pool, "a");
    wait_for("it to fall asleep", || status(&pool, "a") == "asleep");
    assert!(machine.used(0) <= RESIDENT_BYTES, "{}", machine.used(0));
    wait_for("the history to tell why", || {
        let reasons = records(&pool, "sleep").join("\n");
        reasons.contains("keep-hot time (L2)")
    });
    admin(&pool, "POST", "/llm/admin/cleanup", &json!({}));
    wait_for("its processes and all their memory to be gone", || {
        pool.engine_pids().is_empty()
            && (status(&pool, "a").as_str(), machine.used(0)) == ("cold", 0)
            && host(&pool)["held_bytes"] == 0
    });
    ask(&pool, "a");
}

#[test]
fn a_sleeper_that_dies_is_loaded_again_without_a_failed_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let (machine, pool) = two_models(folder.path(), "keep_hot: 500ms");
    ask(&pool, "a");
    wait_for("it to fall asleep", || status(&pool, "a") == "asleep");
    let engine = machine.held(0)[0].0;
    let engine = nix::unistd::Pid::from_raw(i32::try_from(engine).expect("a process"));
    nix::sys::signal::kill(engine, nix::sys::signal::Signal::SIGKILL).expect("killed");
    wait_for("its end to be known", || status(&pool, "a") == "cold");
    wait_for("the history to tell of it", || {
        let crashes = records(&pool, "crash").join("\n");
        crashes.contains("ended while asleep")
    });
    ask(&pool, "a");
    let shown = get(&pool, "/llm/admin/models?model=a").to_string();
    assert!(shown.contains("\"failures\":0"), "{shown}");
}

#[test]
fn without_host_memory_idle_engines_are_stopped() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(1, "NVIDIA H100 80GB HBM3", GPU_BYTES);
    let files = [model(folder.path(), &machine, "a", "keep_hot: 500ms")];
    let none = "parking: {host_memory: 0%}\n";
    let pool = Pool::on_gpus(&files, &machine.library(), none);
    ask(&pool, "a");
    // It disappears from the list while it is still exiting.
    wait_for("it to be unloaded", || {
        status(&pool, "a") == "cold" && machine.used(0) == 0
    });
    assert!(records(&pool, "sleep").is_empty());
}

#[test]
fn programs_can_put_any_engine_to_sleep_and_wake_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let mark = |name: &str| folder.path().join(name).display().to_string();
    let (slept, woken) = (mark("slept"), mark("woken"));
    let engine = support::stub::stub_engine().display().to_string();
    let text = format!(
        "engine_config:\n  model_id: any\n  type: CommandEngine\n  command: [{engine:?}, --port, \"{{{{ port }}}}\", --ready-after-ms, \"2000\"]\n  sleep_command: [sh, -c, \"echo {{{{ pid }}}} > {slept}\"]\n  wake_command: [sh, -c, \"echo {{{{ pid }}}} > {woken}\"]\npool_config: {{memory_gib: 1, keep_hot: 500ms}}\n"
    );
    let pool = Pool::with_models(&[("any.yaml".to_owned(), text)], "");
    ask(&pool, "any");
    wait_for("it to fall asleep", || status(&pool, "any") == "asleep");
    let pid = std::fs::read_to_string(&slept).expect("the program ran");
    assert!(
        pool.engine_pids()
            .iter()
            .any(|process| process.to_string() == pid.trim()),
        "{pid}"
    );
    assert_eq!(host(&pool)["held_bytes"], GIB);
    // If the program fails, the engine is stopped and the reason reported.
    std::fs::remove_file(&slept).expect("there");
    std::fs::create_dir(&slept).expect("in the way");
    ask(&pool, "any");
    assert_eq!(
        std::fs::read_to_string(&woken).expect("the program ran"),
        pid
    );
    wait_for("it to be ended", || status(&pool, "any") == "cold");
    wait_for("the history to tell why", || {
        let told = records(&pool, "sleep").join("\n");
        told.contains("could not be put to sleep")
    });
}

/// A demo model with the embedded engine in host memory.
fn embedded(name: &str) -> (String, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("demo/models")
        .join(name);
    let text = format!(
        "engine_config:\n  model_id: {name}\n  type: CandleEngine\n  model_path: {path:?}\n  max_total_tokens: 512\n  engine_kwargs: {{concurrency: 8, threads: 1}}\npool_config: {{sleep: weights, min_resident: 0s}}\n"
    );
    (format!("{name}.yaml"), text)
}

/// Two models do not fit there, but a model and a sleeper do.
const MACHINE: &str =
    "inventory: {provider: host, host_memory: 45MiB, headroom: 0%}\nparking: {reserve: 0%}\n";

#[test]
fn the_embedded_engine_sleeps_in_its_running_process() {
    let pool = Pool::with_devices(&[embedded("tiny-chat"), embedded("tiny-helper")], MACHINE);
    ask(&pool, "tiny-chat");
    let first = pool.engine_pids();
    ask(&pool, "tiny-helper");
    let states = || (status(&pool, "tiny-chat"), status(&pool, "tiny-helper"));
    wait_for("tiny-chat to sleep", || states().0 == "asleep");
    assert_eq!(records(&pool, "sleep").len(), 1);
    let host = host(&pool);
    assert_eq!(
        (&host["sleepers"], &host["held_bytes"]),
        (&json!(1), &json!(0))
    );
    ask(&pool, "tiny-chat");
    wait_for("tiny-helper to sleep", || states().1 == "asleep");
    let now = pool.engine_pids();
    assert!(
        first.iter().all(|pid| now.contains(pid)),
        "its process went on: {first:?} {now:?}"
    );
}
