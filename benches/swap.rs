//! Measures the cost of a swap beyond the engine's own time, with the default configuration. See docs/guides/swapping.md for
//! results.
//!
//! `cargo bench --bench swap -- [--only PART,…] [--check]`; the parts are `real` (a real llama-server compared with its own router,
//! skipped if `.ci/llama-server` has not built one), `defaults` (one client alternates between two models), `sharing` (two clients
//! send requests continuously) and `yielding` (priority 1 is idle, priority 0 waits). With `--check` the exit status is 1 if an aim
//! is missed.
//!
//! ```text
//! overhead = request to first byte − engine's own stop − engine's own start to ready − its own answer
//! ```

#[path = "swap/defaults.rs"]
mod defaults;
#[path = "swap/engine.rs"]
mod engine;
#[path = "swap/real_engine.rs"]
mod real_engine;
#[path = "swap/sharing.rs"]
mod sharing;
#[path = "swap/yielding.rs"]
mod yielding;

use std::process::ExitCode;

const PARTS: [&str; 4] = ["real", "defaults", "sharing", "yielding"];

fn main() -> ExitCode {
    let mut parts: Vec<String> = PARTS.map(str::to_owned).to_vec();
    let mut is_checked = false;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--only" => {
                let names = words.next().expect("--only is followed by a part");
                parts = names.split(',').map(str::to_owned).collect();
            }
            "--check" => is_checked = true,
            // Added by Cargo.
            "--bench" => {}
            other => panic!("{other} is not known; see the head of benches/swap.rs"),
        }
    }
    let mut missed = Vec::new();
    for part in &parts {
        match part.as_str() {
            "real" => real_engine::run(),
            "defaults" => missed.extend(defaults::run()),
            "sharing" => missed.extend(sharing::run()),
            "yielding" => missed.extend(yielding::run()),
            other => panic!("there is no part {other}, only {PARTS:?}"),
        }
    }
    if missed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("Missed: {}.", missed.join("; "));
    if is_checked {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}
