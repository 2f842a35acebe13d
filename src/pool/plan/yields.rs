//! Decides when an idle replica of higher priority, below always-hot, yields to a model of lower priority (P6). Read-only.

use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::plan::claim::Claim;
use crate::types::ids::Span;
use crate::types::model::IdleYields;
use crate::types::obstacle::Protection;
use crate::types::replica::Replica;

/// With `auto`, a replica of higher priority yields after this many times the time that it takes to stop and to load
/// again (P6).
const SWAPS_UNTIL_YIELD: u64 = 3;

/// The protection of a replica of higher priority that is not always-hot (P2, P6).
pub(crate) fn above(
    pool: &Pool,
    claim: &Claim,
    replica: &Replica,
    model: &Model,
) -> Option<Protection> {
    let higher = Some(Protection::HigherPriority);
    let Some(after) = yields_after(pool, model) else {
        return higher;
    };
    if claim.requirements.is_gentle || model.over.keep_hot.is_some() || !model.queue.is_empty() {
        return higher;
    }
    let Some(since) = replica.idle_since() else {
        return higher;
    };
    let left = Span(after.0.saturating_sub(pool.now.since(since).0));
    (left > Span::ZERO).then_some(Protection::Yields { left })
}

/// The time for which a replica of the model has to be idle before it yields (P6); `None` if it never does.
pub(crate) fn yields_after(pool: &Pool, model: &Model) -> Option<Span> {
    match pool.limits.idle_yields {
        IdleYields::Never => None,
        IdleYields::After(idle) => Some(idle),
        IdleYields::Auto => {
            // An estimate learned from other models could be too short for a higher priority. But no request waits for a guess that
            // is longer than three usual swaps.
            let guess = match pool.load_estimates.median_swap {
                Some(median) if model.load_is_guessed() => model.spec.reload.min(median),
                _ => model.spec.reload,
            };
            let load = model.load_times.expected().unwrap_or(guess);
            let swap = load + model.stop_takes;
            Some(Span(swap.0.saturating_mul(SWAPS_UNTIL_YIELD)))
        }
    }
}
