//! Guardians of engines with the real program: the fate of an engine and its descendants after the service, the guardian or the
//! engine itself is killed.

use std::fs;
use std::time::{Duration, SystemTime};

use nix::sys::signal::Signal;
use support::family::{Family, after, asks, is_alive, kill, pid_in, reasons, stub};
use support::service::{Pool, wait_for};

/// Two processes that hide: the first left the session and cleared its environment, the second is orphaned. Their process ids are
/// written to the files.
fn hidden(home: &std::path::Path) -> String {
    let home = home.display();
    format!(
        "env -i setsid sh -c 'echo $$ > {home}/one; exec sleep 600' & (setsid sh -c 'echo $$ > {home}/two; exec sleep 600' &);"
    )
}

fn hidden_pids(home: &std::path::Path) -> [u32; 2] {
    ["one", "two"].map(|name| {
        let file = home.join(name);
        wait_for("a process that hides", || pid_in(&file).is_some());
        pid_in(&file).unwrap()
    })
}

#[test]
fn with_stop_no_process_remains_after_the_service_was_killed() {
    let home = tempfile::tempdir().unwrap();
    let model = after("hiding", &hidden(home.path()), "--ignore-term");
    let mut pool = Pool::with_models(&[model], "");
    assert_eq!(asks(&pool, "hiding").0, 200);
    let pids = hidden_pids(home.path());
    let family = Family::new(&pool);
    assert!(family.alive().len() >= 3);
    let killed = SystemTime::now();
    pool.kill();
    wait_for("all to be gone", || {
        family.alive().is_empty() && !pids.into_iter().any(is_alive)
    });
    let took = killed.elapsed().unwrap();
    println!("all gone after {took:?}");
    assert!(took < Duration::from_secs(5), "{took:?}");
    wait_for("the journal to be empty", || pool.journal().is_empty());
}

#[test]
fn an_unload_also_removes_hidden_descendants() {
    let home = tempfile::tempdir().unwrap();
    let model = after("hiding", &hidden(home.path()), "");
    let pool = Pool::with_models(&[model], "");
    assert_eq!(asks(&pool, "hiding").0, 200);
    let pids = hidden_pids(home.path());
    let family = Family::new(&pool);
    let key = pool.admin_key();
    let body = r#"{"model":"hiding","now":true}"#;
    let (status, text, _) = pool.request("POST", "/llm/admin/unload", body, Some(&key));
    assert_eq!(status, 200, "{text}");
    assert!(!pids.into_iter().any(is_alive));
    wait_for("its guardian to leave", || family.alive().is_empty());
    assert!(pool.journal().is_empty());
}

