//! The policy benchmark: the pool against every comparable system, on every trace of a folder, at four capacities and on one, four
//! and eight devices. Prints Markdown.

use std::collections::BTreeMap;
use std::path::Path;

use super::compare;
use super::progress::{clear_progress, progress};
use super::setup::Setup;
use super::workload::{MODELS_OF_CROWD, Reading, Workload};
use pool::Span;
use sim::replay::{Report, bound};

/// The devices' memory as a share of all models, in thousandths.
pub const CAPACITIES: [u64; 4] = [100, 200, 350, 500];
const DEVICES: [u32; 3] = [1, 4, 8];
const POLICIES: [&str; 10] = [
    "lru",
    "lru-best",
    "model-pool",
    "offline",
    "fifo",
    "llama-swap",
    "llamacpp-router",
    "ollama",
    "modelmesh",
    "ncsa",
];

/// Not a policy but the minimum cost of loads; it has no waits.
const BOUND: &str = "bound";

/// A trace of the folder and its reading options.
struct Trace {
    name: &'static str,
    file: &'static str,
    stretch: f64,
    /// The rule was not tuned on it: only these traces show how well the rule generalises.
    held_out: bool,
}

/// An hour of Azure or Mooncake is stretched to a day.
const TRACES: [Trace; 5] = [
    Trace {
        name: "ServeGen m-mid",
        file: "servegen.tar.xz#m-mid",
        stretch: 1.0,
        held_out: false,
    },
    Trace {
        name: "ServeGen reason",
        file: "servegen.tar.xz#deepseek-r1",
        stretch: 1.0,
        held_out: true,
    },
    Trace {
        name: "Azure 2023 code",
        file: "azure-llm-2023-code.csv",
        stretch: 24.0,
        held_out: false,
    },
    Trace {
        name: "Azure 2023 conversation",
        file: "azure-llm-2023-conversation.csv",
        stretch: 24.0,
        held_out: true,
    },
    Trace {
        name: "Mooncake conversation",
        file: "mooncake-conversation.csv",
        stretch: 24.0,
        held_out: true,
    },
];

/// Costs relative to `lru`, one figure per cell, and the effect on requests.
#[derive(Default)]
struct Ratios {
    reload: Vec<f64>,
    wait: Vec<f64>,
    worst_reload: f64,
    worst_wait: f64,
    inversions: u64,
    cut: u64,
    unserved: u64,
}

impl Ratios {
    fn cell(&mut self, reload: f64, wait: Option<f64>) {
        self.reload.push(reload);
        self.worst_reload = self.worst_reload.max(reload);
        self.wait.extend(wait);
        self.worst_wait = self.worst_wait.max(wait.unwrap_or(0.0));
    }

    /// All traces count equally, whatever their number of cells. The worst value is the worst of all cells.
    fn trace(&mut self, own: &Ratios) {
        self.reload.push(mean(&own.reload));
        if !own.wait.is_empty() {
            self.wait.push(mean(&own.wait));
        }
        self.worst_reload = self.worst_reload.max(own.worst_reload);
        self.worst_wait = self.worst_wait.max(own.worst_wait);
        self.inversions += own.inversions;
        self.cut += own.cut;
        self.unserved += own.unserved;
    }
}

pub fn run(folder: &Path, seed: u64, seeds: u64) -> Result<(), String> {
    println!(
        "**Without keep-hot times**: ratios to `lru` (least recently used on the device with most free memory): geometric means over capacities of 10, 20, 35 and 50 % of all models and {seeds} seeds from {seed}.\n"
    );
    for count in DEVICES {
        println!("\n**{}**\n", on(count));
        println!(
            "| trace | policy | reload | worst | wait | worst | inversions | cut | not served |"
        );
        println!("|---|---|--:|--:|--:|--:|--:|--:|--:|");
        let mut overall: BTreeMap<&str, Ratios> = BTreeMap::new();
        let mut held_out: BTreeMap<&str, Ratios> = BTreeMap::new();
        for trace in &TRACES {
            let mut ratios: BTreeMap<&str, Ratios> = BTreeMap::new();
            for seed in seed..seed + seeds {
                for capacity in CAPACITIES {
                    cell(folder, trace, seed, capacity, count, &mut ratios)?;
                }
            }
            for policy in POLICIES.into_iter().chain([BOUND]) {
                let own = &ratios[policy];
                row(trace.name, policy, own);
                overall.entry(policy).or_default().trace(own);
                if trace.held_out {
                    held_out.entry(policy).or_default().trace(own);
                }
            }
        }
        for (name, ratios) in [("**held out**", &held_out), ("**all**", &overall)] {
            for policy in POLICIES.into_iter().chain([BOUND]) {
                row(name, policy, &ratios[policy]);
            }
        }
    }
    Ok(())
}

