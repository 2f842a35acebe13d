//! Indexes the models that should have a replica but have none or too few, in planning order. It changes with the facts, so ten
//! thousand waiting models cost nothing while nothing changes for them. Makes no choices.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::types::ids::{ModelId, OrderId, Time};
use crate::types::rank::DemandRank;
use crate::types::reason::LoadReason;
use crate::types::requirements::Requirements;

/// A replica that should be loaded.
#[derive(Clone, Debug)]
pub(crate) struct PendingReplica {
    pub requirements: Requirements,
    pub order: Option<OrderId>,
    /// Set if planning failed.
    pub blocked: Option<Blocked>,
}

/// The reason why a demand was blocked. It is not examined again until memory grows or time passes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Blocked {
    /// `DemandIndex::growths` at the time of the examination.
    pub growths: u64,
    /// The next time at which this may change without an event.
    pub retry: Option<Time>,
    /// The demand could be planned, but its disk or link is in use. Its victims stay until `retry`.
    pub postponed: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct DemandIndex {
    pub by_rank: BTreeMap<DemandRank, PendingReplica>,
    pub of_model: BTreeMap<ModelId, Vec<DemandRank>>,
    /// Demands that are not planned yet, or due to be examined again.
    pub fresh: BTreeSet<DemandRank>,
    /// A demand was added to `fresh` in this step.
    pub has_fresh: bool,
    pub retries: BTreeSet<(Time, DemandRank)>,
    /// Demands that wait only for a disk or link.
    pub postponed: BTreeSet<DemandRank>,
    /// Retry times of removed entries. The entries they covered are then examined again.
    pub orphaned_retries: BTreeSet<Time>,
    /// Models with demand whose weights are not on this machine, with the reason.
    pub to_fetch: BTreeMap<ModelId, LoadReason>,
    /// Models whose demands may have changed.
    pub stale: BTreeSet<ModelId>,
    /// Counts the changes that may have freed memory.
    pub growths: u64,
    /// The value of `growths` at the beginning of the step.
    pub growths_before: u64,
}

impl DemandIndex {
    pub fn next_retry(&self) -> Option<Time> {
        let own = self.retries.first().map(|(at, _)| *at);
        let orphaned = self.orphaned_retries.first().copied();
        own.into_iter().chain(orphaned).min()
    }

    /// The next time at which the model's load may be unblocked without an event.
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

    /// Postpones a demand because its disk or link is in use until about this time.
    pub fn postpone(&mut self, rank: DemandRank, until: Time) {
        self.block(rank, Some(until));
        if let Some(blocked) = self
            .by_rank
            .get_mut(&rank)
            .and_then(|pending| pending.blocked.as_mut())
        {
            blocked.postponed = true;
            self.postponed.insert(rank);
        }
    }

    /// Reexamines the demands that wait for a disk or link.
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
