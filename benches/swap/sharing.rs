//! Two clients continuously request different models, and only one model fits: measures the share of the time spent serving, and
//! how evenly it is divided. Default configuration.

use std::time::{Duration, Instant};

use support::service::Pool;

use crate::engine::{NAMES, double, milliseconds, percentile, stream};

/// The duration of a load in milliseconds, and of the requests: several turns of both models, which are three swaps or sixteen
/// requests long.
const LOADS: [(u64, u64); 3] = [(0, 10), (300, 20), (1500, 49)];
/// A request takes five times 10 ms.
const TOKENS: u32 = 5;
const ENGINE: [&str; 4] = ["--tokens", "5", "--token-ms", "10"];
/// The number of consecutive requests before the clients begin. The pool then knows how soon the next request comes, as for a model
/// in use.
const WARM: usize = 9;
const SHARE_LEAST: f64 = 2.0 / 3.0;
const RATIO_MOST: f64 = 1.5;

/// Prints a table; returns the aims that were missed.
pub fn run() -> Vec<String> {
    println!(
        "\nTwo clients, each asks its own model all the time, and one model fits; a request takes {} ms; defaults",
        TOKENS * 10
    );
    println!(
        "| load ms | served in | requests of each | time spent serving (aim {:.0} %) | larger by smaller share (aim {RATIO_MOST}) |",
        SHARE_LEAST * 100.0
    );
    println!("|---:|---:|---:|---:|---:|");
    let mut missed = Vec::new();
    for (load_ms, seconds) in LOADS {
        let lasts = Duration::from_secs(seconds);
        let Shares { requests, busy_ms } = measure(Duration::from_millis(load_ms), lasts);
        let share = busy_ms.iter().sum::<f64>() / milliseconds(lasts);
        let [a, b] = busy_ms;
        let ratio = a.max(b) / a.min(b);
        println!(
            "| {load_ms} | {seconds} s | {}, {} | {:.0} % | {ratio:.2} |",
            requests[0],
            requests[1],
            share * 100.0
        );
        if share < SHARE_LEAST {
            missed.push(format!("time spent serving with a load of {load_ms} ms"));
        }
        // NaN if neither was served.
        if ratio.is_nan() || ratio > RATIO_MOST {
            missed.push(format!("even shares with a load of {load_ms} ms"));
        }
    }
    missed
}

struct Shares {
    requests: [usize; 2],
    /// The time in which each was served: its requests, times the duration of a request while its model is ready.
    busy_ms: [f64; 2],
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn measure(load: Duration, lasts: Duration) -> Shares {
    let files = NAMES.map(|name| double(name, load, &ENGINE, "").1);
    let pool = Pool::with_models(&files, "");
    let address = pool.address();
    let takes = NAMES.map(|name| warm(address, name));
    let began = Instant::now();
    let requests = std::thread::scope(|scope| {
        let clients = NAMES.map(|name| scope.spawn(move || served(address, name, began, lasts)));
        clients.map(|client| client.join().expect("a client"))
    });
    Shares {
        requests,
        busy_ms: [requests[0] as f64 * takes[0], requests[1] as f64 * takes[1]],
    }
}

/// Loads the model and returns the duration of a request afterwards, in milliseconds.
fn warm(address: &str, name: &str) -> f64 {
    stream(address, name, TOKENS);
    let one = |_| milliseconds(stream(address, name, TOKENS).all);
    percentile(&(0..WARM).map(one).collect::<Vec<f64>>(), 50)
}

/// The number of requests of a client answered in this time.
fn served(address: &str, name: &str, began: Instant, lasts: Duration) -> usize {
    let mut served = 0;
    loop {
        stream(address, name, TOKENS);
        if began.elapsed() > lasts {
            return served;
        }
        served += 1;
    }
}
