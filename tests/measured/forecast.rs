//! Compares the simulator's forecast from a pool's own history with the real outcome: real processes in real time, with loads far
//! faster than any default estimate. Each scenario runs for half a minute, and with `FORECASTS=all` on an otherwise idle machine
//! for minutes within the documented bounds. Prints both: `cargo test --test measured forecast:: -- --nocapture`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde_json::Value;
use sqlx::{Connection, Row, SqliteConnection};
use support::service::Pool;

/// A pool whose two devices hold two models in total, and its workload.
struct Rig {
    /// Load times of the models in milliseconds.
    loads: &'static [u32],
    lasts: Duration,
    sessions_a_second: f64,
    /// Requests of a session, all for one model.
    of_a_session: u32,
    /// Minimum number of loads for a meaningful comparison.
    loads_at_least: f64,
}

/// Random requests for any of the models. Most wait for a load whose time the store knows, so the exact arrival within a minute
/// matters little.
const SINGLE_REQUESTS: Rig = Rig {
    loads: &[50, 100, 150, 200, 300, 50, 100, 150],
    lasts: Duration::from_secs(180),
    sessions_a_second: 1.2,
    of_a_session: 1,
    loads_at_least: 50.0,
};

/// Short sessions with a few requests each: the number of loads depends on their order within the minute.
const SESSIONS: Rig = Rig {
    loads: &[50, 100, 150, 200, 300],
    lasts: Duration::from_secs(120),
    sessions_a_second: 0.6,
    of_a_session: 3,
    loads_at_least: 30.0,
};

/// Seconds between requests of a session.
const PAUSE_MEAN: f64 = 0.4;
const TOKEN_MS: u32 = 10;
const TOKENS_MEAN: f64 = 15.0;
const SEED: u64 = 7;

/// Figures of a run or of a forecast.
#[derive(Debug)]
struct Figures {
    loads: f64,
    loading_ms: f64,
    wait_mean_ms: f64,
}

struct Request {
    at: Duration,
    model: usize,
    tokens: u32,
}

/// In chronological order.
fn schedule(rig: &Rig) -> Vec<Request> {
    let mut random = Pcg64Mcg::seed_from_u64(SEED);
    let mut requests = Vec::new();
    let mut begins = Duration::ZERO;
    loop {
        begins += Duration::from_secs_f64(exponential(&mut random, 1.0 / rig.sessions_a_second));
        if begins > rig.lasts {
            requests.sort_by_key(|request: &Request| request.at);
            return requests;
        }
        let model = random.random_range(0..rig.loads.len());
        let mut at = begins;
        for request in 0..rig.of_a_session {
            if request > 0 {
                at += Duration::from_secs_f64(exponential(&mut random, PAUSE_MEAN));
            }
            let tokens = 1 + exponential(&mut random, TOKENS_MEAN) as u32;
            requests.push(Request { at, model, tokens });
        }
    }
}

fn exponential(random: &mut Pcg64Mcg, mean: f64) -> f64 {
    -mean * (1.0 - random.random::<f64>()).ln()
}

fn name(model: usize) -> String {
    format!("m{model}")
}

fn file(rig: &Rig, model: usize) -> (String, String) {
    let (name, token) = (name(model), TOKEN_MS.to_string());
    let load = rig.loads[model].to_string();
    let flags = [
        "--model",
        &name,
        "--tokens",
        "10000",
        "--token-ms",
        &token,
        "--ready-after-ms",
        &load,
    ];
    support::stub::model(&name, &flags, "memory_gib: 9")
}

/// Time from a request to the first event of its response, not counting comments.
#[expect(clippy::disallowed_methods, reason = "real programs in real time")]
fn waited(address: &str, request: &Request) -> Duration {
    let body = format!(
        r#"{{"model":"{}","stream":true,"max_tokens":{},"messages":[{{"role":"user","content":"Hi"}}]}}"#,
        name(request.model),
        request.tokens
    );
    let began = Instant::now();
    let mut socket = TcpStream::connect(address).unwrap();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes()).unwrap();
    let (mut bytes, mut piece, mut first) = (Vec::new(), [0; 4096], None);
    loop {
        let count = socket.read(&mut piece).unwrap();
        if count == 0 {
            break;
        }
        bytes.extend_from_slice(&piece[..count]);
        if first.is_none() && String::from_utf8_lossy(&bytes).contains("data: {") {
            first = Some(began.elapsed());
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains("data: [DONE]"), "{text}");
    first.unwrap()
}

