//! The program on fake GPUs: the real binary and the real NVML bindings over a library that reads a file, and engines that allocate
//! memory in it under their own process ids.

use serde_json::{Value, json};
use support::machine::{GIB, Machine};
use support::service::{Pool, wait_for};

/// A model whose engine allocates this much on each of its GPUs.
fn model(machine: &Machine, name: &str, gib: u64, pool: &str, flags: &[&str]) -> (String, String) {
    let state = machine.state_file().display().to_string();
    let bytes = (gib * GIB).to_string();
    let mut words = vec!["--fake-gpu-state", &state, "--fake-gpu-bytes", &bytes];
    words.extend(flags);
    support::stub::model(name, &words, pool)
}

fn load(pool: &Pool, body: Value) -> Value {
    let (status, response) = pool.admin("POST", "/llm/admin/load", &body);
    assert_eq!(status, 200, "{response}");
    response
}

fn ask(pool: &Pool, model: &str) -> (u16, String) {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}]});
    pool.post("/v1/chat/completions", &body.to_string())
}

fn devices(pool: &Pool) -> Vec<Value> {
    let (status, response) = pool.admin("GET", "/llm/admin/devices", &Value::Null);
    assert_eq!(status, 200, "{response}");
    response["devices"].as_array().expect("devices").clone()
}

/// The GPUs of a replica, from the response to its load.
fn placed(response: &Value) -> Vec<String> {
    let shares = response["ready_replicas"][0]["devices"].as_array();
    let name = |share: &Value| share["device"].as_str().expect("a name").to_owned();
    shares
        .unwrap_or_else(|| panic!("{response}"))
        .iter()
        .map(name)
        .collect()
}

fn gpu_number(name: &str) -> usize {
    name.trim_start_matches("gpu").parse().expect("gpuN")
}

const H100: &str = "NVIDIA H100 80GB HBM3";

#[test]
fn small_models_share_a_gpu_and_a_large_one_gets_an_empty_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(8, H100, 80 * GIB);
    let files = [
        model(&machine, "small", 10, "memory_gib: 10", &[]),
        model(&machine, "other", 20, "memory_gib: 20", &[]),
        model(&machine, "large", 74, "memory_gib: 74", &[]),
    ];
    let pool = Pool::on_gpus(&files, &machine.library(), "");
    let small = placed(&load(&pool, json!({"model": "small"})));
    let other = placed(&load(&pool, json!({"model": "other"})));
    assert_eq!(small, other, "the tightest fit keeps large holes");
    let large = placed(&load(&pool, json!({"model": "large"})));
    assert_ne!(large, small);
    assert_eq!(machine.used(gpu_number(&small[0])), 30 * GIB);
    assert_eq!(machine.used(gpu_number(&large[0])), 74 * GIB);
}

#[test]
fn a_replica_over_two_gpus_uses_a_linked_pair() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path())
        .gpus(8, H100, 80 * GIB)
        .nvlink_pairs();
    let files = [
        model(&machine, "first", 60, "memory_gib: 60", &[]),
        model(
            &machine,
            "wide",
            60,
            "memory_gib: 120, gpus_per_replica: 2",
            &[],
        ),
    ];
    let pool = Pool::on_gpus(&files, &machine.library(), "");
    let first = placed(&load(&pool, json!({"model": "first"})));
    let wide = placed(&load(&pool, json!({"model": "wide"})));
    let mut numbers: Vec<usize> = wide.iter().map(|name| gpu_number(name)).collect();
    numbers.sort_unstable();
    let [one, two] = numbers[..] else {
        panic!("{wide:?}")
    };
    assert_eq!((one % 2, two), (0, one + 1), "a pair (M5)");
    assert!(!wide.contains(&first[0]), "no eviction where there is room");
    assert_eq!((machine.used(one), machine.used(two)), (60 * GIB, 60 * GIB));
}

