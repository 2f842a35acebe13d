//! `model-pool simulate`: runs workloads, stories and storms against the pool's core. This crate reads files and prints; `sim`
//! decides and counts.

mod ablation;
mod args;
mod batches;
pub mod bench;
pub mod compare;
mod environment;
mod forecasts;
pub mod front;
pub mod json;
pub mod labs;
mod lru_best;
pub mod models;
pub mod page;
mod progress;
mod setup;
mod shares;
pub mod shipped;
pub mod table;
mod virtual_models;
mod what_if;
pub mod workload;

pub use self::args::{SimulateArgs, UnknownModels};
pub use self::environment::{Environment, Evenings, FindDevices, FindEvenings, MachineDevices};

use std::path::Path;

use progress::{clear_progress, progress};
use sim::replay::{Report, bound};
use sim::{Storm, play};

const WHAT_TO_SIMULATE: &str = "\
name what to simulate, for example:
  model-pool simulate --workload data/model-pool.db --pool config/model-pool.yaml --gpus +2
  model-pool simulate --workload bursty:requests=50000,days=3,models=40 --capacity 25% --compare lru
  model-pool simulate --batches --count 1000   # forecasts of batches in random worlds
  model-pool simulate --count 100     # random worlds with faults, in which every rule is checked";

/// Fails if the input is invalid, a file cannot be read or written, or a storm breaks a rule.
///
/// `environment` has the devices of `--pool` on this machine, its memory, and the evening schedule.
pub fn run(args: &SimulateArgs, environment: &Environment<'_>) -> Result<(), String> {
    if let Some(path) = &args.story {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let transcript = play(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        print!("{transcript}");
        return Ok(());
    }
    if let Some(folder) = &args.bench {
        let seeds = args.count.unwrap_or(2);
        if args.ablation {
            return ablation::run(folder, args.seed, seeds);
        }
        if args.shares {
            return shares::run(folder, args.seed);
        }
        if args.forecasts {
            return forecasts::run(folder, args.seed);
        }
        if args.batches {
            return batches::traces(folder, args.seed);
        }
        shipped::run(folder, args.seed, seeds, environment.evenings)?;
        return bench::run(folder, args.seed, seeds);
    }
    if args.labs {
        let seeds = args.count.unwrap_or(8);
        return match (args.heat_map, args.ablation) {
            (true, _) => labs::heat_map(args.seed, seeds),
            (_, true) => labs::ablation(args.seed, seeds),
            _ => labs::run_all(args.seed, seeds),
        };
    }
    if let Some(spec) = &args.workload {
        return replay(spec, args, environment);
    }
    if args.batches {
        return batches::worlds(args.seed, args.count.unwrap_or(100));
    }
    match (args.count, args.seed) {
        (None, 0) => Err(WHAT_TO_SIMULATE.to_owned()),
        (count, first) => storms(first, count.unwrap_or(100)),
    }
}

fn replay(spec: &str, args: &SimulateArgs, environment: &Environment<'_>) -> Result<(), String> {
    let setup = setup::prepare(spec, args, environment)?;
    for notice in &setup.notices {
        eprintln!("{notice}");
    }
    if args.front {
        return front::show(&setup, args);
    }
    let mut policies = vec!["model-pool".to_owned()];
    let peers = args.compare.iter().filter(|name| *name != "bound");
    policies.extend(peers.cloned());
    if !policies.contains(&args.policy) {
        policies.push(args.policy.clone());
    }
    let mut reports: Vec<Report> = Vec::new();
    for policy in &policies {
        let holdings = args.html.is_some() && *policy == args.policy;
        let mut shown = |done: u64, day: f64| progress(policy, done, day);
        let report = if args.forecasts && policy == "model-pool" {
            compare::with_forecasts(&setup, holdings, &mut shown)?
        } else {
            compare::one(&setup, policy, holdings, &mut shown)?
        };
        clear_progress();
        reports.push(report);
    }
    let broken: Vec<&String> = reports.iter().flat_map(|report| &report.broken).collect();
    if let Some(first) = broken.first() {
        return Err(format!(
            "{} rules were broken, the first: {first}",
            broken.len()
        ));
    }
    if let Some(path) = &args.html {
        let page = page::render(&setup, &reports, &args.policy);
        std::fs::write(path, page).map_err(|error| format!("{}: {error}", path.display()))?;
        eprintln!("wrote {}", path.display());
    }
    let least = args.compare.iter().any(|name| name == "bound");
    let least = if least {
        Some(bound(
            &setup.scenario,
            setup.arrivals().map_err(|fault| fault.to_string())?,
        ))
    } else {
        None
    };
    match &args.json {
        Some(path) if path.as_os_str() == "-" => {
            println!("{}", json::text(&setup, &reports, least.as_ref()));
        }
        Some(path) => {
            std::fs::write(path, json::text(&setup, &reports, least.as_ref()))
                .map_err(|error| format!("{}: {error}", path.display()))?;
            print!("{}", table::text(&setup, &reports));
        }
        None => print!("{}", table::text(&setup, &reports)),
    }
    if !args.virtual_models.is_empty() {
        let own = reports.iter().find(|report| report.policy == "model-pool");
        let own = own.ok_or("--virtual compares with the policy model-pool")?;
        print!(
            "{}",
            virtual_models::compare(&setup, &args.virtual_models, own)?
        );
    }
    if args.json.as_deref() != Some(Path::new("-")) {
        print!("{}", batches::text(&setup.scenario, &reports[0]));
    }
    if args.resample.is_some() {
        print!("{}", what_if::compare(spec, args, &setup, environment)?);
    }
    if let Some(least) = least.filter(|_| args.json.is_none()) {
        println!(
            "if requests are served as they arrive, every policy spends at least {} s on loads ({} s of it on first loads)",
            least.reload.0 / 1000,
            least.first_loads.0 / 1000
        );
    }
    Ok(())
}

fn storms(first: u64, count: u64) -> Result<(), String> {
    for seed in first..first.saturating_add(count) {
        let report = Storm::new(seed).run();
        println!(
            "seed {seed}: {} requests, {} served immediately, {} after waiting, {} refused, {} loads, {} evictions, {} crashes",
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
