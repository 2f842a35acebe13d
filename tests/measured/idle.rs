//! The idle program: how often its threads wake, and how much of its executable stays in memory. Frequent wakes keep a processor
//! from reaching deeper sleep states, and the cost of each engine is multiplied by the engines of a machine.

use std::time::Duration;

use support::net::{chat, stub};
use support::service::{Pool, wait_for};

/// Long enough to average over short-term effects.
const WINDOW: Duration = Duration::from_secs(3);
/// Other processes can only add wakes, so the lowest count is used.
const WINDOWS: usize = 3;
/// With one engine. A dozen periodic timers caused 31 wakes per second; a quarter of the remaining ones belong to the evening's
/// scheduler, which wakes twice a second without a configuration option.
const WAKES_MAX: f64 = 28.0;
const WAKES_OF_AN_ENGINE_MAX: f64 = 5.0;

/// Voluntary context switches of a process's threads since their start.
fn wakes(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("threads");
    let statuses = threads.flatten().filter_map(|thread| {
        // A thread may have ended since.
        std::fs::read_to_string(thread.path().join("status")).ok()
    });
    statuses
        .map(|status| field(&status, "voluntary_ctxt_switches:"))
        .sum()
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    value.unwrap_or_else(|| panic!("{name} in {status}"))
}

/// The lowest number of wakes per second.
fn wakes_a_second(pid: u32) -> f64 {
    let window = || {
        let before = wakes(pid);
        std::thread::sleep(WINDOW);
        wakes(pid).saturating_sub(before) as f64 / WINDOW.as_secs_f64()
    };
    (0..WINDOWS).map(|_| window()).fold(f64::MAX, f64::min)
}

#[test]
fn an_idle_pool_wakes_a_few_times_a_second_and_each_engine_adds_little() {
    let _alone = super::ALONE.blocking_lock();
    let models = ["a", "b"].map(|name| stub(name, &[]));
    // Fixes the number of workers: more workers wake one another more often.
    let pool = Pool::with_env(&models, "", &[("TOKIO_WORKER_THREADS", "2")]);
    let with_one_more = |model: &str| {
        let (status, text, _) =
            pool.request("POST", "/v1/chat/completions", &chat(model, false), None);
        assert_eq!(status, 200, "{text}");
        wakes_a_second(pool.pid())
    };
    let (one, two) = (with_one_more("a"), with_one_more("b"));
    assert_eq!(pool.engine_pids().len(), 2);
    println!("{one:.1} wakes a second with one engine, {two:.1} with two");
    assert!(one <= WAKES_MAX, "{one}");
    assert!(two - one <= WAKES_OF_AN_ENGINE_MAX, "{one}, {two}");
}

#[test]
fn pages_of_the_program_file_used_only_at_start_are_unmapped() {
    let _alone = super::ALONE.blocking_lock();
    let pool = Pool::demo();
    let of_files = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", pool.pid()));
        field(&status.expect("it runs"), "RssFile:")
    };
    let mut most = of_files();
    wait_for("half of the pages to be unmapped", || {
        most = most.max(of_files());
        of_files() <= most / 2
    });
    let (status, text, _) = pool.request("GET", "/llm/docs/", "", None);
    assert_eq!(status, 200, "{text}");
}
