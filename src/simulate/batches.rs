//! `--batches`: batches next to the requests of a workload. Random worlds compare the forecasts of batches with their ends;
//! with `--bench`, the batches of eight models run next to every trace of a folder.

use std::fmt::Write;
use std::path::Path;

use super::bench::{self, CAPACITIES};
use super::compare;
use super::progress::{clear_progress, progress};
use super::setup::Setup;
use super::table::short;
use pool::{BatchEnd, ModelId, Span, Time};
use sim::replay::{BatchArrival, BatchReport, Report, Scenario, least_batch_loads};
use sim::{BatchTotals, BatchWorld};

/// The most loads for batches, in thousandths of the forced ones, and the least share of kept forecasts.
const LOADS_PERMILLE_MAX: u64 = 1_200;
const KEPT_PERMILLE_MIN: u64 = 990;
/// The models with batches next to a trace.
const MODELS: usize = 8;
const LINES: u64 = 2_000;
const SERVICE: Span = Span::from_secs(5);
const WINDOW: Span = Span::from_secs(24 * 3_600);
const DEVICES: [u32; 2] = [1, 4];
/// One world out of this number has its invariants checked.
const CHECKED: u64 = 10;

/// Plays random worlds and prints how many forecasts were right.
///
/// # Errors
/// A broken rule, or fewer right forecasts or more loads than promised.
pub fn worlds(first: u64, count: u64) -> Result<(), String> {
    let mut totals = BatchTotals::default();
    for seed in first..first.saturating_add(count) {
        let check_every = if seed.is_multiple_of(CHECKED) { 7 } else { 0 };
        let report = BatchWorld::new(seed).run(check_every);
        if let Some(broken) = report.broken.first() {
            return Err(format!("seed {seed}: {broken}"));
        }
        let Some(batches) = report.batches else {
            continue;
        };
        for batch in &batches.batches {
            if batch.will_hold() == Some(true) && batch.ended.is_none() {
                println!("seed {seed}: {}", of_batch(batch, "a model"));
            }
        }
        totals.add(&batches);
    }
    println!("{count} worlds from seed {first}: {}", totals.text());
    let (kept, loads) = (totals.kept_permille(), totals.loads_permille());
    if kept < KEPT_PERMILLE_MIN || loads > LOADS_PERMILLE_MAX {
        return Err(format!(
            "{:.1} % of the forecasts \"will hold\" did, and at least {:.1} % should; {:.2} loads for each forced one, and at most {:.2} should be",
            kept as f64 / 10.0,
            KEPT_PERMILLE_MIN as f64 / 10.0,
            loads as f64 / 1_000.0,
            LOADS_PERMILLE_MAX as f64 / 1_000.0,
        ));
    }
    Ok(())
}

