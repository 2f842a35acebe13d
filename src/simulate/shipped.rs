//! The first tables of `--bench`: the pool with its default configuration and with other keep-hot settings, and peers with the
//! settings that they ship with (`sim::replay` names the sources), on every trace. Prints Markdown.

use std::path::Path;

use serde_json::json;

use super::bench::{self, CAPACITIES};
use super::compare;
use super::environment::FindEvenings;
use super::progress::{clear_progress, progress};
use super::setup::{Setup, evening, with_keys};
use super::table::{energy_kwh, short};
use config::Config;
use pool::{Span, Time};
use sim::replay::{Report, Scenario};

const DEVICES: [u32; 2] = [1, 4];

/// The keep-hot settings of the pool in the tables, as `pool:` in the configuration. The first one is the default.
fn settings() -> Vec<(&'static str, serde_json::Value)> {
    vec![
        ("model-pool", json!({})),
        (
            "model-pool, keep_hot_scope: device",
            json!({ "keep_hot_scope": "device" }),
        ),
        ("model-pool, adaptive", json!({ "keep_hot": "adaptive" })),
        (
            "model-pool, until_needed",
            json!({ "keep_hot": "until_needed" }),
        ),
    ]
}

const PEERS: [&str; 5] = [
    "llamacpp-router",
    "ollama",
    "llama-swap",
    "modelmesh",
    "ncsa",
];

/// The totals of a setting over the cells of a trace.
#[derive(Clone, Debug, Default)]
struct Totals {
    requests: u64,
    waited_ms: f64,
    wait_ratios: Vec<f64>,
    p99_ratios: Vec<f64>,
    loads: u64,
    empty_seconds: u64,
    device_seconds: u64,
    held_gib_seconds: u64,
    energy_kwh: f64,
    unserved: u64,
}

impl Totals {
    fn add(&mut self, report: &Report, shipped: &Report) {
        let all = &report.all;
        let mean = |report: &Report| report.waits_of_all.mean.0 as f64 + 1.0;
        let slowest = |report: &Report| report.waits_of_all.p99.0 as f64 + 1.0;
        self.requests += all.requests;
        self.waited_ms += report.waits_of_all.mean.0 as f64 * all.requests as f64;
        self.wait_ratios.push(mean(report) / mean(shipped));
        self.p99_ratios.push(slowest(report) / slowest(shipped));
        self.loads += all.loads;
        self.empty_seconds += report.device_seconds_empty;
        self.device_seconds += report.device_seconds_in_all();
        self.held_gib_seconds += all.held_gib_seconds;
        self.energy_kwh += energy_kwh(report);
        self.unserved += all.requests.saturating_sub(all.served);
    }

    fn join(&mut self, other: &Totals) {
        self.requests += other.requests;
        self.waited_ms += other.waited_ms;
        self.wait_ratios.extend(&other.wait_ratios);
        self.p99_ratios.extend(&other.p99_ratios);
        self.loads += other.loads;
        self.empty_seconds += other.empty_seconds;
        self.device_seconds += other.device_seconds;
        self.held_gib_seconds += other.held_gib_seconds;
        self.energy_kwh += other.energy_kwh;
        self.unserved += other.unserved;
    }

    fn row(&self, trace: &str, name: &str) -> String {
        let wait = Span((self.waited_ms / self.requests.max(1) as f64) as u64);
        let worst = self.wait_ratios.iter().copied().fold(0.0, f64::max);
        format!(
            "| {trace} | {name} | {} | {:.2} | {worst:.2} | {:.2} | {} | {:.1} % | {} | {:.1} | {} |",
            short(wait),
            bench::mean(&self.wait_ratios),
            bench::mean(&self.p99_ratios),
            self.loads,
            100.0 * self.empty_seconds as f64 / self.device_seconds.max(1) as f64,
            self.held_gib_seconds / 3600,
            self.energy_kwh,
            self.unserved,
        )
    }
}

