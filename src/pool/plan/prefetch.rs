//! Which models that are not loaded are likely to be needed soon, so that their weights can be read into the host's
//! memory while the disk is idle, which of them is read next, and how much may be read.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::facts::state::{Model, Pool};
use crate::types::ids::{Bytes, ModelId, Span, Time};
use crate::types::model::Tier;

/// A smaller chance is not worth the wear of reading.
const CHANCE_LEAST_PER_MILLE: u32 = 100;
/// The time for which demand is predicted.
const WITHIN: Span = Span::from_secs(600);
/// The same weights are not read again sooner: if they did not stay, there is no room for them.
const AGAIN_AFTER: Span = Span::from_secs(600);

/// A model that may be needed soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefetchCandidate {
    pub model: ModelId,
    /// The chance that a request for it comes within the given time.
    pub chance_per_mille: u32,
    /// How much sooner it would be ready.
    pub saves: Span,
}

/// When the weights of each model were last read ahead.
#[derive(Clone, Debug, Default)]
pub struct ReadAheadHistory(BTreeMap<ModelId, Time>);

impl ReadAheadHistory {
    /// The next model whose weights to read, which counts as read from now on. `has_weights`: its weights are files of
    /// this machine.
    pub fn choose(
        &mut self,
        pool: &Pool,
        now: Time,
        has_weights: impl Fn(ModelId) -> bool,
    ) -> Option<PrefetchCandidate> {
        self.0.retain(|_, read| now.since(*read) < AGAIN_AFTER);
        let candidates = pool.likely(now, WITHIN).into_iter();
        let mut new = candidates.filter(|it| !self.0.contains_key(&it.model));
        let next = new.find(|it| has_weights(it.model))?;
        self.0.insert(next.model, now);
        Some(next)
    }
}

/// How much may be read ahead of what the machine has available: half of what is beyond the reserve, because reading
/// drives other files out of the page cache.
pub fn read_ahead_budget(available: Bytes, reserve: Bytes) -> Bytes {
    Bytes(available.saturating_sub(reserve).0 / 2)
}

impl Pool {
    /// The models whose weights to read ahead, by the time that saves on average, largest first. Empty while
    /// anything is loading or waits to load: those need the disk.
    fn likely(&self, now: Time, within: Span) -> Vec<PrefetchCandidate> {
        let loads = !self.reading.is_empty() || !self.planned.is_empty();
        if loads || self.closing.is_some() {
            return Vec::new();
        }
        let mut found: Vec<PrefetchCandidate> = self
            .models
            .iter()
            .filter_map(|(&id, model)| likely(id, model, now.max(self.now), within))
            .collect();
        let worth =
            |it: &PrefetchCandidate| it.saves.0.saturating_mul(u64::from(it.chance_per_mille));
        found.sort_by_key(|it| (Reverse(worth(it)), it.model));
        found
    }
}

fn likely(id: ModelId, model: &Model, now: Time, within: Span) -> Option<PrefetchCandidate> {
    // A replica that serves, loads or sleeps has read its weights already.
    let is_cold = model.replicas.is_empty() && !model.removed && model.last_failure.is_none();
    let idle = now.since(model.last_used.filter(|_| is_cold)?);
    let chance_per_mille = model.demand.chance(idle, within)?;
    let saves = model.saved_by_page_cache();
    let worthwhile = chance_per_mille >= CHANCE_LEAST_PER_MILLE && saves > Span::ZERO;
    worthwhile.then_some(PrefetchCandidate {
        model: id,
        chance_per_mille,
        saves,
    })
}

impl Model {
    /// As measured; until both are measured, half of a load is assumed to be reading.
    fn saved_by_page_cache(&self) -> Span {
        let of = |tier| self.load_times.of(tier);
        let cold = of(Tier::Disk).max(of(Tier::Network));
        let whole = cold.unwrap_or_else(|| self.reload());
        match of(Tier::PageCache) {
            Some(warm) => Span(whole.0.saturating_sub(warm.0)),
            None => Span(whole.0 / 2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::demand::Demand;

    const MINUTE: u64 = 60_000;

    #[test]
    fn a_model_that_comes_every_hour_is_likely_shortly_before_and_not_long_before() {
        let mut demand = Demand::default();
        let mut now = Time(0);
        demand.wanted(now, None, Span(MINUTE));
        for _ in 0..40 {
            now = now + Span(60 * MINUTE);
            demand.wanted(now, Some(Span(60 * MINUTE)), Span(MINUTE));
        }
        let ten = Span(10 * MINUTE);
        let soon = demand.chance(Span(58 * MINUTE), ten).expect("known");
        let late = demand.chance(Span(5 * MINUTE), ten).expect("known");
        assert!(soon > 250, "{soon}");
        assert!(late < 50, "{late}");
    }

    #[test]
    fn half_of_the_memory_beyond_the_reserve_may_be_read_into() {
        assert_eq!(read_ahead_budget(Bytes(100), Bytes(40)), Bytes(30));
        assert_eq!(read_ahead_budget(Bytes(40), Bytes(100)), Bytes::ZERO);
    }

    #[test]
    fn of_a_model_that_was_hardly_ever_wanted_nothing_is_said() {
        let mut demand = Demand::default();
        demand.wanted(Time(0), None, Span(MINUTE));
        demand.wanted(Time(MINUTE), Some(Span(MINUTE)), Span(MINUTE));
        assert_eq!(demand.chance(Span(MINUTE), Span(MINUTE)), None);
    }
}
