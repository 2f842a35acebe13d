//! Measures the cost of reading a request: processor time and memory for each MiB of a body, by route, for a plain text and for the
//! worst body that a seed can make, which is named. The bodies are from `tests/measured/hostile_bodies.rs`.
//!
//! `cargo bench --bench hostile_bodies [-- MIB]`; the default body size is 4 MiB.

#[path = "../tests/measured/hostile_bodies/bodies.rs"]
mod bodies;
#[path = "../tests/measured/hostile_bodies/grammars.rs"]
mod grammars;
#[path = "../tests/measured/hostile_bodies/scene.rs"]
#[allow(dead_code, reason = "shared with the test, which looks at more")]
mod scene;
use support::stub as stub_program;

use std::time::Duration;

use bodies::{ROUTES, hostile, plain};
use rand::SeedableRng;
use rand_pcg::Pcg64;
use scene::{Cost, Watch, measure, pool, send};

const SEED: u64 = 0x6d6f_6465_6c70_6f6f;
const MIB: f64 = 1024.0 * 1024.0;

/// Milliseconds of processor time and MiB of memory per MiB of a body.
fn per_mib(cost: &Cost, bytes: usize) -> (f64, f64) {
    let sent = bytes as f64 / MIB;
    let milliseconds = cost.processor.as_secs_f64() * 1000.0;
    (milliseconds / sent, cost.growth_bytes as f64 / MIB / sent)
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mib = words.iter().find_map(|word| word.parse::<usize>().ok());
    let bytes = (mib.unwrap_or(4) << 20).min((10 << 20) - (64 << 10));
    let pool = pool();
    let key = pool.admin_key();
    for route in ROUTES {
        send(&pool, route, &key, &plain(route, 1000));
    }
    let watch = Watch::new(&pool);
    let mut chance = Pcg64::seed_from_u64(SEED);
    println!("| route | plain: ms/MiB | memory | worst: ms/MiB | which | worst: memory | which |");
    println!("|---|---|---|---|---|---|---|");
    let mut worst = (0.0, String::new());
    for route in ROUTES {
        let body = plain(route, bytes);
        let mut all: Vec<(f64, f64)> = (0..3)
            .map(|_| per_mib(&measure(&pool, &watch, route, &key, &body), body.len()))
            .collect();
        all.sort_by(|left, right| left.0.total_cmp(&right.0));
        let (plain_time, plain_memory) = all[1];
        let (mut time, mut memory) = ((0.0, ""), (0.0, ""));
        for (kind, body) in hostile(route, bytes, &mut chance) {
            let (taken, grown) = per_mib(
                &measure(&pool, &watch, route, &key, &body),
                body.len().max(bytes),
            );
            if taken > time.0 {
                time = (taken, kind);
            }
            if grown > memory.0 {
                memory = (grown, kind);
            }
        }
        if time.0 > worst.0 {
            worst = (
                time.0,
                format!("{} {}: {}", route.method, route.path, time.1),
            );
        }
        println!(
            "| `{} {}` | {plain_time:.0} | {plain_memory:.1} | {:.0} | {} | {:.1} | {} |",
            route.method, route.path, time.0, time.1, memory.0, memory.1
        );
    }
    let waits = watch.waits();
    let at = |share: usize| {
        waits
            .get(waits.len() * share / 100)
            .copied()
            .unwrap_or(Duration::ZERO)
    };
    println!("\nThe worst: {}, {:.0} ms for each MiB.", worst.1, worst.0);
    println!(
        "`/llm/health` was requested {} times in the meantime: half within {:.1} ms, 99 of 100 within {:.1} ms, all within {:.1} ms.",
        waits.len(),
        at(50).as_secs_f64() * 1000.0,
        at(99).as_secs_f64() * 1000.0,
        waits.last().copied().unwrap_or_default().as_secs_f64() * 1000.0
    );
}