#[test]
fn sigterm_ends_engines_and_guardians_even_if_engines_may_be_adopted() {
    let models = [stub("a", &["--spawn-grandchild"]), stub("b", &[])];
    let mut pool = Pool::that_adopts(&models, "", "1h");
    assert_eq!(asks(&pool, "a").0, 200);
    assert_eq!(asks(&pool, "b").0, 200);
    let family = Family::new(&pool);
    assert_eq!(family.guardians.len(), 2);
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(20)), "it exits on its own");
    wait_for("guardians to leave", || family.alive().is_empty());
    assert!(pool.journal().is_empty());
    let sockets = fs::read_dir(pool.data().join("run")).unwrap();
    let left: Vec<_> = sockets.flatten().map(|entry| entry.file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn engines_that_are_not_adopted_in_time_are_stopped() {
    let model = stub("lonely", &["--spawn-grandchild"]);
    let mut pool = Pool::that_adopts(&[model], "", "1s");
    assert_eq!(asks(&pool, "lonely").0, 200);
    let family = Family::new(&pool);
    pool.kill();
    let killed = SystemTime::now();
    wait_for("the guardian to give up", || family.alive().is_empty());
    let took = killed.elapsed().unwrap();
    assert!(took >= Duration::from_millis(900), "{took:?}");
    assert!(pool.journal().is_empty(), "nothing is left to be found");
}

#[test]
fn a_guardian_that_receives_sigterm_stops_its_engine_if_no_service_is_running() {
    let model = stub("told", &["--spawn-grandchild"]);
    let mut pool = Pool::that_adopts(&[model], "", "1h");
    assert_eq!(asks(&pool, "told").0, 200);
    let family = Family::new(&pool);
    // The service decides as long as it runs.
    kill(family.guardians[0], Signal::SIGTERM);
    assert_eq!(asks(&pool, "told").0, 200);
    pool.kill();
    wait_for("the guardian to end", || family.alive().is_empty());
    assert!(pool.journal().is_empty());
}

#[test]
fn an_engine_still_loading_is_ended_when_the_service_is_killed() {
    let model = stub("slow", &["--ready-after-ms", "600000"]);
    let mut pool = Pool::that_adopts(&[model], "", "1h");
    let _waits = pool.stream("/v1/chat/completions", &support::family::chat("slow", true));
    wait_for("the engine to start", || pool.engine_pids().len() == 1);
    let family = Family::new(&pool);
    pool.kill();
    wait_for("the half-loaded engine to be gone", || {
        family.alive().is_empty()
    });
}

#[test]
fn killing_a_guardian_ends_its_engine_with_all_descendants() {
    let home = tempfile::tempdir().unwrap();
    let model = after("orphaned", &hidden(home.path()), "--spawn-grandchild");
    let pool = Pool::with_models(&[model], "");
    assert_eq!(asks(&pool, "orphaned").0, 200);
    let [bare, marked] = hidden_pids(home.path());
    let family = Family::new(&pool);
    let group = fs::read_to_string(format!("/proc/{bare}/cgroup")).unwrap_or_default();
    kill(family.guardians[0], Signal::SIGKILL);
    wait_for("all of it to be gone", || family.alive().is_empty());
    wait_for("the crash to be reported", || {
        let reasons = reasons(&pool, "crash");
        reasons.iter().any(|reason| reason.contains("its guardian"))
    });
    assert!(!is_alive(marked));
    // A process without any mark is found only by its control group, if the system supports them.
    if group.contains("/model-pool-") {
        assert!(!is_alive(bare))
    } else {
        kill(bare, Signal::SIGKILL)
    }
    println!("control groups: {group}");
    // Its file is removed once the end has been reported.
    wait_for("the journal to be empty", || pool.journal().is_empty());
}

#[test]
fn a_frozen_guardian_is_killed_with_its_engine_when_the_engine_is_unloaded() {
    let pool = Pool::with_models(&[stub("held", &[])], "");
    assert_eq!(asks(&pool, "held").0, 200);
    let family = Family::new(&pool);
    kill(family.guardians[0], Signal::SIGSTOP);
    let body = r#"{"model":"held","now":true}"#;
    let key = pool.admin_key();
    let (status, text, _) = pool.request("POST", "/llm/admin/unload", body, Some(&key));
    assert_eq!(status, 200, "{text}");
    wait_for("both to be gone", || family.alive().is_empty());
    pool.wait_for_log("a guardian does not respond");
    assert_eq!(asks(&pool, "held").0, 200, "it can be loaded again");
}

#[test]
fn a_gigabyte_of_unread_output_uses_bounded_disk_and_causes_no_stall() {
    let home = tempfile::tempdir().unwrap();
    let (go, done) = (home.path().join("go"), home.path().join("done"));
    nix::unistd::mkfifo(&go, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let line = "x".repeat(999);
    let script = format!(
        "(read word < {}; yes {line} | head -c 1000000000; echo flood > {}) &",
        go.display(),
        done.display()
    );
    let model = after("loud", &script, "");
    let mut pool = Pool::that_adopts(&[model], "", "5m");
    assert_eq!(asks(&pool, "loud").0, 200);
    let family = Family::new(&pool);
    pool.kill();
    let began = SystemTime::now();
    fs::write(&go, "go\n").unwrap();
    // With a time limit: a pipe that is not drained would block its end.
    let mut last = 0;
    while !done.exists() {
        let size = bytes_of_logs(&pool);
        assert!(size <= 2 * (16 << 20), "{size} bytes of logs");
        last = last.max(size);
        assert!(
            began.elapsed().unwrap() < Duration::from_secs(300),
            "it stalls"
        );
        std::thread::park_timeout(Duration::from_millis(50));
    }
    println!(
        "1 GB in {:?}, at most {last} bytes on disk",
        began.elapsed().unwrap()
    );
    assert!(last > 16 << 20, "the newest output is kept");
    let memory = resident_kib(family.guardians[0]);
    println!("the guardian holds {memory} KiB of private memory");
    assert!(memory < 16 << 10, "{memory} KiB");
    pool.restart();
    assert_eq!(pool.engine_pids(), family.engines, "adopted");
    assert_eq!(asks(&pool, "loud").0, 200);
}

fn bytes_of_logs(pool: &Pool) -> u64 {
    let files = fs::read_dir(pool.data().join("logs")).unwrap().flatten();
    let sizes = files.filter_map(|file| Some(file.metadata().ok()?.len()));
    sizes.sum()
}

/// Anonymous memory only: all guardians share the program's pages.
fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon"));
    let value = line.unwrap().split_whitespace().nth(1).unwrap();
    value.parse().unwrap()
}

#[test]
fn a_guardian_started_by_hand_explains_its_purpose() {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_model-pool"))
        .arg("guardian")
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("model-pool serve"), "{said}");
}

/// CPU time of a process in hundredths of a second.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<u64> = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|field| field.parse().unwrap())
        .collect();
    fields.iter().sum()
}

#[test]
fn fifty_idle_engines_cost_next_to_nothing() {
    let names: Vec<String> = (0..50).map(|number| format!("m{number:02}")).collect();
    let models: Vec<_> = names
        .iter()
        .map(|name| {
            let (file, text) = stub(name, &[]);
            (file, text.replace("memory_gib: 0.5", "memory_gib: 0.25"))
        })
        .collect();
    let pool = Pool::with_models(&models, "");
    for name in &names {
        assert_eq!(asks(&pool, name).0, 200);
    }
    let family = Family::new(&pool);
    let watched = || -> (u64, u64) {
        let guardians = family.guardians.iter().map(|pid| ticks(*pid)).sum();
        (ticks(pool.pid()), guardians)
    };
    let window = Duration::from_secs(6);
    let began = SystemTime::now();
    let before = watched();
    while began.elapsed().unwrap() < window {
        std::thread::park_timeout(window - began.elapsed().unwrap().min(window));
    }
    let after = watched();
    let share = |ticks: u64| ticks as f64 / 100.0 / window.as_secs_f64() * 100.0;
    let (service, guardians) = (share(after.0 - before.0), share(after.1 - before.1));
    println!("50 engines: service {service:.2} %, all guardians {guardians:.2} % of a core");
    // For an unoptimised build on a shared machine.
    let (most, most_of_guardians) = if cfg!(debug_assertions) {
        (15.0, 2.0)
    } else {
        (5.0, 0.5)
    };
    assert!(
        service < most && guardians < most_of_guardians,
        "{service} {guardians}"
    );
}
