//! Runs one policy on one prepared replay: the production core, or a peer's rule by its name.

use super::lru_best::LruBest;
use super::setup::Setup;
use pool::{Span, Time};
use sim::replay::{
    Fifo, LlamaCppRouter, LlamaSwap, Lru, ModelMesh, Ncsa, Offline, Ollama, Options, RIVALS,
    Report, run, run_rival,
};

/// Interval of the curve of waits.
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
    let options = Options {
        holdings,
        curve_step: CURVE_STEP,
        check_every: 0,
    };
    let arrivals = || setup.arrivals().map_err(|fault| fault.to_string());
    let mut progress = |done: u64, now: Time| progress(done, now.0 as f64 / DAY_MS);
    let (scene, progress) = (&setup.scene, &mut progress);
    Ok(match policy {
        "model-pool" => run(scene, arrivals()?, &options, progress),
        "lru" => run_rival(scene, Lru, arrivals()?, &options, progress),
        "lru-best" => run_rival(scene, LruBest, arrivals()?, &options, progress),
        "fifo" => run_rival(scene, Fifo, arrivals()?, &options, progress),
        "llama-swap" => run_rival(scene, LlamaSwap, arrivals()?, &options, progress),
        "llamacpp-router" => run_rival(scene, LlamaCppRouter, arrivals()?, &options, progress),
        "ollama" => run_rival(scene, Ollama, arrivals()?, &options, progress),
        "modelmesh" => run_rival(scene, ModelMesh, arrivals()?, &options, progress),
        "ncsa" => run_rival(scene, Ncsa, arrivals()?, &options, progress),
        "offline" => {
            let uses = arrivals()?.map(|arrival| (arrival.at, arrival.model));
            let rule = Offline::new(scene.models.len(), uses);
            run_rival(scene, rule, arrivals()?, &options, progress)
        }
        other => {
            return Err(format!(
                "there is no policy `{other}`; the policies are model-pool, lru-best, {}",
                RIVALS.join(", ")
            ));
        }
    })
}