/// A trace of the folder, by its name in the tables, on devices that hold this share of its models.
///
/// # Errors
/// There is no such trace, or its file cannot be read.
pub fn setup(
    folder: &Path,
    name: &str,
    seed: u64,
    capacity_permille: u64,
    devices: u32,
) -> Result<Setup, String> {
    let trace = TRACES.iter().find(|trace| trace.name == name);
    let trace = trace.ok_or_else(|| format!("there is no trace `{name}`"))?;
    prepared(folder, trace, seed, capacity_permille, devices)
}

/// The names of the traces in the tables.
pub fn traces() -> impl Iterator<Item = &'static str> {
    TRACES.iter().map(|trace| trace.name)
}

fn prepared(
    folder: &Path,
    trace: &Trace,
    seed: u64,
    capacity: u64,
    devices: u32,
) -> Result<Setup, String> {
    let reading = Reading {
        seed,
        from: Span::ZERO,
        to: Span(u64::MAX),
        limit: u64::MAX,
        stretch: trace.stretch,
        crowd: MODELS_OF_CROWD,
    };
    let spec = folder.join(trace.file);
    let workload =
        Workload::open(&spec.to_string_lossy(), reading).map_err(|fault| fault.to_string())?;
    Ok(Setup::drawn(workload, seed, devices, capacity))
}

fn cell(
    folder: &Path,
    trace: &Trace,
    seed: u64,
    capacity: u64,
    devices: u32,
    ratios: &mut BTreeMap<&str, Ratios>,
) -> Result<(), String> {
    let setup = prepared(folder, trace, seed, capacity, devices)?;
    let mut lru: Option<Report> = None;
    let arrivals = setup.arrivals().map_err(|fault| fault.to_string())?;
    let least = bound(&setup.scenario, arrivals).reload;
    for policy in POLICIES {
        let name = format!("{} {capacity}‰ x{devices} {policy}", trace.name);
        let report = compare::one(&setup, policy, false, &mut |done, day| {
            progress(&name, done, day)
        })?;
        clear_progress();
        if let Some(broken) = report.broken.first() {
            return Err(format!("{name}: {broken}"));
        }
        let base = lru.get_or_insert_with(|| report.clone());
        let own = ratios.entry(policy).or_default();
        let per = |report: &Report| report.all.reload.0 as f64 / report.all.requests.max(1) as f64;
        let wait = |report: &Report| report.all.waits.mean.0.max(1) as f64;
        own.cell(
            per(&report) / per(base).max(1e-9),
            Some(wait(&report) / wait(base)),
        );
        own.inversions += report.inversions;
        own.cut += report.cut;
        own.unserved += report.all.requests - report.all.served;
    }
    let base = lru.map_or(0, |lru| lru.all.reload.0).max(1);
    let own = ratios.entry(BOUND).or_default();
    own.cell(least.0 as f64 / base as f64, None);
    Ok(())
}

fn row(trace: &str, policy: &str, ratios: &Ratios) {
    let worst = ratios.worst_reload;
    if ratios.wait.is_empty() {
        println!(
            "| {trace} | {policy} | {:.3} | {worst:.3} | | | | | |",
            mean(&ratios.reload)
        );
        return;
    }
    println!(
        "| {trace} | {policy} | {:.3} | {worst:.3} | {:.3} | {:.3} | {} | {} | {} |",
        mean(&ratios.reload),
        mean(&ratios.wait),
        ratios.worst_wait,
        ratios.inversions,
        ratios.cut,
        ratios.unserved
    );
}

pub(crate) fn on(devices: u32) -> String {
    format!("{devices} device{}", if devices == 1 { "" } else { "s" })
}

/// The geometric mean.
pub(crate) fn mean(ratios: &[f64]) -> f64 {
    let sum: f64 = ratios.iter().map(|ratio| ratio.max(1e-9).ln()).sum();
    (sum / ratios.len().max(1) as f64).exp()
}