#[test]
fn one_victim_is_evicted_where_one_suffices_and_the_plan_explains_the_other_gpus() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(2, H100, 80 * GIB);
    let files = [
        model(&machine, "a-small", 20, "memory_gib: 20", &[]),
        model(&machine, "b-big", 50, "memory_gib: 50", &[]),
        model(&machine, "c-hot", 70, "memory_gib: 70, priority: 2", &[]),
        model(&machine, "newcomer", 45, "memory_gib: 45, priority: 1", &[]),
    ];
    let pool = Pool::on_gpus(&files, &machine.library(), "");
    wait_for("the always-hot model", || {
        (0..2).any(|gpu| machine.used(gpu) == 70 * GIB)
    });
    load(&pool, json!({"model": "b-big"}));
    load(&pool, json!({"model": "a-small"}));
    let (_, plan) = pool.admin("POST", "/llm/admin/plan", &json!({"model": "newcomer"}));
    let verdicts = plan["candidates"].to_string();
    assert!(verdicts.contains("always-hot (P4)"), "{verdicts}");
    let response = load(&pool, json!({"model": "newcomer"}));
    let evicted = response["evicted"].as_array().expect("a list");
    assert_eq!(evicted.len(), 1, "{response}");
    assert_eq!(evicted[0]["model"], "b-big");
}

#[test]
fn foreign_memory_is_never_counted_as_free_and_is_named_in_refusals() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(2, H100, 80 * GIB);
    machine.foreign(0, 4242, 60 * GIB);
    machine.foreign(1, 4343, 50 * GIB);
    let files = [
        model(&machine, "fits", 20, "memory_gib: 20", &[]),
        model(&machine, "large", 40, "memory_gib: 40", &[]),
    ];
    let pool = Pool::on_gpus(&files, &machine.library(), "");
    wait_for("the first reading", || {
        devices(&pool)[1]["foreign_bytes"] == json!(50 * GIB)
    });
    assert_eq!(placed(&load(&pool, json!({"model": "fits"}))), ["gpu1"]);
    let (status, response) = pool.admin("POST", "/llm/admin/load", &json!({"model": "large"}));
    assert_eq!(status, 409, "{response}");
    let said = response["error"]["message"].to_string();
    assert!(
        said.contains("60.0 GiB held by processes outside the pool (M2)"),
        "{said}"
    );
}

#[test]
fn a_load_waits_for_memory_that_is_freed_late() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(1, H100, 80 * GIB);
    let late = ["--release-late", "1500"];
    let files = [
        model(&machine, "slow-to-go", 60, "memory_gib: 60", &late),
        model(&machine, "next", 60, "memory_gib: 60, priority: 1", &[]),
    ];
    let pool = Pool::on_gpus(&files, &machine.library(), "");
    assert_eq!(ask(&pool, "slow-to-go").0, 200);
    // The engine of `next` fails if it starts before the memory is free (M4).
    let response = load(&pool, json!({"model": "next"}));
    assert_eq!(response["evicted"][0]["model"], "slow-to-go", "{response}");
    assert!(response["took_ms"].as_u64() >= Some(1400), "{response}");
    assert_eq!(machine.used(0), 60 * GIB);
}

#[test]
fn processes_left_on_a_gpu_by_a_killed_controller_are_killed_and_foreign_ones_are_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(1, H100, 80 * GIB);
    machine.foreign(0, 4242, 5 * GIB);
    let files = [
        model(&machine, "left", 60, "memory_gib: 60", &[]),
        model(&machine, "next", 60, "memory_gib: 60", &[]),
    ];
    let mut pool = Pool::on_gpus(&files, &machine.library(), "");
    assert_eq!(ask(&pool, "left").0, 200);
    let before = pool.engine_pids();
    pool.kill_and_restart();
    wait_for("the orphan's end", || {
        !machine.held(0).iter().any(|(pid, _)| before.contains(pid))
    });
    assert_eq!(ask(&pool, "next").0, 200);
    assert!(machine.held(0).contains(&(4242, 5 * GIB)), "not ours");
}

/// A pool with two GPUs and a single model, which is always hot and loaded.
fn with_hot_model(machine: &Machine) -> Pool {
    let options = "memory_gib: 40, priority: 2";
    let files = [model(machine, "hot", 40, options, &[])];
    let pool = Pool::on_gpus(&files, &machine.library(), "");
    wait_for("the always-hot model", || place_of_hot(machine).is_some());
    pool
}

/// The GPU that has the memory of the hot model.
fn place_of_hot(machine: &Machine) -> Option<usize> {
    (0..2).find(|gpu| machine.used(*gpu) == 40 * GIB)
}

