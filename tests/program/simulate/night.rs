//! Replays with the configuration of a pool whose engines sleep and whose evenings are cleaned up.

use serde_json::Value;

use super::{Rig, errors, text};

/// A model of 10 GiB that sleeps by a command, and leaves after a minute.
fn sleepy() -> (Rig, String) {
    let rig = Rig::new();
    rig.file("models/sleepy.yaml", "engine_config: {model_id: sleepy, type: CommandEngine, command: [sleep, '{{ port }}'], sleep_command: ['true'], wake_command: ['true']}\npool_config: {memory_gib: 10, keep_hot: 1m}\n");
    rig.file("reference.json", "{}");
    let pool = rig.file(
        "pool.yaml",
        "catalog: {models_dir: models, model_reference: reference.json}\ninventory: {provider: fixed, devices: [{name: gpu0, memory: 80GiB}]}\nevening: {timezone: Europe/Berlin}\n",
    );
    let pool = text(&pool).to_owned();
    (rig, pool)
}

/// A request every ten minutes, from noon in Berlin for the given number of hours.
fn dated(rig: &Rig, hours: u64) -> String {
    let line = |nth: u64| format!("{},sleepy,1000\n", 1_768_388_400 + nth * 600);
    let lines: String = (0..hours * 6).map(line).collect();
    let file = rig.file("trace.csv", &format!("time,model,service_ms\n{lines}"));
    text(&file).to_owned()
}

fn number(report: &Value, key: &str) -> f64 {
    report[key].as_f64().expect("a number")
}

#[test]
fn a_replay_uses_sleep_as_far_as_the_configuration_and_the_host_memory_allow() {
    let (rig, pool) = sleepy();
    let trace = dated(&rig, 6);
    let with = |more: &[&str]| {
        let own: &[&str] = &["--pool", &pool];
        let mut found = rig.reports(&trace, &[own, more].concat());
        found["reports"][0].take()
    };
    let asleep = with(&["--host-memory", "100GiB"]);
    assert_eq!(asleep["loads"], 36);
    assert_eq!(asleep["wakes"], 35, "all but the first");
    assert_eq!(asleep["evictions"]["sleep"], 35);
    // It sleeps for about nine of ten minutes.
    let held = number(&asleep, "host_gib_seconds") / 3600.0;
    assert!((40.0..55.0).contains(&held), "{held}");
    let empty = number(&asleep, "device_seconds_empty");
    assert!(empty > 5.0 * 3600.0 * 0.8, "{empty}");
    // Without room for it: too small a machine, or too small a share.
    for more in [
        &["--host-memory", "12GiB"][..],
        &["--host-memory", "100GiB", "--set", "parking.host_memory=0%"],
    ] {
        let stopped = with(more);
        assert_eq!(stopped["wakes"], 0, "{more:?}");
        assert_eq!(stopped["evictions"]["keep_hot"], 35, "{more:?}");
        let ratio = number(&stopped, "wait_mean_ms") / number(&asleep, "wait_mean_ms");
        assert!(ratio > 3.0, "{more:?}: {ratio}");
    }
    let said = rig.complaint(&trace, &["--pool", &pool, "--host-memory", "plenty"]);
    assert!(
        said.contains("--host-memory `plenty` is not an amount"),
        "{said}"
    );
}

#[test]
fn the_configured_evening_cleanup_empties_the_replayed_pool_at_its_time_of_day() {
    let (rig, pool) = sleepy();
    let trace = dated(&rig, 36);
    let with = |more: &[&str]| {
        let own: &[&str] = &[
            "--pool",
            &pool,
            "--host-memory",
            "1GiB",
            "--keep-hot",
            "30m",
        ];
        let output = rig.simulate(&trace, &[own, more].concat());
        assert!(output.status.success(), "{}", errors(&output));
        let table = String::from_utf8(output.stdout.clone()).expect("UTF-8");
        (table, errors(&output))
    };
    let (table, notices) = with(&[]);
    assert!(table.contains("left because: cleanup 2"), "{table}");
    assert!(
        notices.contains("the pool is emptied 2 times (evening.cleanup); the replay begins on Wed 2026-01-14 12:00 CET;"),
        "{notices}"
    );
    // At 21:00 the last request was seconds ago: the model is loaded again by the next one.
    let (table, notices) = with(&["--set", "evening.cleanup=null"]);
    assert!(
        !table.contains("cleanup") && !notices.contains("emptied"),
        "{table}"
    );
    let (table, _) = with(&["--set", "evening.timezone=America/Chicago"]);
    assert!(table.contains("left because: cleanup 1"), "{table}");
}

#[test]
fn a_workload_without_dates_begins_at_midnight() {
    let (rig, pool) = sleepy();
    let own: &[&str] = &["--pool", &pool, "--unknown", "add"];
    let output = rig.simulate("zipf:requests=500,days=2,models=4", own);
    assert!(output.status.success(), "{}", errors(&output));
    let notices = errors(&output);
    assert!(
        notices.contains("the pool is emptied 2 times") && notices.contains("begins on Mon 2026-01-05 00:00 CET, which is assumed because the workload has no dates"),
        "{notices}"
    );
}
