//! Which weights are fetched next, and which fetches end.

use crate::facts::state::Pool;
use crate::types::decision::Decision;
use crate::types::reason::StopReason;

/// Fetches that nobody shall wait for any more, then those that somebody waits for. One that has begun
/// goes on when whoever asked has left: the next one who asks finds it further on.
pub(crate) fn next(pool: &Pool) -> Option<Decision> {
    let ended = pool.fetching.iter().find_map(|&model| {
        let it = &pool.models[&model];
        let fetch = it.fetch.as_ref().filter(|fetch| !fetch.told)?;
        let removed = it.removed.then_some(StopReason::Removed);
        let reason = fetch.ends.clone().or(removed)?;
        Some(Decision::EndFetch { model, reason })
    });
    if ended.is_some() || pool.closing.is_some() {
        return ended;
    }
    let mut wanted = pool.wants.to_fetch.iter();
    let (&model, why) = wanted.find(|(model, _)| pool.models[model].fetch.is_none())?;
    Some(Decision::Fetch {
        model,
        why: why.clone(),
    })
}