/// Prints a line for each trace, capacity and number of devices.
///
/// # Errors
/// A trace that cannot be read; a broken rule, or more loads than promised.
pub fn traces(folder: &Path, seed: u64) -> Result<(), String> {
    println!(
        "| trace | devices | models that fit | loads for batches | forced | ratio | offline minimum | ratio | requests of batches | batches in time | wait mean without | with | p99 without | with |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
    let mut worst: u64 = 0;
    let (mut loads, mut least_loads): (u64, u64) = (0, 0);
    for trace in bench::traces() {
        for devices in DEVICES {
            for capacity in CAPACITIES {
                let label = format!("{trace} {capacity}‰ x{devices}");
                let setup = bench::setup(folder, trace, seed, capacity, devices)?;
                let play = |scenario: &Scenario, holdings: bool| {
                    let mut shown = |done, day| progress(&label, done, day);
                    let report = compare::with_batches(&setup, scenario, holdings, &mut shown)?;
                    clear_progress();
                    match report.broken.first() {
                        Some(broken) => Err(format!("{label}: {broken}")),
                        None => Ok(report),
                    }
                };
                let without = play(&setup.scenario, true)?;
                let scenario = with_batches(&setup);
                let with = play(&scenario, false)?;
                let batches = with.batches.clone().unwrap_or_default();
                let mut totals = BatchTotals::default();
                totals.add(&batches);
                worst = worst.max(totals.loads_permille());
                let least = least_batch_loads(&scenario, &without.holdings, &batches.batches);
                loads += totals.loads;
                least_loads += least;
                println!(
                    "| {trace} | {devices} | {} % | {} | {} | {:.2} | {least} | {:.2} | {:.1} % | {} of {} | {} | {} | {} | {} |",
                    capacity / 10,
                    totals.loads,
                    totals.forced,
                    totals.loads_permille() as f64 / 1_000.0,
                    totals.loads as f64 / least.max(1) as f64,
                    done_percent(&batches),
                    totals.held,
                    totals.batches,
                    short(without.all.waits.mean),
                    short(with.all.waits.mean),
                    short(without.all.waits.p99),
                    short(with.all.waits.p99),
                );
            }
        }
    }
    println!(
        "\n{loads} loads for batches, {:.2} for each of the {least_loads} of the offline minimum, which is the sum of lower bounds for each model",
        loads as f64 / least_loads.max(1) as f64
    );
    if worst > LOADS_PERMILLE_MAX {
        return Err(format!(
            "{:.2} loads for each forced one, and at most {:.2} should be",
            worst as f64 / 1_000.0,
            LOADS_PERMILLE_MAX as f64 / 1_000.0
        ));
    }
    Ok(())
}

/// The scenario of a trace with the batches of eight models, which are created in the first minute.
fn with_batches(setup: &Setup) -> Scenario {
    let models = setup.scenario.models.len();
    let count = MODELS.min(models);
    let batch = |nth: usize| BatchArrival {
        at: Time(nth as u64 * 1_000),
        model: ModelId((nth * models / count) as u32),
        lines: LINES,
        service: SERVICE,
        window: WINDOW,
    };
    Scenario {
        batches: (0..count).map(batch).collect(),
        ..setup.scenario.clone()
    }
}

fn done_percent(report: &BatchReport) -> f64 {
    let all: u64 = report.batches.iter().map(|batch| batch.arrival.lines).sum();
    let left: u64 = report.batches.iter().map(|batch| batch.left).sum();
    100.0 * all.saturating_sub(left) as f64 / all.max(1) as f64
}

/// The batches of a replay, for people.
pub(crate) fn text(scenario: &Scenario, report: &Report) -> String {
    let Some(batches) = &report.batches else {
        return String::new();
    };
    let mut out = String::new();
    for batch in &batches.batches {
        let name = &scenario.models[batch.arrival.model.0 as usize].name;
        let _ = writeln!(out, "{}", of_batch(batch, name));
    }
    let _ = writeln!(
        out,
        "{} loads for batches, {} of them forced; {} evictions of replicas that served only batches",
        batches.loads, batches.forced, batches.evicted
    );
    out
}

fn of_batch(batch: &sim::replay::BatchResult, name: &str) -> String {
    let arrival = &batch.arrival;
    let since = |at: Time| short(at.since(arrival.at));
    let end = match batch.ended {
        Some(at) => format!("ended after {}", since(at)),
        None => format!("expired with {} requests left", batch.left),
    };
    let forecast = match (batch.will_hold(), batch.forecast) {
        (Some(true), BatchEnd::At { latest, .. }) => {
            format!("forecast: will hold, at the latest after {}", since(latest))
        }
        (Some(_), BatchEnd::At { expected, .. }) => {
            format!("forecast: may not hold, expected after {}", since(expected))
        }
        (Some(_), _) => "forecast: will not run".to_owned(),
        (None, _) => "no forecast".to_owned(),
    };
    format!(
        "batch of {} requests for {name}, window {}: {end}; {forecast}",
        arrival.lines,
        short(arrival.window)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{MODELS_OF_CROWD, Reading, Workload};

    fn setup(devices: u32) -> Setup {
        let reading = Reading {
            seed: 1,
            from: Span::ZERO,
            to: Span(u64::MAX),
            limit: u64::MAX,
            stretch: 1.0,
            crowd: MODELS_OF_CROWD,
        };
        let spec = "diurnal:requests=1500,days=1,models=12";
        let workload = Workload::open(spec, reading).expect("generated");
        Setup::drawn(workload, 1, devices, 350)
    }

    #[test]
    fn batches_of_eight_models_are_loaded_as_often_as_forced_and_keep_no_request_waiting() {
        for devices in [1, 4] {
            let setup = setup(devices);
            let play = |scenario: &Scenario| {
                compare::on(&setup, scenario, "model-pool", &mut |_, _| {}).expect("played")
            };
            let without = play(&setup.scenario);
            let with = play(&with_batches(&setup));
            let batches = with.batches.as_ref().expect("it has batches");
            assert_eq!(batches.batches.len(), MODELS);
            let mut totals = BatchTotals::default();
            totals.add(batches);
            assert!(totals.loads >= 1 && totals.loads_permille() <= LOADS_PERMILLE_MAX);
            assert_eq!(with.all.served, without.all.served);
            let (with, without) = (with.all.waits.mean.0, without.all.waits.mean.0);
            assert!(with <= without + without / 10, "{with} {without}");
        }
    }
}
