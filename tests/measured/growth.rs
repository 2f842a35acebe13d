//! Resources that clients can make grow: each test floods the real binary in one way for a while, and then checks rows, bytes,
//! lines, series, memory and the time of the next start. `GROWTH_SECONDS` and `GROWTH_ROWS` increase the load.
//! One file because every test floods one pool and counts the remains.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use sqlx::{Connection, Row, SqliteConnection};
use support::hub::Hub;
use support::service::{Pool, wait_for};

const THREADS: u64 = 8;
const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/demo/models/tiny-chat");
const MIB: u64 = 1 << 20;

fn asked_for(name: &str, usual: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(usual, |text| text.parse().expect("a number"))
}

/// Sends requests from eight clients as fast as possible for a few seconds, and returns the number of responses by status.
/// `request` returns head and body of the nth request.
fn flood(
    pool: &Pool,
    path: &str,
    request: &(dyn Fn(u64) -> (String, String) + Sync),
) -> Vec<(u16, u64)> {
    let (began, next) = (SystemTime::now(), AtomicU64::new(0));
    let lasts = Duration::from_secs(asked_for("GROWTH_SECONDS", 4));
    let one = || {
        let mut had = std::collections::BTreeMap::<u16, u64>::new();
        let mut socket = BufReader::new(support::net::connect(pool));
        while began.elapsed().unwrap_or_default() < lasts {
            let (lines, body) = request(next.fetch_add(1, Ordering::Relaxed));
            let more = format!(
                "Content-Type: application/json\r\nContent-Length: {}\r\n{lines}",
                body.len()
            );
            let text = support::net::head("POST", path, &more) + &body;
            let status = match ask(&mut socket, &text) {
                Some(status) => status,
                None => {
                    socket = BufReader::new(support::net::connect(pool));
                    continue;
                }
            };
            *had.entry(status).or_default() += 1;
        }
        had
    };
    let mut all = std::collections::BTreeMap::<u16, u64>::new();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..THREADS).map(|_| scope.spawn(one)).collect();
        for client in clients {
            for (status, count) in client.join().unwrap() {
                *all.entry(status).or_default() += count;
            }
        }
    });
    println!("{path}: {all:?}");
    all.into_iter().collect()
}

/// The status of a response; `None` if the connection was closed.
fn ask(socket: &mut BufReader<TcpStream>, text: &str) -> Option<u16> {
    socket.get_mut().write_all(text.as_bytes()).ok()?;
    let (mut status, mut length) = (0, 0);
    loop {
        let mut line = String::new();
        if socket.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_lowercase();
        if line.starts_with("http/1.1 ") {
            status = support::net::status(&line);
        }
        if let Some(count) = line.strip_prefix("content-length: ") {
            length = count.parse().ok()?;
        }
        if line.is_empty() {
            break;
        }
    }
    socket.read_exact(&mut vec![0; length]).ok()?;
    Some(status)
}

fn count_of(statuses: &[(u16, u64)], status: u16) -> u64 {
    let found = statuses.iter().find(|(known, _)| *known == status);
    found.map_or(0, |(_, count)| *count)
}

fn bytes_below(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let of = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(data) if data.is_dir() => bytes_below(&entry.path()),
        Ok(data) => data.len(),
        Err(_) => 0,
    };
    entries.map(of).sum()
}

fn log_bytes(pool: &Pool) -> u64 {
    std::fs::metadata(pool.folder().join("log")).map_or(0, |data| data.len())
}

/// A query to the database of a running service, which does not change it.
fn rows(pool: &Pool, question: &'static str) -> Vec<(String, i64)> {
    let path = pool.data().join("model-pool.db");
    support::net::runtime().block_on(async {
        let url = format!("sqlite://{}", path.display());
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        let rows = sqlx::query(question)
            .fetch_all(&mut connection)
            .await
            .unwrap();
        connection.close().await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    })
}

fn count(pool: &Pool, question: &'static str) -> i64 {
    rows(pool, question)[0].1
}

