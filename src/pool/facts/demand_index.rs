//! Which models should have a replica and have none, or too few, in the order in which they are planned. The index
//! changes with the facts, so that ten thousand waiting models cost nothing while nothing changes for them. Chooses
//! nothing.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::types::ids::{ModelId, OrderId, Time};
use crate::types::rank::DemandRank;
use crate::types::reason::LoadReason;
use crate::types::requirements::Requirements;

/// One replica that should be loaded.
#[derive(Clone, Debug)]
pub(crate) struct PendingReplica {
    pub requirements: Requirements,
    pub order: Option<OrderId>,
    /// Set when planning it failed.
    pub blocked: Option<Blocked>,
}

/// Why a demand was blocked; it is not examined again until memory grows or time passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocked {
    /// `DemandIndex::growths` when it was examined.
    pub growths: u64,
    /// When time alone may change it.
    pub retry: Option<Time>,
    /// It could be planned, but its disk or link is in use: its victims stay until then.
    pub postponed: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct DemandIndex {
    pub by_rank: BTreeMap<DemandRank, PendingReplica>,
    pub of_model: BTreeMap<ModelId, Vec<DemandRank>>,
    /// Not planned yet, or due to be examined again by time.
    pub fresh: BTreeSet<DemandRank>,
    /// One of them was added in this step.
    pub has_fresh: bool,
    pub retries: BTreeSet<(Time, DemandRank)>,
    /// Those that wait for a disk or link alone.
    pub postponed: BTreeSet<DemandRank>,
    /// Retry times of removed entries; the entries they covered are examined again then.
    pub orphaned_retries: BTreeSet<Time>,
    /// Models with demand whose weights are not on this machine, with the reason.
    pub to_fetch: BTreeMap<ModelId, LoadReason>,
    /// Models whose wants may have changed.
    pub stale: BTreeSet<ModelId>,
    /// Counts the changes that may have freed memory.
    pub growths: u64,
    /// The value when the step began.
    pub growths_before: u64,
}

impl DemandIndex {
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

    pub fn block_all(&mut self, demands: Vec<(DemandRank, Option<Time>)>) {
        for (rank, retry) in demands {
            self.block(rank, retry);
        }
    }

    fn block(&mut self, rank: DemandRank, retry: Option<Time>) {
        let growths = self.growths;
        self.postponed.remove(&rank);
        if let Some(pending) = self.by_rank.get_mut(&rank) {
            if let Some(old) = pending.blocked.and_then(|blocked| blocked.retry) {
                self.retries.remove(&(old, rank));
            }
            pending.blocked = Some(Blocked {
                growths,
                retry,
                postponed: false,
            });
            self.fresh.remove(&rank);
            self.retries.extend(retry.map(|at| (at, rank)));
        }
    }

    /// Its disk or link is in use until then, or a little longer.
    pub fn postpone(&mut self, rank: DemandRank, until: Time) {
        self.block(rank, Some(until));
        if let Some(blocked) = self
            .by_rank
            .get_mut(&rank)
            .and_then(|it| it.blocked.as_mut())
        {
            blocked.postponed = true;
            self.postponed.insert(rank);
        }
    }

    /// Examines again what waits for a disk or link.
    pub fn wake_postponed(&mut self) {
        for rank in core::mem::take(&mut self.postponed) {
            self.defer(rank);
            self.has_fresh = true;
        }
    }

    pub fn defer(&mut self, rank: DemandRank) {
        self.postponed.remove(&rank);
        if let Some(pending) = self.by_rank.get_mut(&rank) {
            if let Some(old) = pending.blocked.take().and_then(|blocked| blocked.retry) {
                self.retries.remove(&(old, rank));
            }
            self.fresh.insert(rank);
        }
    }

    pub fn remove(&mut self, rank: &DemandRank) -> Option<PendingReplica> {
        let pending = self.by_rank.remove(rank)?;
        self.fresh.remove(rank);
        self.postponed.remove(rank);
        if let Some(at) = pending.blocked.and_then(|blocked| blocked.retry) {
            self.retries.remove(&(at, *rank));
        }
        Some(pending)
    }

    pub fn insert(&mut self, rank: DemandRank, pending: PendingReplica) {
        match pending.blocked {
            None => {
                self.fresh.insert(rank);
                self.has_fresh = true;
            }
            Some(blocked) => {
                self.retries.extend(blocked.retry.map(|at| (at, rank)));
                self.postponed.extend(blocked.postponed.then_some(rank));
            }
        }
        self.by_rank.insert(rank, pending);
    }
}
