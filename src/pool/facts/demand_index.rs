//! Indexes the models that should have a replica but have none or too few, in planning order. It changes with the facts, so ten
//! thousand waiting models cost nothing while nothing changes for them. Makes no choices.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::types::ids::{ModelId, OrderId, Time};
use crate::types::rank::{Class, DemandRank};
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
    by_rank: BTreeMap<DemandRank, PendingReplica>,
    of_model: BTreeMap<ModelId, Vec<DemandRank>>,
    /// Demands that are not planned yet, or due to be examined again.
    fresh: BTreeSet<DemandRank>,
    /// A demand was added to `fresh` in this step.
    has_fresh: bool,
    retries: BTreeSet<(Time, DemandRank)>,
    /// Demands that wait only for a disk or link.
    postponed: BTreeSet<DemandRank>,
    /// Retry times of removed entries. The entries they covered are then examined again.
    orphaned_retries: BTreeSet<Time>,
    /// Models with demand whose weights are not on this machine, with the reason.
    to_fetch: BTreeMap<ModelId, LoadReason>,
    /// Models whose demands may have changed.
    stale: BTreeSet<ModelId>,
    /// Counts the changes that may have freed memory.
    growths: u64,
    /// The value of `growths` at the beginning of the step.
    growths_before: u64,
}

impl DemandIndex {
    /// All demands, in planning order.
    pub fn all(&self) -> &BTreeMap<DemandRank, PendingReplica> {
        &self.by_rank
    }

    pub fn is_empty(&self) -> bool {
        self.by_rank.is_empty()
    }

    /// All demands in planning order, up to the first demand for batches. These rank last.
    pub fn before_batches(&self) -> impl Iterator<Item = (&DemandRank, &PendingReplica)> + Clone {
        self.by_rank
            .iter()
            .take_while(|(rank, _)| rank.class != Class::Batch)
    }

    /// The demands of a model.
    pub fn of_model(&self, model: ModelId) -> impl Iterator<Item = (&DemandRank, &PendingReplica)> {
        let ranks = self.of_model.get(&model).into_iter().flatten();
        ranks.map(|rank| (rank, &self.by_rank[rank]))
    }

    /// Demands that are not planned yet, or due to be examined again.
    pub fn fresh(&self) -> &BTreeSet<DemandRank> {
        &self.fresh
    }

    /// Returns true if a demand was added to `fresh` in this step.
    pub fn has_fresh(&self) -> bool {
        self.has_fresh
    }

    /// Demands that wait only for a disk or link.
    pub fn postponed(&self) -> &BTreeSet<DemandRank> {
        &self.postponed
    }

    /// Models with demand whose weights are not on this machine, with the reason.
    pub fn to_fetch(&self) -> &BTreeMap<ModelId, LoadReason> {
        &self.to_fetch
    }

    /// The number of changes so far that may have freed memory.
    pub fn growths(&self) -> u64 {
        self.growths
    }

    /// The value of `growths` at the beginning of the step.
    pub fn growths_before(&self) -> u64 {
        self.growths_before
    }

    pub fn grow(&mut self) {
        self.growths += 1;
    }

    pub fn end_step(&mut self) {
        self.has_fresh = false;
        self.growths_before = self.growths;
    }

    /// The model's demands may have changed.
    pub fn touch(&mut self, model: ModelId) {
        self.stale.insert(model);
    }

    pub fn touch_all<'a>(&mut self, models: impl IntoIterator<Item = &'a ModelId>) {
        self.stale.extend(models);
    }

    /// The next model whose demands may have changed.
    pub fn next_stale(&mut self) -> Option<ModelId> {
        self.stale.pop_first()
    }

    pub fn set_fetch(&mut self, model: ModelId, why: Option<LoadReason>) {
        match why {
            Some(why) => self.to_fetch.insert(model, why),
            None => self.to_fetch.remove(&model),
        };
    }

    /// Takes the model's demands out of the index.
    pub fn take_model(&mut self, model: ModelId) -> Vec<(Class, PendingReplica)> {
        let ranks = self.of_model.remove(&model).unwrap_or_default();
        ranks
            .iter()
            .filter_map(|rank| Some((rank.class, self.remove(rank)?)))
            .collect()
    }

    /// Ends the update of a model: it has the demands `ranks` and no longer has `gone`.
    pub fn set_model(
        &mut self,
        model: ModelId,
        ranks: Vec<DemandRank>,
        gone: &[(Class, PendingReplica)],
    ) {
        let retries = gone
            .iter()
            .filter_map(|(_, pending)| pending.blocked?.retry);
        self.orphaned_retries.extend(retries);
        if !ranks.is_empty() {
            self.of_model.insert(model, ranks);
        }
    }

    /// Reexamines the demands whose retry time has come. Returns true if the retry time of a removed entry has come as well.
    pub fn retry(&mut self, now: Time) -> bool {
        while let Some(&(at, rank)) = self.retries.first() {
            if at > now {
                break;
            }
            self.retries.pop_first();
            if let Some(pending) = self.by_rank.get_mut(&rank) {
                pending.blocked = None;
                self.postponed.remove(&rank);
                self.fresh.insert(rank);
                self.has_fresh = true;
            }
        }
        let is_due = self.orphaned_retries.first().is_some_and(|at| *at <= now);
        if is_due {
            self.orphaned_retries.retain(|at| *at > now);
        }
        is_due
    }

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

    fn remove(&mut self, rank: &DemandRank) -> Option<PendingReplica> {
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
