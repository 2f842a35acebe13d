//! The pool records the seconds of requests, and a replay of its history reproduces them.

use std::path::Path;
use std::time::{Duration, SystemTime};

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection, Row};
use support::net::{chat, stub};
use support::service::Pool;

use super::{Rig, text};

/// A minute of two models in turns of five seconds, each with a request per second; only one model fits on the device. `seconds` is
/// the load time that the store contains for each.
async fn write_turns(path: &Path, seconds: [Option<i64>; 2]) {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true);
    let mut store: SqliteConnection = options.connect().await.expect("a database");
    // Before that minute each was loaded once, in 100 ms.
    let tables = "CREATE TABLE usage (minute BIGINT, model TEXT, requests BIGINT, busy_ms BIGINT, waited BIGINT, waited_ms BIGINT, seconds BIGINT);
        CREATE TABLE history (id INTEGER PRIMARY KEY, at BIGINT, kind TEXT, model TEXT, replica BIGINT, placement TEXT, took_ms BIGINT);
        INSERT INTO history VALUES
            (1, 1739999000000, 'load', 'a', 1, '[{\"device\": \"gpu0\", \"bytes\": 53687091200}]', NULL),
            (2, 1739999000100, 'ready', 'a', 1, '[]', 100),
            (3, 1739999001000, 'evict', 'a', 1, '[]', NULL),
            (4, 1739999001020, 'gone', 'a', 1, '[]', 20),
            (5, 1739999002000, 'load', 'b', 2, '[{\"device\": \"gpu0\", \"bytes\": 53687091200}]', NULL),
            (6, 1739999002100, 'ready', 'b', 2, '[]', 100),
            (7, 1739999003000, 'evict', 'b', 2, '[]', NULL),
            (8, 1739999003020, 'gone', 'b', 2, '[]', 20);";
    let written = sqlx::raw_sql(tables).execute(&mut store).await;
    written.expect("written");
    for (model, seconds) in ["a", "b"].into_iter().zip(seconds) {
        let row = sqlx::query("INSERT INTO usage VALUES (29000000, ?, 30, 1500, 0, 0, ?)");
        let written = row.bind(model).bind(seconds).execute(&mut store).await;
        written.expect("written");
    }
    store.close().await.expect("closed");
}

#[test]
fn a_replay_uses_the_recorded_seconds_of_requests() {
    let rig = Rig::new();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let loads = |name: &str, seconds: [Option<i64>; 2]| {
        let path = rig.folder.path().join(name);
        runtime.block_on(write_turns(&path, seconds));
        let found = rig.reports(text(&path), &["--gpus", "1x80GB"]);
        assert_eq!(found["reports"][0]["served"], 60, "{found}");
        found["reports"][0]["loads"].as_u64().expect("a number")
    };
    let in_turns = |first: usize| {
        let seconds = (0..60).filter(|second| second / 5 % 2 == first);
        seconds.fold(0_i64, |all, second| all | (1_i64 << second))
    };
    let known = loads("known.db", [Some(in_turns(0)), Some(in_turns(1))]);
    assert!((12..=13).contains(&known), "{known}: one for each turn");
    let unknown = loads("unknown.db", [None, None]);
    assert!(unknown > 16, "{unknown}: their order is drawn");
}

fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("a clock").as_secs()
}

#[test]
fn a_pool_records_the_seconds_in_which_requests_arrived() {
    let mut pool = Pool::with_models(&[stub("talker", &[])], "");
    let from = unix_seconds();
    for _ in 0..3 {
        // The first request waits for the load.
        let body = chat("talker", false);
        let (status, _, _) = pool.request("POST", "/v1/chat/completions", &body, None);
        assert_eq!(status, 200);
    }
    let until = unix_seconds();
    // The last minute is written at shutdown.
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(30)), "it ends");
    let url = format!("sqlite://{}", pool.data().join("model-pool.db").display());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let rows = runtime.block_on(async {
        let mut store = SqliteConnection::connect(&url).await.expect("a database");
        let rows = sqlx::query("SELECT minute, requests, seconds FROM usage WHERE requests > 0");
        rows.fetch_all(&mut store).await.expect("read")
    });
    let mut requests = 0;
    for row in &rows {
        let (minute, count): (i64, i64) = (row.get("minute"), row.get("requests"));
        let seconds: Option<i64> = row.get("seconds");
        let seconds = seconds.expect("known");
        assert!(
            (1..=count).contains(&i64::from(seconds.count_ones())),
            "{count} requests in {seconds:b}"
        );
        requests += count;
        for second in (0..60).filter(|second| (seconds >> second) & 1 == 1) {
            let at = u64::try_from(minute * 60 + second).expect("a time");
            assert!(
                (from.saturating_sub(1)..=until + 1).contains(&at),
                "{at} is not from {from} to {until}"
            );
        }
    }
    assert_eq!(requests, 3);
}
