//! Engines that outlive their service (D2): the next service finds them after a `kill -9` and continues their timers. Also other
//! leftovers that it may find.

use std::fs;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use nix::sys::signal::Signal;
use support::family::{Family, asks, chat, is_alive, kill, reasons, shown, stub, told};
use support::service::{Pool, wait_for};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Time limit of a start. An unoptimised program is slow on a busy machine; waiting for a lost engine would take five seconds.
const SOON: Duration = Duration::from_secs(if cfg!(debug_assertions) { 4 } else { 1 });

fn time(value: &serde_json::Value) -> DateTime<Utc> {
    let text = value
        .as_str()
        .unwrap_or_else(|| panic!("a time, not {value}"));
    DateTime::parse_from_rfc3339(text).unwrap().to_utc()
}

/// The replica of each model, once all are listed.
fn replicas(pool: &Pool) -> [serde_json::Value; 3] {
    let mut replicas = NAMES.map(|_| serde_json::Value::Null);
    wait_for("a replica of each", || {
        replicas = NAMES.map(|name| shown(pool, name)["replicas"][0]["replica"].clone());
        replicas.iter().all(serde_json::Value::is_string)
    });
    replicas
}

#[test]
fn after_kill_9_under_load_all_engines_stay_hot_and_respond_soon() {
    let talk = ["--tokens", "600", "--token-ms", "20"];
    let models = NAMES.map(|name| stub(name, &talk));
    let mut pool = Pool::that_adopts(&models, "pool: {keep_hot: 5m}\n", "1m");
    let streams = NAMES.map(|name| pool.stream("/v1/chat/completions", &chat(name, true)));
    for stream in &streams {
        wait_for("the first chunk", || stream.text().contains("data: "));
    }
    let family = Family::new(&pool);
    let before = replicas(&pool);
    pool.kill();
    for stream in &streams {
        assert!(!stream.whole().contains("[DONE]"), "cut with its service");
    }
    let began = SystemTime::now();
    pool.restart();
    let again = NAMES.map(|name| pool.stream("/v1/chat/completions", &chat(name, true)));
    for stream in &again {
        wait_for("the first chunk", || stream.text().contains("data: "));
    }
    let took = began.elapsed().unwrap();
    println!("start and first answers in {took:?}");
    assert!(took < SOON, "{took:?}");
    assert_eq!(pool.engine_pids(), family.engines, "nothing was started");
    assert_eq!(replicas(&pool), before);
    let adopted = told(&pool, "adopt", 3);
    assert_eq!(adopted.len(), 3, "{adopted:?}");
    assert!(adopted[0].contains("found ready for"), "{adopted:?}");
    // Their memory is reserved, and they are stopped like any other engine.
    drop(again);
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(20)));
    wait_for("everything to be gone", || family.alive().is_empty());
}

#[test]
fn keep_hot_continues_across_the_restart() {
    let mut pool = Pool::that_adopts(&[stub("a", &[])], "pool: {keep_hot: 10m}\n", "1m");
    assert_eq!(asks(&pool, "a").0, 200);
    let expires = |pool: &Pool| {
        let mut shown_at = serde_json::Value::Null;
        wait_for("the request to be over", || {
            shown_at = shown(pool, "a")["replicas"][0]["expires_at"].clone();
            !shown_at.is_null()
        });
        time(&shown_at)
    };
    let before = expires(&pool);
    // The journal records it shortly after the replica is ready.
    let mut ready_at = None;
    wait_for("the journal to tell since when it is ready", || {
        let record = pool.journal().into_iter().next();
        let at_ms = record.and_then(|record| record["ready_at_ms"].as_i64());
        ready_at = at_ms.and_then(DateTime::from_timestamp_millis);
        ready_at.is_some()
    });
    let ready_at = ready_at.expect("just told");
    pool.kill_and_restart();
    let after = expires(&pool);
    let moved = (after - before).abs();
    // Guardians receive the time of last use every two seconds.
    assert!(moved < chrono::TimeDelta::milliseconds(2_500), "{moved}");
    let same = time(&shown(&pool, "a")["replicas"][0]["ready_at"]);
    assert!((same - ready_at).abs() < chrono::TimeDelta::milliseconds(200));
}

