//! `--bench --ablation`: the cost of the pool without each part of its rule, relative to the complete rule, on the traces of a
//! folder and on a workload whose models in use change. Prints Markdown like the small labs' ablation.

use std::path::Path;

use super::labs::{self, Cost, PARTS};
use super::progress::{clear_progress, progress};
use super::setup::Setup;
use super::workload::{MODELS_OF_CROWD, Reading, Workload};
use super::{bench, front};
use pool::{Policy, Span, Time};
use sim::replay::{Options, run as replay};

/// The devices' memory as a share of all models, in thousandths; the same as the bench.
const CAPACITIES: [u64; 4] = [100, 200, 350, 500];
const DEVICES: [u32; 2] = [1, 4];
/// The models in use change every half hour, so the previous hour says nothing about the next.
const SHIFTING: &str = "shifting:requests=6000,days=2,models=48";
const SHIFTING_CAPACITY: u64 = 200;
const DAY_MS: f64 = 86_400_000.0;

/// Prints a table for the traces and another for the changing models, for one device and for four.
///
/// # Errors
/// A trace that cannot be read; a rule that the pool broke.
pub fn run(folder: &Path, seed: u64, seeds: u64) -> Result<(), String> {
    println!("By `model-pool` with all its parts, {seeds} seeds from {seed}:");
    for devices in DEVICES {
        let mut found = Found::new(seed, seeds);
        for trace in bench::traces() {
            for capacity in CAPACITIES {
                let called = format!("{trace} {capacity}‰ x{devices}");
                found.play(&called, |seed| {
                    bench::setup(folder, trace, seed, capacity, devices)
                })?;
            }
        }
        let title = "the traces at 10, 20, 35 and 50 % of all models";
        found.print(&format!("{}, {title}", bench::on(devices)));
    }
    for devices in DEVICES {
        let mut found = Found::new(seed, seeds);
        found.play(&format!("{SHIFTING} x{devices}"), |seed| {
            shifting(seed, devices)
        })?;
        let share = SHIFTING_CAPACITY / 10;
        found.print(&format!(
            "{}, `{SHIFTING}` at {share} %",
            bench::on(devices)
        ));
    }
    Ok(())
}

/// Models like the bench's, with other requests.
fn shifting(seed: u64, devices: u32) -> Result<Setup, String> {
    let reading = Reading {
        seed,
        from: Span::ZERO,
        to: Span(u64::MAX),
        limit: u64::MAX,
        stretch: 1.0,
        crowd: MODELS_OF_CROWD,
    };
    let workload = Workload::open(SHIFTING, reading).map_err(|fault| fault.to_string())?;
    Ok(Setup::drawn(workload, seed, devices, SHIFTING_CAPACITY))
}

/// The costs by rule, workload and seed.
struct Found {
    rules: Vec<String>,
    policies: Vec<Policy>,
    costs: Vec<Vec<Vec<Cost>>>,
    seed: u64,
    seeds: u64,
}

impl Found {
    fn new(seed: u64, seeds: u64) -> Found {
        let without = PARTS.iter().map(|(part, name)| {
            let policy = Policy::ADAPTIVE.without(*part);
            (format!("without {name}"), policy)
        });
        let (rules, policies): (Vec<String>, Vec<Policy>) =
            [("model-pool".to_owned(), Policy::ADAPTIVE)]
                .into_iter()
                .chain(without)
                .unzip();
        Found {
            costs: vec![Vec::new(); rules.len()],
            rules,
            policies,
            seed,
            seeds,
        }
    }

    /// Plays a workload with every rule. All rules get the same requests.
    fn play(
        &mut self,
        called: &str,
        setup: impl Fn(u64) -> Result<Setup, String>,
    ) -> Result<(), String> {
        let seeds = self.seed..self.seed + self.seeds;
        let setups: Vec<Setup> = seeds.map(setup).collect::<Result<_, String>>()?;
        for (nth, policy) in self.policies.iter().enumerate() {
            let label = format!("{called} {}", self.rules[nth]);
            let costs = setups.iter().map(|setup| cost(setup, *policy, &label));
            let costs: Vec<Cost> = costs.collect::<Result<_, String>>()?;
            self.costs[nth].push(costs);
        }
        Ok(())
    }

    fn print(&self, title: &str) {
        let table = labs::table(&self.rules, &self.costs, 0);
        print!("\n**{title}**\n\n{table}");
    }
}

fn cost(setup: &Setup, policy: Policy, label: &str) -> Result<Cost, String> {
    let mut scenario = setup.scenario.clone();
    scenario.limits.policy = policy;
    let arrivals = setup.arrivals().map_err(|fault| fault.to_string())?;
    let mut shown = |done: u64, now: Time| progress(label, done, now.0 as f64 / DAY_MS);
    let report = replay(&scenario, arrivals, &Options::default(), &mut shown);
    clear_progress();
    match report.broken.first() {
        Some(broken) => Err(format!("{label}: {broken}")),
        None => Ok(Cost {
            waited: front::wait_ms(&report, &scenario) * report.all.requests as f64,
            reload: report.all.reload.0 as f64,
            p99: report.waits_of_all.p99.0 as f64,
            unserved: report.all.requests.saturating_sub(report.all.served),
            requests: report.all.requests,
        }),
    }
}
