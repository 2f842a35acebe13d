//! Predicts which unloaded models are needed soon and chooses whose weights to read into host memory while the disk is idle, and
//! how much to read. Loads whose victims still serve their last requests come first, because reading their weights early saves that
//! time later.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::types::ids::{Bytes, ModelId, NodeId, Span, Time};
use crate::types::model::Tier;
use crate::types::replica::Planned;
use crate::types::share::Share;

/// Reading is not worthwhile below this chance.
const CHANCE_LEAST_PER_MILLE: u32 = 100;
/// The period for which demand is predicted.
const WITHIN: Span = Span::from_secs(600);
/// The minimum interval between reads of the same weights. Weights that did not stay in memory do not fit.
const AGAIN_AFTER: Span = Span::from_secs(600);

/// The controller reads weights ahead only on its own machine.
const CONTROLLER: NodeId = NodeId(0);

/// A model that may be needed soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefetchCandidate {
    pub model: ModelId,
    /// The chance of a request for it within the given time.
    pub chance_per_mille: u32,
    /// The time it saves until the model is ready.
    pub saves: Span,
}

/// The time of each model's last read-ahead.
#[derive(Clone, Debug, Default)]
pub struct ReadAheadHistory(BTreeMap<ModelId, Time>);

impl ReadAheadHistory {
    /// Chooses the next model whose weights to read and marks it as read. `has_weights` returns true for models whose weights are
    /// files on this machine.
    pub fn choose(
        &mut self,
        pool: &Pool,
        now: Time,
        has_weights: impl Fn(ModelId) -> bool,
    ) -> Option<PrefetchCandidate> {
        let candidates = if pool.planned.is_empty() {
            pool.likely(now, WITHIN)
        } else {
            pool.awaiting_room()
        };
        self.first_new(candidates, now, has_weights)
    }

    /// The same, restricted to models whose load waits for its victims; they take precedence over predictions. `reading` is the
    /// model being read. If that read serves such a load, it is finished first and nothing is chosen.
    pub fn choose_awaiting_room(
        &mut self,
        pool: &Pool,
        now: Time,
        reading: Option<ModelId>,
        has_weights: impl Fn(ModelId) -> bool,
    ) -> Option<PrefetchCandidate> {
        let loads = pool.awaiting_room();
        if loads
            .iter()
            .any(|candidate| Some(candidate.model) == reading)
        {
            return None;
        }
        self.first_new(loads, now, has_weights)
    }

    fn first_new(
        &mut self,
        candidates: Vec<PrefetchCandidate>,
        now: Time,
        has_weights: impl Fn(ModelId) -> bool,
    ) -> Option<PrefetchCandidate> {
        self.0.retain(|_, read| now.since(*read) < AGAIN_AFTER);
        let mut new = candidates
            .into_iter()
            .filter(|candidate| !self.0.contains_key(&candidate.model));
        let next = new.find(|candidate| has_weights(candidate.model))?;
        self.0.insert(next.model, now);
        Some(next)
    }
}

/// The bytes that may be read ahead: half of the available memory beyond the reserve, because reading evicts other files from the
/// page cache.
pub fn read_ahead_budget(available: Bytes, reserve: Bytes) -> Bytes {
    Bytes(available.saturating_sub(reserve).0 / 2)
}

impl Pool {
    /// The models whose loads wait for victims to leave devices of this machine, in the order of planning. Empty while anything is
    /// loading, because that needs the disk.
    fn awaiting_room(&self) -> Vec<PrefetchCandidate> {
        if !self.disks.are_idle() || self.service.is_closing() {
            return Vec::new();
        }
        let is_here = |load: &Planned| {
            let of = |share: &Share| self.devices.get(&share.device);
            load.shares
                .first()
                .and_then(of)
                .is_some_and(|device| device.node == CONTROLLER)
        };
        let waits = |load: &&Planned| !load.wakes && !load.victims.is_empty() && is_here(load);
        let mut loads: Vec<&Planned> = self.planned.values().filter(waits).collect();
        loads.sort_by_key(|load| (load.since, load.model));
        let candidate = |load: &Planned| {
            let model = self.models.get(&load.model)?;
            let saves = model.saved_by_page_cache();
            // A replica that serves, loads or sleeps has already read the weights.
            let is_cold = model.replicas.is_empty() && !model.removed && saves > Span::ZERO;
            is_cold.then_some(PrefetchCandidate {
                model: load.model,
                chance_per_mille: 1000,
                saves,
            })
        };
        loads.into_iter().filter_map(candidate).collect()
    }

    /// The models whose weights to read ahead, by expected time saved, largest first. Empty while anything is loading, because that
    /// needs the disk.
    fn likely(&self, now: Time, within: Span) -> Vec<PrefetchCandidate> {
        if !self.disks.are_idle() || self.service.is_closing() {
            return Vec::new();
        }
        let mut found: Vec<PrefetchCandidate> = self
            .models
            .iter()
            .filter_map(|(&id, model)| likely(id, model, now.max(self.now), within))
            .collect();
        let worth = |candidate: &PrefetchCandidate| {
            candidate
                .saves
                .0
                .saturating_mul(u64::from(candidate.chance_per_mille))
        };
        found.sort_by_key(|candidate| (Reverse(worth(candidate)), candidate.model));
        found
    }
}

fn likely(id: ModelId, model: &Model, now: Time, within: Span) -> Option<PrefetchCandidate> {
    // A replica that serves, loads or sleeps has already read the weights.
    let is_whole = !model.removed && !model.spec.absent && model.last_failure.is_none();
    let is_cold = model.replicas.is_empty() && is_whole;
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
    /// The measured saving. Until both tiers are measured, half of a load is assumed to be reading.
    fn saved_by_page_cache(&self) -> Span {
        let of = |tier| self.load_times.get(tier);
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
    fn an_hourly_model_is_likely_shortly_before_the_hour_and_not_long_before() {
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
    fn half_of_the_memory_above_the_reserve_may_be_used_for_read_ahead() {
        assert_eq!(read_ahead_budget(Bytes(100), Bytes(40)), Bytes(30));
        assert_eq!(read_ahead_budget(Bytes(40), Bytes(100)), Bytes::ZERO);
    }

    #[test]
    fn a_rarely_requested_model_has_no_forecast() {
        let mut demand = Demand::default();
        demand.wanted(Time(0), None, Span(MINUTE));
        demand.wanted(Time(MINUTE), Some(Span(MINUTE)), Span(MINUTE));
        assert_eq!(demand.chance(Span(MINUTE), Span(MINUTE)), None);
    }
}
