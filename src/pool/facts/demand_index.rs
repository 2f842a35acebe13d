//! Which models should have a replica and have none, or too few, in the order in which they are
//! planned. An index that is kept as facts change, so that ten thousand waiting models cost nothing
//! while nothing changes for them. Chooses nothing.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::types::ask::Ask;
use crate::types::ids::{ModelId, OrderId, Time};
use crate::types::rank::DemandRank;
use crate::types::reason::LoadReason;

/// One replica that somebody wants.
#[derive(Clone, Debug)]
pub(crate) struct PendingReplica {
    pub ask: Ask,
    pub order: Option<OrderId>,
    /// Set when it was planned for and could not be had.
    pub blocked: Option<Blocked>,
}

/// A want that could not be met; not looked at again until room grows or time passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocked {
    /// `Wants::growths` when it was looked at.
    pub growths: u64,
    /// When time alone may change it.
    pub retry: Option<Time>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Wants {
    pub by_rank: BTreeMap<DemandRank, PendingReplica>,
    pub of_model: BTreeMap<ModelId, Vec<DemandRank>>,
    /// Not planned for yet, or due to be looked at again by time.
    pub fresh: BTreeSet<DemandRank>,
    /// One of them was added in this step.
    pub fresher: bool,
    pub retries: BTreeSet<(Time, DemandRank)>,
    /// Retries of wants that are gone: what they covered for is looked at then.
    pub orphaned_retries: BTreeSet<Time>,
    /// Models that are wanted and whose weights are not here, with why.
    pub to_fetch: BTreeMap<ModelId, LoadReason>,
    /// Models whose wants may have changed.
    pub stale: BTreeSet<ModelId>,
    /// Counts what may have made room.
    pub growths: u64,
    /// What it was when the step began.
    pub growths_before: u64,
}

impl Wants {
    pub fn next_retry(&self) -> Option<Time> {
        let own = self.retries.first().map(|(at, _)| *at);
        let orphaned = self.orphaned_retries.first().copied();
        own.into_iter().chain(orphaned).min()
    }

    /// When time alone may let the model's load through.
    pub fn retry_of(&self, model: ModelId) -> Option<Time> {
        let ranks = self.of_model.get(&model)?;
        ranks
            .iter()
            .filter_map(|rank| self.by_rank[rank].blocked?.retry)
            .min()
    }

    pub fn block(&mut self, rank: DemandRank, retry: Option<Time>) {
        let growths = self.growths;
        if let Some(want) = self.by_rank.get_mut(&rank) {
            if let Some(old) = want.blocked.and_then(|blocked| blocked.retry) {
                self.retries.remove(&(old, rank));
            }
            want.blocked = Some(Blocked { growths, retry });
            self.fresh.remove(&rank);
            self.retries.extend(retry.map(|at| (at, rank)));
        }
    }

    pub fn defer(&mut self, rank: DemandRank) {
        if let Some(want) = self.by_rank.get_mut(&rank) {
            if let Some(old) = want.blocked.take().and_then(|blocked| blocked.retry) {
                self.retries.remove(&(old, rank));
            }
            self.fresh.insert(rank);
        }
    }

    pub fn remove(&mut self, rank: &DemandRank) -> Option<PendingReplica> {
        let want = self.by_rank.remove(rank)?;
        self.fresh.remove(rank);
        if let Some(at) = want.blocked.and_then(|blocked| blocked.retry) {
            self.retries.remove(&(at, *rank));
        }
        Some(want)
    }

    pub fn insert(&mut self, rank: DemandRank, want: PendingReplica) {
        match want.blocked {
            None => {
                self.fresh.insert(rank);
                self.fresher = true;
            }
            Some(blocked) => self.retries.extend(blocked.retry.map(|at| (at, rank))),
        }
        self.by_rank.insert(rank, want);
    }
}
