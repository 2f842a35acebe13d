//! Cost of watching many idle engines: the controller's own CPU time.

use std::fs;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use support::service::{Pool, wait_for};
use support::stub::stub_engine;

const ENGINES: usize = 50;

/// User and system time of a process so far.
pub(super) fn processor_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let (_, fields) = stat.rsplit_once(')').expect("a name in brackets");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    // proc(5): utime and stime are the 14th and 15th field, in ticks of 10 ms.
    let ticks: u64 = fields[11..13]
        .iter()
        .filter_map(|number| number.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 10)
}

#[test]
fn watching_fifty_idle_engines_uses_a_small_part_of_a_core() {
    let seconds = std::env::var("WATCH_SECONDS").ok();
    let time = Duration::from_secs(
        seconds
            .and_then(|seconds| seconds.parse().ok())
            .unwrap_or(10),
    );
    let engine = stub_engine().display().to_string();
    let file = |number: usize| {
        let text = format!(
            "engine_config:\n  model_id: m{number}\n  type: CommandEngine\n  listen: port\n  \
             command: [{engine:?}, \"--port\", \"{{{{ port }}}}\"]\npool_config: {{memory_gib: 0.1}}\n"
        );
        (format!("m{number}.yaml"), text)
    };
    let files: Vec<_> = (0..ENGINES).map(file).collect();
    let pool = Pool::with_models(&files, "");
    let key = pool.admin_key();
    for number in 0..ENGINES {
        let body = json!({"model": format!("m{number}"), "wait": false}).to_string();
        let (status, text, _) = pool.request("POST", "/llm/admin/load", &body, Some(&key));
        assert!(status < 300, "{text}");
    }
    wait_for("all engines", || {
        let (_, text, _) = pool.request("GET", "/llm/admin/models", "", Some(&key));
        let models: Value = serde_json::from_str(&text).unwrap_or_default();
        let models = models["models"].as_array().cloned().unwrap_or_default();
        models
            .iter()
            .filter(|model| model["state"] == "ready")
            .count()
            == ENGINES
    });
    let (began, before) = (SystemTime::now(), processor_time(pool.pid()));
    std::thread::park_timeout(time);
    let used = processor_time(pool.pid()) - before;
    let passed = began.elapsed().unwrap_or(time);
    let share = 100.0 * used.as_secs_f64() / passed.as_secs_f64();
    println!(
        "{ENGINES} engines watched for {:.1} s: {} ms of processor time, {share:.2} % of a core",
        passed.as_secs_f64(),
        used.as_millis()
    );
    // For an unoptimised build on a shared machine.
    let most = if cfg!(debug_assertions) { 15.0 } else { 1.0 };
    assert!(share <= most, "{share:.2} % of a core");
}