#[test]
fn the_log_of_an_adopted_engine_keeps_its_earlier_lines() {
    let mut pool = Pool::that_adopts(&[stub("a", &["--stderr", "first words"])], "", "1m");
    assert_eq!(asks(&pool, "a").0, 200);
    pool.kill_and_restart();
    pool.wait_for_engine_log("a", &["first words"]);
}

#[test]
fn a_load_ordered_by_an_administrator_is_not_repeated_after_a_restart() {
    let mut pool = Pool::that_adopts(&[stub("a", &[])], "", "1m");
    let (key, body) = (pool.admin_key(), r#"{"model":"a","replicas":2}"#);
    let (status, text, _) = pool.request("POST", "/llm/admin/load", body, Some(&key));
    assert_eq!(status, 200, "{text}");
    let engines = pool.engine_pids();
    assert_eq!(engines.len(), 2);
    pool.kill_and_restart();
    assert_eq!(pool.engine_pids(), engines);
    assert_eq!(told(&pool, "adopt", 2).len(), 2);
    let loads = told(&pool, "load", 2);
    assert_eq!(loads.len(), 2, "before the restart, and none after it");
}

#[test]
fn a_crash_of_an_adopted_engine_is_noticed_and_reported() {
    let mut pool = Pool::that_adopts(&[stub("a", &[])], "", "1m");
    assert_eq!(asks(&pool, "a").0, 200);
    pool.kill_and_restart();
    kill(pool.engine_pids()[0], Signal::SIGKILL);
    wait_for("the crash", || {
        reasons(&pool, "crash")
            .iter()
            .any(|reason| reason.contains("signal 9"))
    });
    // Its file is removed once the end has been reported.
    wait_for("the journal to be empty", || pool.journal().is_empty());
}

#[test]
fn a_frozen_adopted_engine_is_found_like_any_other() {
    let quick = "pool: {heartbeat: 300ms, heartbeat_timeout: 300ms, keep_hot: 10m}\n";
    let mut pool = Pool::that_adopts(&[stub("a", &[])], quick, "1m");
    assert_eq!(asks(&pool, "a").0, 200);
    let family = Family::new(&pool);
    pool.kill_and_restart();
    told(&pool, "adopt", 1);
    for &engine in &family.engines {
        kill(engine, Signal::SIGSTOP);
    }
    let why = told(&pool, "crash", 1).concat();
    assert!(why.contains("answered no health probe for"), "{why}");
    wait_for("its end", || family.alive().is_empty());
}

#[test]
fn with_stop_the_next_service_starts_without_engines() {
    let mut pool = Pool::with_models(&[stub("a", &[])], "");
    assert_eq!(asks(&pool, "a").0, 200);
    let family = Family::new(&pool);
    pool.kill_and_restart();
    assert!(family.alive().is_empty(), "before it serves");
    assert!(pool.journal().is_empty());
    // Meant for adoption by the service that started it, and stopped by the next one.
    let mut pool = Pool::that_adopts(&[stub("a", &[])], "", "1m");
    assert_eq!(asks(&pool, "a").0, 200);
    let family = Family::new(&pool);
    pool.kill();
    pool.set_env("MODEL_POOL__POOL__ON_RESTART", "stop");
    pool.restart();
    assert!(family.alive().is_empty(), "before it serves");
    let gone = told(&pool, "gone", 1);
    assert!(gone[0].contains("pool.on_restart is stop"), "{gone:?}");
}

#[test]
fn a_changed_model_file_replaces_the_adopted_engine() {
    let models = [stub("kept", &[]), stub("changed", &[]), stub("gone", &[])];
    let mut pool = Pool::that_adopts(&models, "", "1m");
    for name in ["kept", "changed", "gone"] {
        assert_eq!(asks(&pool, name).0, 200);
    }
    let before = Family::new(&pool);
    pool.kill();
    let (file, text) = stub("changed", &["--tokens", "7"]);
    fs::write(pool.models().join(file), text).unwrap();
    fs::remove_file(pool.models().join("gone.yaml")).unwrap();
    // Changed priorities and times are not a reason to stop an engine.
    let (file, text) = stub("kept", &[]);
    let text = text.replace("{memory_gib: 0.5}", "{memory_gib: 0.5, priority: 1}");
    fs::write(pool.models().join(file), text).unwrap();
    pool.restart();
    assert_eq!(pool.engine_pids(), before.engines[..1]);
    let reasons = told(&pool, "gone", 2);
    let told = |words: &str| reasons.iter().any(|reason| reason.contains(words));
    assert!(told("other arguments now"), "{reasons:?}");
    assert!(told("no longer in the catalogue"), "{reasons:?}");
    assert!(!before.engines[1..].iter().any(|pid| is_alive(*pid)));
    assert_eq!(asks(&pool, "changed").0, 200);
}

#[test]
fn an_adopted_engine_that_no_longer_fits_is_stopped_and_memory_is_not_given_twice() {
    let models = NAMES.map(|name| stub(name, &[]));
    let mut pool = Pool::that_adopts(&models, "", "1m");
    for name in NAMES {
        assert_eq!(asks(&pool, name).0, 200);
    }
    pool.kill();
    // Slightly more than two of them need.
    pool.set_env(
        "MODEL_POOL__INVENTORY__DEVICES",
        r#"[{"name": "gpu0", "memory": "1200MiB"}]"#,
    );
    pool.restart();
    wait_for("the third to be gone", || pool.engine_pids().len() == 2);
    let adopted = told(&pool, "adopt", 3);
    let misfits = adopted
        .iter()
        .filter(|reason| reason.contains("(M3)"))
        .count();
    assert_eq!((adopted.len(), misfits), (3, 1), "{adopted:?}");
}

/// A pool that was killed with an engine of each model, each with a grandchild.
fn killed_with_grandchildren() -> (Pool, Family) {
    let models = NAMES.map(|name| stub(name, &["--spawn-grandchild"]));
    let mut pool = Pool::that_adopts(&models, "", "1m");
    for name in NAMES {
        assert_eq!(asks(&pool, name).0, 200);
    }
    let family = Family::new(&pool);
    pool.kill();
    (pool, family)
}

#[test]
fn frozen_engines_are_stopped_and_dead_ones_reported() {
    let (mut pool, family) = killed_with_grandchildren();
    kill(family.engines[0], Signal::SIGSTOP);
    kill(family.engines[1], Signal::SIGKILL);
    wait_for("its end", || !is_alive(family.engines[1]));
    let began = SystemTime::now();
    pool.restart();
    println!(
        "with a frozen engine the start took {:?}",
        began.elapsed().unwrap()
    );
    assert_eq!(pool.engine_pids(), family.engines[2..]);
    let gone = told(&pool, "gone", 1);
    assert!(
        gone[0].contains("health route /health failed for 5 s"),
        "{gone:?}"
    );
    let crash = told(&pool, "crash", 1);
    assert!(crash[0].contains("signal 9"), "{crash:?}");
    let left = family.alive_without(&Family::new(&pool));
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_engine_whose_guardian_is_frozen_or_dead_is_stopped() {
    let (mut pool, family) = killed_with_grandchildren();
    kill(family.guardians[0], Signal::SIGSTOP);
    kill(family.guardians[1], Signal::SIGKILL);
    pool.restart();
    assert_eq!(pool.engine_pids(), family.engines[2..]);
    let gone = told(&pool, "gone", 1);
    assert!(
        gone.iter().any(|reason| reason.contains("did not answer")),
        "{gone:?}"
    );
    let left = family.alive_without(&Family::new(&pool));
    assert!(left.is_empty(), "{left:?}");
}

/// An unrelated process in a separate session.
struct Bystander(std::process::Child);

impl Bystander {
    fn start() -> Bystander {
        let mut command = std::process::Command::new("sleep");
        Bystander(command.arg("600").spawn().unwrap())
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn reused_process_ids_are_not_mistaken_for_engines() {
    let mut pool = Pool::that_adopts(&[stub("a", &[]), stub("b", &[])], "", "1m");
    assert_eq!(asks(&pool, "a").0, 200);
    assert_eq!(asks(&pool, "b").0, 200);
    let family = Family::new(&pool);
    pool.kill();
    let (other, young) = (Bystander::start(), Bystander::start());
    let started = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let started: u64 = fields.split_whitespace().nth(19).unwrap().parse().unwrap();
        started
    };
    let rewrite = |nth: usize, pid: u32, started: u64| {
        let paths = fs::read_dir(pool.data().join("engines")).unwrap().flatten();
        let mut paths: Vec<_> = paths.map(|entry| entry.path()).collect();
        paths.sort();
        let text = fs::read_to_string(&paths[nth]).unwrap();
        let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
        for who in ["guardian", "engine"] {
            record[who]["pid"] = pid.into();
            record[who]["started"] = started.into();
        }
        fs::write(&paths[nth], record.to_string()).unwrap();
    };
    // The first has the process id with another start time; the second has both, but not the token.
    let (one, two) = (other.0.id(), young.0.id());
    rewrite(0, one, started(one) - 1);
    rewrite(1, two, started(two));
    fs::write(pool.data().join("engines/r99.json"), "no JSON").unwrap();
    pool.restart();
    assert!(is_alive(one) && is_alive(two), "left alone");
    // The real guardians are in our folder, and their files have been removed.
    assert!(family.alive().is_empty());
    let told = told(&pool, "adopt", 3).join("\n");
    assert!(told.contains("now belongs to another process"), "{told}");
    assert!(told.contains("r99.json cannot be read"), "{told}");
    assert!(pool.data().join("engines/r99.json").exists(), "left alone");
    assert_eq!(asks(&pool, "a").0, 200);
}

#[test]
fn a_second_service_on_the_same_data_folder_is_refused() {
    let pool = Pool::with_models(&[stub("a", &[])], "");
    let config = format!("state: {{dir: {:?}}}\n", pool.data());
    let (status, said) = Pool::refused(&config);
    assert_eq!(status, Some(1));
    let line = said.lines().last().unwrap_or_default();
    let holder = format!("(process {})", pool.pid());
    assert!(line.starts_with("model-pool: the data folder"), "{said}");
    assert!(
        line.contains(&holder) && line.contains("--takeover"),
        "{said}"
    );
    assert_eq!(asks(&pool, "a").0, 200, "the first one continues");
}

#[test]
fn twenty_engines_are_adopted_quickly() {
    let names: Vec<String> = (0..20).map(|number| format!("m{number:02}")).collect();
    let models: Vec<_> = names.iter().map(|name| stub(name, &[])).collect();
    let mut pool = Pool::that_adopts(&models, "", "1m");
    for name in &names {
        assert_eq!(asks(&pool, name).0, 200);
    }
    let family = Family::new(&pool);
    pool.kill();
    let began = SystemTime::now();
    pool.restart();
    let took = began.elapsed().unwrap();
    println!("start with 20 engines to adopt in {took:?}");
    assert_eq!(pool.engine_pids(), family.engines);
    assert!(took < SOON, "{took:?}");
    for name in &names {
        assert_eq!(asks(&pool, name).0, 200);
    }
    assert_eq!(pool.engine_pids(), family.engines, "all were hot");
}

/// A state folder whose socket paths exceed the system's limit.
#[test]
fn an_engine_in_a_folder_with_a_long_path_is_adopted() {
    let home = tempfile::tempdir().unwrap();
    let state = home.path().join("d".repeat(110)).display().to_string();
    let stub = support::stub::stub_engine().display().to_string();
    let text = format!(
        "engine_config: {{model_id: m, type: CommandEngine, listen: socket, command: [{stub:?}, --socket, \"{{{{ socket }}}}\", --model, m]}}\npool_config: {{memory_gib: 1}}\n"
    );
    let env = [
        ("MODEL_POOL__STATE__DIR", state.as_str()),
        ("MODEL_POOL__POOL__ON_RESTART", "adopt"),
        ("MODEL_POOL__POOL__ADOPT_WITHIN", "1m"),
    ];
    let mut pool = Pool::with_env(&[("m.yaml".to_owned(), text)], "", &env);
    let (status, body) = pool.post("/v1/chat/completions", &chat("m", false));
    assert_eq!(status, 200, "{body}");
    pool.kill_and_restart();
    let (status, body) = pool.post("/v1/chat/completions", &chat("m", false));
    assert_eq!(status, 200, "{body}");
    let key = fs::read_to_string(format!("{state}/admin.key")).unwrap();
    let path = "/llm/admin/events?kind=adopt";
    // The history is written after the adoption, and apart from requests.
    wait_for("the adoption in the history", || {
        let (_, events) = pool.call(Some(key.trim()), "GET", path, &serde_json::Value::Null);
        events.to_string().contains("found ready for")
    });
}