/// Sends each request at its time, and returns the mean wait in milliseconds.
#[expect(clippy::disallowed_methods, reason = "real programs in real time")]
fn play(address: &str, requests: &[Request]) -> f64 {
    let began = Instant::now();
    let waits: Vec<Duration> = thread::scope(|scope| {
        let mut sent = Vec::new();
        for request in requests {
            while let Some(left) = request.at.checked_sub(began.elapsed()) {
                thread::park_timeout(left);
            }
            sent.push(scope.spawn(move || waited(address, request)));
        }
        let waits = sent.into_iter().map(|thread| thread.join().unwrap());
        waits.collect()
    });
    let all: Duration = waits.iter().sum();
    all.as_secs_f64() * 1000.0 / waits.len() as f64
}

/// Number of loads in the store, and their total time in milliseconds.
fn loads(store: &Path) -> (f64, f64) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let url = format!("sqlite://{}", store.display());
    let row = runtime.block_on(async {
        let mut store = SqliteConnection::connect(&url).await.unwrap();
        let sums =
            "SELECT count(*) AS loads, sum(took_ms) AS took FROM history WHERE kind = 'ready'";
        sqlx::query(sums).fetch_one(&mut store).await.unwrap()
    });
    let (loads, took): (i64, i64) = (row.get("loads"), row.get("took"));
    (loads as f64, took as f64)
}

fn forecast(store: &Path, config: &Path) -> Figures {
    let output = Command::new(support::program())
        .arg("simulate")
        .args(["--workload".as_ref(), store.as_os_str()])
        .args(["--pool".as_ref(), config.as_os_str()])
        .args(["--json", "-"])
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert!(!errors.contains("never loaded in this past"), "{errors}");
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let report = &found["reports"][0];
    let figure = |key: &str| report[key].as_f64().unwrap();
    Figures {
        loads: figure("loads"),
        loading_ms: figure("reload_ms"),
        wait_mean_ms: figure("wait_mean_ms"),
    }
}

#[test]
fn the_forecast_from_a_pools_own_history_matches_the_actual_outcome() {
    forecasts(&SINGLE_REQUESTS);
}

#[test]
fn the_forecast_for_short_stays_with_few_requests_matches_the_actual_outcome() {
    forecasts(&SESSIONS);
}

/// Half a minute has few loads, so a single load is several per cent.
const QUICK: Duration = Duration::from_secs(30);
const QUICK_SLACK: f64 = 3.0;

fn forecasts(whole: &Rig) {
    let _alone = super::ALONE.blocking_lock();
    let is_whole = std::env::var("FORECASTS").is_ok_and(|rigs| rigs == "all");
    let (lasts, slack) = if is_whole {
        (whole.lasts, 1.0)
    } else {
        (QUICK, QUICK_SLACK)
    };
    let part = lasts.as_secs_f64() / whole.lasts.as_secs_f64();
    let rig = &Rig {
        lasts,
        loads_at_least: whole.loads_at_least * part,
        ..*whole
    };
    let models = 0..rig.loads.len();
    let files: Vec<(String, String)> = models.map(|model| file(rig, model)).collect();
    let devices = "inventory: {provider: fixed, headroom: 0%, devices: [{name: gpu0, memory: 16GiB}, {name: gpu1, memory: 16GiB}]}\n";
    let mut pool = Pool::with_devices(&files, devices);
    let requests = schedule(rig);
    let wait_mean_ms = play(pool.address(), &requests);
    // The last minute is written at shutdown.
    pool.terminate();
    assert!(pool.wait(Duration::from_secs(30)), "it ends");
    let store = pool.data().join("model-pool.db");
    let (loads, loading_ms) = loads(&store);
    let happened = Figures {
        loads,
        loading_ms,
        wait_mean_ms,
    };
    let forecast = forecast(&store, &pool.folder().join("config.yaml"));
    println!(
        "{} requests: {happened:?}, forecast {forecast:?}",
        requests.len()
    );
    assert!(happened.loads > rig.loads_at_least, "{happened:?}");
    let is_within = |part: f64, of: fn(&Figures) -> f64| {
        (of(&forecast) - of(&happened)).abs() <= part * of(&happened)
    };
    let all = [
        ("loads", is_within(0.1 * slack, |figures| figures.loads)),
        (
            "time of loading",
            is_within(0.1 * slack, |figures| figures.loading_ms),
        ),
        (
            "mean wait",
            is_within(0.2 * slack, |figures| figures.wait_mean_ms),
        ),
    ];
    for (what, is_near) in all {
        assert!(is_near, "{what}: {happened:?}, forecast {forecast:?}");
    }
}
