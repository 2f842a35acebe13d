//! `model-pool simulate`: stories and storms against the pool's core, for people.

use crate::cli::SimulateArgs;
use crate::sim::{Storm, play};

/// Fails if a story makes no sense, or a storm breaks a rule.
pub fn run(args: &SimulateArgs) -> Result<(), String> {
    if let Some(path) = &args.story {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let told = play(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        print!("{told}");
        return Ok(());
    }
    for seed in args.seed..args.seed.saturating_add(args.count) {
        let report = Storm::new(seed).run();
        println!(
            "seed {seed}: {} requests, {} seated at once, {} after waiting, {} refused, {} loads, {} evictions, {} crashes",
            report.requests,
            report.seated_by_gate,
            report.granted,
            report.refused,
            report.launches,
            report.evictions,
            report.crashes
        );
        if !report.broken.is_empty() {
            return Err(format!(
                "seed {seed} breaks rules: {}",
                report.broken.join("; ")
            ));
        }
    }
    Ok(())
}