/// Number of refusals that a row of the history represents.
fn refusals_in(reason: &str) -> i64 {
    let sum = reason.strip_suffix(" more within 60.0 s");
    let count = sum.and_then(|sum| sum.rsplit_once(", and ")?.1.parse().ok());
    count.unwrap_or(1)
}

fn start_of(pool: &mut Pool) -> Duration {
    let began = SystemTime::now();
    pool.restart();
    began.elapsed().unwrap()
}

#[test]
fn a_flood_of_refused_requests_leaves_few_rows_and_lines_with_a_complete_count() {
    let _alone = super::ALONE.blocking_lock();
    let models = [
        support::net::stub("slow", &["--ready-after-ms", "600000"]),
        support::net::stub("broken", &["--fail-load", "no such weights"]),
    ];
    let mut pool = Pool::with_models(&models, "pool: {queue_limit: 1}\n");
    let waits = pool.stream("/v1/chat/completions", &support::net::chat("slow", true));
    let metrics = |pool: &Pool| pool.request("GET", "/metrics", "", None).1;
    wait_for("the queue to be full", || {
        metrics(&pool).contains("model_pool_requests_pending{model=\"slow\"} 1")
    });
    let before = (
        bytes_below(&pool.data()),
        log_bytes(&pool),
        support::net::memory_kib(pool.pid()),
    );
    let names = ["slow", "broken"];
    let had = flood(&pool, "/v1/chat/completions", &|nth| {
        (
            String::new(),
            support::net::chat(names[nth as usize % 2], false),
        )
    });
    let (full, broken) = (count_of(&had, 429) as i64, count_of(&had, 503) as i64);
    assert!(full > 100 && broken > 100, "{had:?}");
    let lines = count(
        &pool,
        "SELECT '', count(*) FROM history WHERE kind = 'refuse'",
    );
    let grown = (
        bytes_below(&pool.data()).saturating_sub(before.0),
        log_bytes(&pool) - before.1,
        support::net::memory_kib(pool.pid()).saturating_sub(before.2),
    );
    println!("{lines} rows, {grown:?} bytes of data, bytes of log, KiB of memory");
    assert!(lines <= 12, "{lines} rows of {} refusals", full + broken);
    assert!(
        grown.0 < 2 * MIB && grown.1 < MIB && grown.2 < 64 << 10,
        "{grown:?}"
    );
    drop(waits);
    // The sums are written at shutdown; with the first records they cover all refusals.
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(30)), "it ends");
    let refused = rows(
        &pool,
        "SELECT reason, id FROM history WHERE kind = 'refuse'",
    );
    let all: i64 = refused.iter().map(|(reason, _)| refusals_in(reason)).sum();
    assert_eq!(
        all,
        full + broken,
        "each is noted, alone or in a sum: {refused:?}"
    );
    let took = start_of(&mut pool);
    assert!(took < Duration::from_secs(5), "{took:?} to start");
}

