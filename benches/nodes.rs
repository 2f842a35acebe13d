//! Measures a controller with a thousand nodes and ten thousand replicas, and how quickly it decides that a node is lost. Prints a
//! Markdown table of results and aims. See docs/internals/benchmarks.md for usage.
//!
//! `cargo bench --bench nodes -- [--nodes N] [--replicas N] [--seconds N] [--load-ms N] [--check]`; with `--check` the exit status
//! is 1 if an aim is missed.

#[path = "nodes/mod.rs"]
mod nodes;

use std::process::ExitCode;
use std::time::Duration;

use nodes::Scale;

fn main() -> ExitCode {
    let mut scale = Scale::default();
    let mut is_checked = false;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().and_then(|value| value.parse::<u32>().ok());
            value.unwrap_or_else(|| panic!("{word} wants a number"))
        };
        match word.as_str() {
            "--nodes" => scale.nodes = number(),
            "--replicas" => scale.replicas = number(),
            "--seconds" => scale.seconds = u64::from(number()),
            "--load-ms" => scale.load = Duration::from_millis(u64::from(number())),
            "--check" => is_checked = true,
            // Added by Cargo.
            "--bench" => {}
            other => panic!("{other} is not known; see the head of benches/nodes.rs"),
        }
    }
    let outcome = nodes::run(&scale);
    println!("\n{}", outcome.table());
    let missed = outcome.missed();
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
