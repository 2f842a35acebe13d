//! Runs a policy on a prepared replay: the production core, or another system's rule by name.

use super::lru_best::LruBest;
use super::setup::Setup;
use pool::{Span, Time};
use sim::replay::{
    BASELINES, Fifo, LlamaCppRouter, LlamaSwap, Lru, ModelMesh, Ncsa, Offline, Ollama, Options,
    Report, Scenario, run, run_baseline,
};

/// The interval of the curve of waits.
const CURVE_STEP: Span = Span::from_secs(1800);
const DAY_MS: f64 = 86_400_000.0;

/// # Errors
/// An unknown policy, with the known ones; a workload that can no longer be read.
pub fn one(
    setup: &Setup,
    policy: &str,
    holdings: bool,
    progress: &mut dyn FnMut(u64, f64),
) -> Result<Report, String> {
    let options = options(holdings);
    play(setup, &setup.scenario, policy, &options, progress)
}

fn options(holdings: bool) -> Options {
    Options {
        holdings,
        curve_step: CURVE_STEP,
        ..Options::default()
    }
}

/// The pool, with a forecast for each request that waits.
pub(crate) fn with_forecasts(
    setup: &Setup,
    holdings: bool,
    progress: &mut dyn FnMut(u64, f64),
) -> Result<Report, String> {
    let options = Options {
        forecast_every: 1,
        ..options(holdings)
    };
    play(setup, &setup.scenario, "model-pool", &options, progress)
}

/// The pool on a scenario with batches or without, perhaps with the stay of every replica.
pub(crate) fn with_batches(
    setup: &Setup,
    scenario: &Scenario,
    holdings: bool,
    progress: &mut dyn FnMut(u64, f64),
) -> Result<Report, String> {
    let options = Options {
        holdings,
        ..Options::default()
    };
    play(setup, scenario, "model-pool", &options, progress)
}

/// The same on a changed scenario, with totals alone.
pub(crate) fn on(
    setup: &Setup,
    scenario: &Scenario,
    policy: &str,
    progress: &mut dyn FnMut(u64, f64),
) -> Result<Report, String> {
    play(setup, scenario, policy, &Options::default(), progress)
}

fn play(
    setup: &Setup,
    scenario: &Scenario,
    policy: &str,
    options: &Options,
    progress: &mut dyn FnMut(u64, f64),
) -> Result<Report, String> {
    let arrivals = || setup.arrivals().map_err(|fault| fault.to_string());
    let mut progress = |done: u64, now: Time| progress(done, now.0 as f64 / DAY_MS);
    let progress = &mut progress;
    Ok(match policy {
        "model-pool" => run(scenario, arrivals()?, options, progress),
        "lru" => run_baseline(scenario, Lru, arrivals()?, options, progress),
        "lru-best" => run_baseline(scenario, LruBest, arrivals()?, options, progress),
        "fifo" => run_baseline(scenario, Fifo, arrivals()?, options, progress),
        "llama-swap" => run_baseline(scenario, LlamaSwap, arrivals()?, options, progress),
        "llamacpp-router" => run_baseline(scenario, LlamaCppRouter, arrivals()?, options, progress),
        "ollama" => run_baseline(scenario, Ollama, arrivals()?, options, progress),
        "modelmesh" => run_baseline(scenario, ModelMesh, arrivals()?, options, progress),
        "ncsa" => run_baseline(scenario, Ncsa, arrivals()?, options, progress),
        "offline" => {
            let uses = arrivals()?.map(|arrival| (arrival.at, arrival.model));
            let rule = Offline::new(scenario.models.len(), uses);
            run_baseline(scenario, rule, arrivals()?, options, progress)
        }
        other => {
            return Err(format!(
                "there is no policy `{other}`; the policies are model-pool, lru-best, {}",
                BASELINES.join(", ")
            ));
        }
    })
}
