//! One client alternates between two models with the default configuration: the cost of a swap beyond a bare stop and start of the
//! same engine, for loads of different durations.

use std::time::Duration;

use support::service::{Pool, wait_for};

use crate::engine::{EngineTimes, NAMES, ask, double, milliseconds, percentile};

/// The duration of a load in milliseconds, and the number of measured swaps.
const LOADS: [(u64, usize); 3] = [(0, 40), (300, 30), (1500, 20)];
/// The pause between a response and the next request.
const PAUSE: Duration = Duration::from_millis(100);
const OVERHEAD_P50_MS: f64 = 5.0;
const OVERHEAD_P90_MS: f64 = 20.0;

/// Prints a table; returns the aims that were missed.
pub fn run() -> Vec<String> {
    println!("\nOne client that asks two models in turn, {PAUSE:?} after each answer; defaults");
    println!(
        "| load ms | p50 ms | p90 ms | own stop, start and answer, p50 ms | overhead p50 ms (aim {OVERHEAD_P50_MS}) | overhead p90 ms (aim {OVERHEAD_P90_MS}) |"
    );
    println!("|---:|---:|---:|---:|---:|---:|");
    let mut missed = Vec::new();
    for (load_ms, swaps) in LOADS {
        let rounds = measure(Duration::from_millis(load_ms), swaps);
        let column = |of: fn(&Round) -> f64| rounds.iter().map(of).collect::<Vec<f64>>();
        let all = column(|round| round.swap);
        let own = column(|round| round.own);
        // Paired by round, to let a busy period of the machine affect both sides.
        let beyond = column(|round| round.swap - round.own);
        let (half, most) = (percentile(&beyond, 50), percentile(&beyond, 90));
        println!(
            "| {load_ms} | {:.1} | {:.1} | {:.1} | {half:.1} | {most:.1} |",
            percentile(&all, 50),
            percentile(&all, 90),
            percentile(&own, 50),
        );
        for (name, overhead, aim) in [
            ("p50", half, OVERHEAD_P50_MS),
            ("p90", most, OVERHEAD_P90_MS),
        ] {
            if overhead > aim {
                missed.push(format!(
                    "{name} of the overhead with a load of {load_ms} ms"
                ));
            }
        }
    }
    missed
}

/// The time of a swap in milliseconds, and the engine's own part of it.
struct Round {
    swap: f64,
    own: f64,
}

fn measure(load: Duration, swaps: usize) -> Vec<Round> {
    let program = support::stub::stub_engine();
    let doubles = NAMES.map(|name| double(name, load, &[], ""));
    let pool = Pool::with_models(&doubles.each_ref().map(|(_, file)| file.clone()), "");
    for name in NAMES {
        ask(pool.address(), name);
    }
    let round = |nth: usize| {
        let (launch, _) = &doubles[nth % 2];
        let name = NAMES[nth % 2];
        let own = EngineTimes::measure(&program, launch, name).all();
        std::thread::park_timeout(PAUSE);
        let before = pool.engine_pids();
        let swap = milliseconds(ask(pool.address(), name));
        wait_for("the last engine to be gone", || {
            pool.engine_pids().len() == 1
        });
        assert_ne!(pool.engine_pids(), before, "no engine was started");
        Round { swap, own }
    };
    (0..swaps).map(round).collect()
}