#[test]
fn invented_names_and_keys_create_no_metrics_and_do_not_fill_audit_or_log() {
    let _alone = super::ALONE.blocking_lock();
    let pool = Pool::with_models(
        &[support::net::stub("talker", &[])],
        "auth: {inference: open}\n",
    );
    assert_eq!(
        pool.post("/v1/chat/completions", &support::net::chat("talker", false))
            .0,
        200
    );
    wait_for("the load to be counted", || {
        let text = pool.request("GET", "/metrics", "", None).1;
        text.contains("model_pool_loads_total{model=\"talker\"")
    });
    let series = |pool: &Pool| pool.request("GET", "/metrics", "", None).1.lines().count();
    let (before, memory) = (series(&pool), support::net::memory_kib(pool.pid()));
    let log = log_bytes(&pool);
    let long = "x".repeat(50_000);
    let had = flood(&pool, "/v1/chat/completions", &|nth| match nth % 2 {
        0 => (
            String::new(),
            support::net::chat(&format!("org/m{nth}"), false),
        ),
        _ => {
            let key = format!("Authorization: Bearer mp-{nth:040}\r\n");
            (key, support::net::chat("talker", false))
        }
    });
    assert!(
        count_of(&had, 404) > 100 && count_of(&had, 401) > 100,
        "{had:?}"
    );
    flood(&pool, "/llm/admin/load", &|nth| {
        let key = format!("Authorization: Bearer mp-{nth:040}\r\n");
        (key, format!("{{\"model\": \"m{nth}{long}\"}}"))
    });
    let audit = count(&pool, "SELECT '', count(*) FROM audit");
    let grown = (
        log_bytes(&pool) - log,
        support::net::memory_kib(pool.pid()).saturating_sub(memory),
    );
    println!(
        "{audit} rows of audit, {grown:?} bytes of log and KiB of memory, {before} lines of metrics before"
    );
    // The flood spanned at most two minutes.
    assert!((1..=240).contains(&audit), "{audit} rows of audit");
    assert!(grown.0 < MIB && grown.1 < 96 << 10, "{grown:?}");
    let after = series(&pool);
    assert!(
        after <= before + 4,
        "{before} lines of metrics, then {after}"
    );
}

#[test]
fn an_engine_that_prints_endlessly_fills_two_log_files_at_most() {
    let _alone = super::ALONE.blocking_lock();
    let pool = Pool::with_models(&[support::net::stub("loud", &["--print-mib", "64"])], "");
    assert_eq!(
        pool.post("/v1/chat/completions", &support::net::chat("loud", false))
            .0,
        200
    );
    let logs = pool.data().join("logs");
    wait_for("the second file", || {
        let files = std::fs::read_dir(&logs).into_iter().flatten().flatten();
        files.count() == 2 && bytes_below(&logs) > 16 * MIB
    });
    assert!(bytes_below(&logs) <= 32 * MIB, "{}", bytes_below(&logs));
}

/// A service in which any client may use models of this hub.
fn open_to_anyone(hub: &Hub, cache: &Path, size: &str) -> Pool {
    let env = [
        ("MODEL_POOL__CATALOG__ON_UNKNOWN", "anyone"),
        ("MODEL_POOL__CATALOG__UNKNOWN_PER_HOUR", "3"),
        ("MODEL_POOL__CATALOG__UNKNOWN_SIZE", size),
    ];
    hub.pool(cache, &[support::net::stub("talker", &[])], "", &env)
}

#[test]
fn a_flood_of_invented_hub_names_causes_few_lookups_and_registrations() {
    let _alone = super::ALONE.blocking_lock();
    let (hub, cache) = (Hub::start(), tempfile::tempdir().unwrap());
    for number in 0..20 {
        hub.add_folder(&format!("lab/m{number}"), Path::new(TINY));
    }
    let pool = open_to_anyone(&hub, cache.path(), "1GiB");
    let invent = |nth: u64| {
        (
            String::new(),
            support::net::chat(&format!("lab/nothing{nth}"), false),
        )
    };
    let had = flood(&pool, "/v1/chat/completions", &invent);
    assert!(count_of(&had, 503) > 100, "{had:?}");
    let listed = hub.listed();
    println!("{listed} listings by the hub");
    assert!(listed <= 130, "{listed} listings by the hub");
    let (_, _, head) = pool.request("POST", "/v1/chat/completions", &invent(u64::MAX).1, None);
    assert!(head.contains("retry-after: "), "{head}");
    let registered = count(&pool, "SELECT '', count(*) FROM registrations");
    assert_eq!(registered, 0);
    drop(pool);
    let other = tempfile::tempdir().unwrap();
    let pool = open_to_anyone(&hub, other.path(), "1GiB");
    let mut refused = String::new();
    for number in 0..20 {
        let chat = support::net::chat(&format!("lab/m{number}"), false);
        let (status, text) = pool.post("/v1/chat/completions", &chat);
        if status == 503 && text.contains("model_not_registered") {
            refused = text;
        }
    }
    let registered = count(&pool, "SELECT '', count(*) FROM registrations");
    assert_eq!(registered, 3, "{refused}");
    assert!(
        refused.contains("users together may bring in 3 models of the hub"),
        "{refused}"
    );
}

