//! `simulate` with a pool's configuration and history: keys set on the command line, alone and with resampled days, and models that
//! were never measured.

use std::path::Path;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};

use super::{Rig, errors, text};

const LOAD: &str = "diurnal:requests=4000,days=5,models=12";

/// A pool with one device and no models.
fn configured() -> (Rig, String) {
    let rig = Rig::new();
    let pool = rig.file(
        "pool.yaml",
        "catalog: {models_dir: models, model_reference: reference.json}\ninventory: {provider: fixed, devices: [{name: gpu0, memory: 80GiB}]}\n",
    );
    rig.file("reference.json", "{}");
    std::fs::create_dir(rig.folder.path().join("models")).expect("created");
    let pool = text(&pool).to_owned();
    (rig, pool)
}

#[test]
fn a_key_set_on_the_command_line_changes_the_replay() {
    let (rig, pool) = configured();
    let loads = |more: &[&str]| {
        let own: &[&str] = &["--pool", &pool];
        let found = rig.reports(LOAD, &[own, more].concat());
        found["reports"][0]["loads"].as_u64().expect("a number")
    };
    let as_configured = loads(&[]);
    assert!(loads(&["--set", "pool.keep_hot=1m"]) > as_configured);
    // The last of two values of a key counts, and keys do not hide each other.
    let both = ["--set", "pool.keep_hot=1m", "--set", "pool.keep_hot=10m"];
    assert_eq!(loads(&both), as_configured);
    let two = ["--set", "pool.policy=lru", "--set", "pool.keep_hot=1m"];
    assert!(loads(&two) > loads(&["--set", "pool.policy=lru"]));
}

#[test]
fn an_invalid_key_set_on_the_command_line_is_an_error() {
    let (rig, pool) = configured();
    for (set, expected) in [
        ("keep_hot=1m", "is not of the form pool.keep_hot=30m"),
        ("pool.keep_hot", "is not of the form pool.keep_hot=30m"),
        ("pool.absent=1m", "names no key of the configuration"),
        ("pool.keep_hot=soon", "`soon` is not a duration"),
    ] {
        let complaint = rig.complaint(LOAD, &["--pool", &pool, "--set", set]);
        assert!(complaint.contains(expected), "{complaint}");
    }
    let complaint = rig.complaint(LOAD, &["--set", "pool.keep_hot=1m"]);
    assert!(complaint.contains("--pool"), "{complaint}");
}

#[test]
fn a_key_and_a_priority_are_compared_with_the_configured_pool_on_resampled_days() {
    let (rig, pool) = configured();
    // Additional loads caused by the change: the minimum and maximum over the resampled workloads.
    let more_loads = |more: &[&str]| -> (i64, i64) {
        let own: &[&str] = &["--pool", &pool, "--resample", "6"];
        let output = rig.simulate(LOAD, &[own, more].concat());
        assert!(output.status.success(), "{}", errors(&output));
        let table = String::from_utf8(output.stdout).expect("UTF-8");
        let row = table.lines().find(|line| line.starts_with("loads "));
        let range = row.and_then(|row| row.rsplit_once('(')?.1.strip_suffix(')'));
        let (least, most) = range
            .and_then(|range| range.split_once(" to "))
            .expect("a range");
        let number = |digits: &str| -> i64 { digits.parse().expect("a number") };
        (number(least), number(most))
    };
    let set = ["--set", "pool.keep_hot=1m"];
    let priority = ["--priority", "model-3=2"];
    let (least, _) = more_loads(&set);
    assert!(least > 0, "{least}: a shorter keep-hot time loads more");
    let (_, most) = more_loads(&priority);
    assert!(most < 0, "{most}: an always-hot model is loaded once");
    let (both, _) = more_loads(&[set, priority].concat());
    assert!(
        most < both && both < least,
        "{both}: both changes count, between {most} and {least}"
    );
}

/// A store with requests for two models in one minute, and a single recorded load.
async fn write_store(path: &Path) {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true);
    let mut store: SqliteConnection = options.connect().await.expect("a database");
    let tables = "CREATE TABLE usage (minute BIGINT, model TEXT, requests BIGINT, busy_ms BIGINT, waited BIGINT, waited_ms BIGINT);
        CREATE TABLE history (id INTEGER PRIMARY KEY, at BIGINT, kind TEXT, model TEXT, replica BIGINT, placement TEXT, took_ms BIGINT);
        INSERT INTO usage VALUES (29000000, 'quick', 5, 5000, 1, 700), (29000000, 'unseen', 3, 3000, 0, 0);
        INSERT INTO history VALUES
            (1, 1740000001000, 'load', 'quick', 1, '[{\"device\": \"gpu0\", \"bytes\": 8589934592}]', NULL),
            (2, 1740000001700, 'ready', 'quick', 1, '[]', 700);";
    sqlx::raw_sql(tables)
        .execute(&mut store)
        .await
        .expect("written");
    store.close().await.expect("closed");
}

#[test]
fn values_that_were_never_measured_are_estimated_and_reported_for_each_model() {
    let rig = Rig::new();
    let path = rig.folder.path().join("past.db");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(write_store(&path));
    let output = rig.simulate(text(&path), &["--gpus", "1x80GB"]);
    assert!(output.status.success(), "{}", errors(&output));
    let notices = errors(&output);
    let guessed = notices.lines().find(|line| line.contains("guessed: "));
    let (_, models) = guessed
        .and_then(|line| line.split_once("the load time is guessed: "))
        .expect("a notice");
    assert!(
        models.starts_with("unseen (") && !models.contains("quick"),
        "{notices}"
    );
    assert!(
        notices.contains("the load times and sizes of 1 models were measured by the pool")
            && notices.contains("never stopped one, so the time of a stop is guessed"),
        "{notices}"
    );
    let found = rig.reports(text(&path), &["--gpus", "1x80GB"]);
    let quick = &found["reports"][0]["by_model"]["quick"];
    assert_eq!(quick["loads"], 1);
    assert_eq!(quick["reload_ms"], 700, "as it was measured");
}
