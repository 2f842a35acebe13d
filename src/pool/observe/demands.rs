//! Finds models that should have a replica but have none or too few, and updates the demand index.

use alloc::vec::Vec;

use crate::facts::demand_index::PendingReplica;
use crate::facts::state::Pool;
use crate::plan::demands::{demands_of, reason, still_blocked};
use crate::plan::requirements::never_fits;
use crate::types::ids::{ModelId, Span, Time};
use crate::types::rank::{Class, DemandRank};

impl Pool {
    /// Updates the index for the models that were touched.
    pub(crate) fn refresh_demands(&mut self) {
        while let Some(id) = self.demand_index.next_stale() {
            let mut new = demands_of(self, id);
            self.hold_back(id, &mut new);
            let mut known = self.demand_index.take_model(id);
            let mut ranks = Vec::with_capacity(new.len());
            for (rank, mut pending) in new {
                if rank.class == Class::Request {
                    self.look_again_at_changes(id, &rank);
                }
                // The same demand, at most slightly later: it stays blocked.
                let same = |(class, known): &(Class, PendingReplica)| {
                    *class == rank.class
                        && still_blocked(&known.requirements, &pending.requirements)
                };
                if let Some(nth) = known.iter().position(same) {
                    pending.blocked = known.swap_remove(nth).1.blocked;
                }
                self.demand_index.insert(rank, pending);
                ranks.push(rank);
            }
            self.demand_index.set_model(id, ranks, &known);
            if !self.batches.is_empty() {
                // A load for batches may begin once no request and no order waits for memory.
                self.agenda.promises_change();
            }
        }
    }

    /// A model that must be fetched is not placed until its weights are here. A model that would not fit into an empty pool is not
    /// fetched.
    fn hold_back(&mut self, id: ModelId, new: &mut Vec<(DemandRank, PendingReplica)>) {
        self.demand_index.set_fetch(id, None);
        if !self.models.get(&id).is_some_and(|model| model.spec.absent) {
            return;
        }
        let fits = |pending: &PendingReplica| never_fits(self, &pending.requirements).is_none();
        let why = new.iter().find(|(_, pending)| fits(pending));
        let why = why.map(|(rank, pending)| reason(self, rank, pending));
        new.retain(|(_, pending)| !fits(pending));
        self.demand_index.set_fetch(id, why);
    }

    /// Schedules the times at which the rank of a waiting model changes: when it is due, and when its first request can no longer be
    /// served in time, or meet its target.
    fn look_again_at_changes(&mut self, id: ModelId, rank: &DemandRank) {
        let timeout = self.models[&id].spec.queue_timeout;
        let left = timeout.0.saturating_sub(self.comes_back_in(id).0);
        let target = self.first_in_target(id).map(|(_, by)| by);
        let changes = [rank.due, rank.since + Span(left)];
        for at in changes.into_iter().chain(target) {
            if at > self.now && at < Time(u64::MAX) {
                self.look_again(at, id);
            }
        }
    }

    /// Reexamines the demands whose retry time has come.
    pub(crate) fn retry_demands(&mut self) {
        if self.demand_index.retry(self.now) {
            self.grows_everywhere();
        }
    }
}