#[test]
fn weights_added_by_users_are_bounded_together_and_the_refusal_gives_the_numbers() {
    let _alone = super::ALONE.blocking_lock();
    let (hub, cache) = (Hub::start(), tempfile::tempdir().unwrap());
    for name in ["one", "two"] {
        hub.add_folder(&format!("lab/{name}"), Path::new(TINY));
    }
    let pool = open_to_anyone(&hub, cache.path(), "1500KiB");
    let ask = |name: &str| pool.post("/v1/chat/completions", &support::net::chat(name, false));
    let (status, text) = ask("lab/one");
    assert_eq!(status, 200, "{text}");
    let (status, text) = ask("lab/two");
    assert_eq!(status, 503, "{text}");
    assert!(
        text.contains("catalog.unknown_size") && text.contains("1.5 MiB"),
        "{text}"
    );
    assert!(bytes_below(cache.path()) < 2 * MIB);
}

#[test]
fn a_start_with_a_long_history_is_quick_and_excess_rows_are_deleted_while_serving() {
    let _alone = super::ALONE.blocking_lock();
    let rows_made = i64::try_from(asked_for("GROWTH_ROWS", 150_000)).unwrap();
    let mut pool = Pool::with_models(&[support::net::stub("talker", &[])], "");
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(30)));
    let empty = start_of(&mut pool);
    pool.kill();
    let path = pool.data().join("model-pool.db");
    support::net::runtime().block_on(async {
        let url = format!("sqlite://{}", path.display());
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        sqlx::query(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)
             INSERT INTO history (at, kind, model, replica, reason, placement, candidates, memory)
             SELECT unixepoch() * 1000 - 1000000 + i / 1000, 'refuse', 'm' || i % 50, i, 'the queue is full', '[]', '[]', '[]' FROM n",
        )
        .bind(rows_made)
        .execute(&mut connection)
        .await
        .unwrap();
        connection.close().await.unwrap();
    });
    let size = || std::fs::metadata(&path).unwrap().len();
    let bytes = size();
    let long = start_of(&mut pool);
    println!(
        "{rows_made} rows, {} MiB: {long:?} to start, {empty:?} without",
        bytes / MIB
    );
    assert!(
        long < empty + Duration::from_secs(1),
        "{long:?} instead of {empty:?}"
    );
    pool.kill();
    pool.set_env(
        "MODEL_POOL__STATE__HISTORY",
        "{keep: 90days, rows_max: 1000}",
    );
    pool.restart();
    let key = pool.admin_key();
    let mut slowest = Duration::ZERO;
    wait_for("the surplus to go", || {
        // An administrator's order does not wait for it.
        let began = SystemTime::now();
        let body = r#"{"priority": 1}"#;
        let (status, text, _) =
            pool.request("PATCH", "/llm/admin/models?model=talker", body, Some(&key));
        assert_eq!(status, 200, "{text}");
        slowest = slowest.max(began.elapsed().unwrap());
        let left = count(&pool, "SELECT '', count(*) FROM history");
        left <= 1_100 || rows_made > 1_000_000
    });
    println!("the slowest order in this time took {slowest:?}");
    assert!(
        slowest < Duration::from_secs(1),
        "a wish waited {slowest:?}"
    );
    if rows_made <= 1_000_000 {
        wait_for("the space to be given back", || size() < bytes / 2);
    }
    let events = pool
        .request("GET", "/llm/admin/events?limit=5", "", Some(&key))
        .1;
    let events: Value = serde_json::from_str(&events).unwrap();
    assert!(
        events["events"][0]["id"].as_i64() > Some(rows_made - 10),
        "{events}"
    );
}
