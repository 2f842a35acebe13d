//! Decides which weights to fetch next and which fetches to end.

use crate::facts::state::Pool;
use crate::types::decision::Decision;
use crate::types::reason::StopReason;

/// Ends fetches before it begins new ones. A fetch continues after its requests have left, to shorten the wait of the next request.
pub(crate) fn next(pool: &Pool) -> Option<Decision> {
    let ended = pool.models.fetching().iter().find_map(|&model| {
        let fetching = &pool.models[&model];
        let fetch = fetching.fetch.as_ref().filter(|fetch| !fetch.cancel_sent)?;
        let removed = fetching.removed.then_some(StopReason::Removed);
        let reason = fetch.ends.clone().or(removed)?;
        Some(Decision::EndFetch { model, reason })
    });
    if ended.is_some() || pool.service.is_closing() {
        return ended;
    }
    let mut wanted = pool.demand_index.to_fetch().iter();
    let (&model, why) = wanted.find(|(model, _)| pool.models[model].fetch.is_none())?;
    Some(match pool.models[&model].spec.no_program.clone() {
        Some(message) => Decision::FailLoad { model, message },
        None => Decision::Fetch {
            model,
            why: why.clone(),
        },
    })
}
