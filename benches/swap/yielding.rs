//! A model of priority 1 is idle while a request waits for a model of priority 0 (P6): measures when the waiting client is served,
//! compared with the promise of the first comment in its stream. Default configuration.

use std::time::Duration;

use support::service::Pool;

use crate::engine::{ask, double, stream};

/// Milliseconds. Three times each is less than the 30 s that an idle model stays at least.
const LOADS: [u64; 3] = [0, 300, 1500];
const LATE_MOST: f64 = 0.5;

struct Wait {
    load_ms: u64,
    promised: f64,
    waited: f64,
}

/// Prints a table; returns the aims that were missed. The pools wait in parallel, because each is idle for half a minute.
pub fn run() -> Vec<String> {
    let waits = std::thread::scope(|scope| {
        let waits = LOADS.map(|load_ms| scope.spawn(move || measure(load_ms)));
        waits.map(|wait| wait.join().expect("measured"))
    });
    println!("\nPriority 1 is idle and holds the memory, priority 0 waits; defaults");
    println!(
        "| load ms | promised s | waited s | later than promised s (aim {LATE_MOST}) |\n|---:|---:|---:|---:|"
    );
    let mut missed = Vec::new();
    for Wait {
        load_ms,
        promised,
        waited,
    } in waits
    {
        let late = waited - promised;
        println!("| {load_ms} | {promised:.1} | {waited:.1} | {late:.1} |");
        if late > LATE_MOST {
            missed.push(format!(
                "the promised time of yielding with a load of {load_ms} ms"
            ));
        }
    }
    missed
}

fn measure(load_ms: u64) -> Wait {
    let load = Duration::from_millis(load_ms);
    let (_, urgent) = double("urgent", load, &[], ", priority: 1");
    let (_, plain) = double("plain", load, &[], "");
    let pool = Pool::with_models(&[urgent, plain], "");
    // Measures its load, so the promise is no longer a guess.
    ask(pool.address(), "plain");
    ask(pool.address(), "urgent");
    let response = stream(pool.address(), "plain", 2);
    let (after, seconds) = response.promise.expect("a comment says when");
    Wait {
        load_ms,
        promised: after.as_secs_f64() + seconds as f64,
        waited: response.first.as_secs_f64(),
    }
}