/// # Errors
/// A trace that cannot be read; a rule that the pool broke.
pub fn run(folder: &Path, seed: u64, seeds: u64, evenings: FindEvenings<'_>) -> Result<(), String> {
    println!(
        "**As shipped**: all traces with the default configuration, at 10, 20, 35 and 50 % of all models, {seeds} seeds from {seed}. Each trace begins at midnight. Peers have the keep-alive times that they ship with. An unserved request counts with its full `queue_timeout`.\n"
    );
    for devices in DEVICES {
        println!("\n**{}**\n", bench::on(devices));
        println!(
            "| trace | setting | wait | by the default | worst | p99 by the default | loads | empty devices | GiB·h held | kWh | not served |"
        );
        println!("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
        let mut overall: Vec<(&str, Totals)> =
            names().map(|name| (name, Totals::default())).collect();
        for trace in bench::traces() {
            let mut of_trace: Vec<Totals> = vec![Totals::default(); overall.len()];
            for seed in seed..seed + seeds {
                for capacity in CAPACITIES {
                    let setup = bench::setup(folder, trace, seed, capacity, devices)?;
                    let called = format!("{trace} {capacity}‰ x{devices}");
                    cell(&setup, evenings, &called, &mut of_trace)?;
                }
            }
            for ((name, all), own) in overall.iter_mut().zip(&of_trace) {
                println!("{}", own.row(trace, name));
                all.join(own);
            }
        }
        for (name, totals) in &overall {
            println!("{}", totals.row("**all**", name));
        }
    }
    println!();
    Ok(())
}

fn names() -> impl Iterator<Item = &'static str> {
    let settings = settings().into_iter().map(|(name, _)| name);
    settings.chain(PEERS)
}

/// Plays every setting and every peer on the same requests.
fn cell(
    setup: &Setup,
    evenings: FindEvenings<'_>,
    called: &str,
    totals: &mut [Totals],
) -> Result<(), String> {
    let settings = settings();
    let own = settings.iter().map(|(_, keys)| (keys, "model-pool"));
    let default = json!({});
    let peers = PEERS.iter().map(|peer| (&default, *peer));
    let last = setup.arrivals().map_err(|fault| fault.to_string())?.last();
    let length = Span(last.map_or(Time(0), |last| last.at).0);
    let mut shipped: Option<Report> = None;
    for ((keys, policy), totals) in own.chain(peers).zip(totals) {
        let scenario = configured(setup, keys, evenings, length)?;
        let label = format!("{called} {policy}");
        let report = compare::on(setup, &scenario, policy, &mut |done, day| {
            progress(&label, done, day);
        })?;
        clear_progress();
        if let Some(broken) = report.broken.first() {
            return Err(format!("{label}: {broken}"));
        }
        let shipped = shipped.get_or_insert_with(|| report.clone());
        totals.add(&report, shipped);
    }
    Ok(())
}

/// The scenario of a workload under the default configuration with these keys of `pool`.
fn configured(
    setup: &Setup,
    keys: &serde_json::Value,
    evenings: FindEvenings<'_>,
    length: Span,
) -> Result<Scenario, String> {
    let config: Config =
        serde_json::from_value(json!({ "pool": keys })).map_err(|error| error.to_string())?;
    let models = setup.scenario.models.iter().cloned();
    let mut scenario = Scenario {
        models: models.map(|model| with_keys(model, &config)).collect(),
        limits: config.limits(),
        ..setup.scenario.clone()
    };
    evening::apply(&mut scenario, &config, evenings(&config, None, length)?);
    Ok(scenario)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::replay::{Tally, Waits};

    #[test]
    fn every_shipped_setting_parses_and_only_the_first_is_the_default() {
        for (name, keys) in settings() {
            let config: Config = serde_json::from_value(json!({ "pool": keys })).expect(name);
            let is_default = config.pool == Config::default().pool;
            assert_eq!(is_default, name == "model-pool", "{name}");
        }
    }

    #[test]
    fn a_row_has_the_ratios_to_the_default() {
        let report = |mean: u64, empty: u64| Report {
            all: Tally {
                requests: 10,
                served: 9,
                loads: 3,
                held_gib_seconds: 9_000,
                ..Tally::default()
            },
            waits_of_all: Waits {
                mean: Span(mean),
                p99: Span(mean * 10 + 9),
                ..Waits::default()
            },
            to: Time(3_600_000),
            devices: 1,
            device_seconds_empty: empty,
            ..Report::default()
        };
        let mut totals = Totals::default();
        totals.add(&report(199, 900), &report(99, 1800));
        let row = totals.row("trace", "a");
        let expected = "| trace | a | 199 ms | 2.00 | 2.00 | 2.00 | 3 | 25.0 % | 2 | 0.0 | 1 |";
        assert_eq!(row, expected);
    }
}