#[test]
fn a_gpu_that_falls_off_the_bus_is_taken_out_of_service_and_its_model_moves() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(2, H100, 80 * GIB);
    let pool = with_hot_model(&machine);
    let on = || place_of_hot(&machine);
    let first = on().expect("loaded");
    machine.lose(first);
    wait_for("the model on the other GPU", || on() == Some(1 - first));
    wait_for("the GPU to be reported as lost", || {
        devices(&pool)[first]
            .to_string()
            .contains("fell off the bus")
    });
    wait_for("the history to tell of it", || {
        let path = "/llm/admin/events?limit=200";
        let (_, events) = pool.admin("GET", path, &Value::Null);
        events.to_string().contains("device_failed")
    });
    wait_for("a response", || ask(&pool, "hot").0 == 200);
}

#[test]
fn an_xid_that_needs_a_reset_disables_the_gpu_and_an_application_xid_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(2, H100, 80 * GIB);
    let files = [model(&machine, "any", 10, "memory_gib: 10", &[])];
    let pool = Pool::on_gpus(&files, &machine.library(), "");
    assert_eq!(devices(&pool).len(), 2);
    machine.xid(0, 31);
    // Events before the watch began are not reported.
    wait_for("the cordon", || {
        machine.xid(1, 48);
        !devices(&pool)[1]["cordon"].is_null()
    });
    assert!(
        devices(&pool)[0]["cordon"].is_null(),
        "Xid 31 is one process's"
    );
    let placed = placed(&load(&pool, json!({"model": "any"})));
    assert_eq!(placed, ["gpu0"]);
    let (status, response) = pool.admin(
        "POST",
        "/llm/admin/devices/uncordon",
        &json!({"device": "gpu1"}),
    );
    assert_eq!(status, 200, "{response}");
}

#[test]
fn a_cordoned_gpu_drains_and_its_always_hot_model_moves() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(2, H100, 80 * GIB);
    let pool = with_hot_model(&machine);
    let on = || place_of_hot(&machine);
    let first = on().expect("loaded");
    let cordon = json!({"device": format!("gpu{first}"), "reason": "new fans", "until": "2h"});
    let (status, response) = pool.admin("POST", "/llm/admin/devices/cordon", &cordon);
    assert_eq!(status, 200, "{response}");
    wait_for("the model on the other GPU", || on() == Some(1 - first));
    let device = &devices(&pool)[first];
    assert!(
        device["cordon"].to_string().contains("new fans"),
        "{device}"
    );
}

#[test]
fn a_configured_memory_that_is_too_small_is_kept_and_the_engines_message_is_returned() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(1, "NVIDIA L4", 24 * GIB);
    let files = [
        model(&machine, "neighbour", 8, "memory_gib: 8", &[]),
        model(&machine, "greedy", 18, "memory_gib: 14, priority: 1", &[]),
    ];
    let pool = Pool::on_gpus(&files, &machine.library(), "");
    assert_eq!(ask(&pool, "neighbour").0, 200);
    // An administrator's value takes precedence: it is not corrected, and the engine's error is reported (M1).
    let (status, response) = ask(&pool, "greedy");
    assert_eq!(status, 503, "{response}");
    assert!(
        response.contains("CUDA out of memory") && response.contains("stays (M1)"),
        "{response}"
    );
}

#[test]
fn the_pool_keeps_serving_with_its_last_readings_while_the_driver_is_unresponsive() {
    let folder = tempfile::tempdir().expect("a folder");
    let machine = Machine::new(folder.path()).gpus(2, H100, 80 * GIB);
    let files = [model(&machine, "any", 10, "memory_gib: 10", &[])];
    let pool = Pool::on_gpus(&files, &machine.library(), "");
    assert_eq!(ask(&pool, "any").0, 200);
    machine.stop_driver();
    wait_for("old figures to be reported as old", || {
        devices(&pool)
            .iter()
            .all(|device| !device["stale"].is_null())
    });
    assert_eq!(ask(&pool, "any").0, 200);
    machine.start_driver();
    wait_for("new figures", || {
        devices(&pool)
            .iter()
            .all(|device| device["stale"].is_null())
    });
}
