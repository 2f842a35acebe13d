//! The batches of each model for a forecast, and the replicas and the memory that they have or can get.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::{Care, List, Part, scaled};
use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::plan::batches::may_leave_for_batches;
use crate::plan::yields::yields_after;
use crate::types::batch::BatchWork;
use crate::types::ids::{Bytes, DeviceId, ModelId, ReplicaId, Span, Time};
use crate::types::replica::Phase;
use crate::types::requirements::Requirements;

/// Without a measurement, a request in a full replica is expected to take this many times as long as an interactive one.
const CROWDED: u64 = 2;

impl Pool {
    /// The lists of all models, with the time by which the load of each has to begin.
    pub(super) fn lists(
        &self,
        works: &[BatchWork],
        now: Time,
        care: Care,
    ) -> (Vec<List>, BTreeMap<ModelId, Time>) {
        let mut lists: BTreeMap<ModelId, List> = BTreeMap::new();
        for work in works.iter().filter(|work| work.lines > 0) {
            let Some(model) = self.models.get(&work.model) else {
                continue;
            };
            let list = lists
                .entry(work.model)
                .or_insert_with(|| self.list_of(work.model, model, now, care));
            list.lines = list.lines.saturating_add(work.lines);
            let takes = work.thousand_takes.or_else(|| thousand_takes(model));
            list.is_unknown |= takes.is_none();
            let allowance = match work.thousand_takes {
                Some(_) => care.work,
                None => care.guessed_work,
            };
            let takes = u128::from(takes.unwrap_or_default().0) * u128::from(work.lines) / 1_000;
            let takes = u64::try_from(takes).unwrap_or(u64::MAX);
            list.parts.push_back(Part {
                batch: work.batch,
                takes: scaled(takes, allowance).max(1),
                deadline: work.deadline,
            });
        }
        let mut must_begin = BTreeMap::new();
        for list in lists.values_mut() {
            let mut needs = list.load + list.yields;
            for part in &list.parts {
                needs = needs + Span(part.takes);
                let by = Time(part.deadline.0.saturating_sub(needs.0));
                list.must_begin = list.must_begin.into_iter().chain([by]).min();
            }
            list.left = list.parts.front().map_or(0, |part| part.takes);
            if let Some(by) = list.must_begin.filter(|_| !list.is_unknown) {
                must_begin.insert(list.model, by);
            }
        }
        let mut lists: Vec<List> = lists.into_values().collect();
        lists.sort_by_key(|list| (u64::MAX - list.lines, list.model));
        (lists, must_begin)
    }

    fn list_of(&self, id: ModelId, model: &Model, now: Time, care: Care) -> List {
        let requirements = Requirements::new(self, id, now);
        let yields = yields_after(self, model).unwrap_or_default();
        let load = self.return_time(model) + self.fetched_in(id);
        List {
            model: id,
            lines: 0,
            parts: VecDeque::new(),
            is_unknown: false,
            devices: requirements.devices,
            bytes: requirements.bytes,
            load: Span(scaled(load.0, care.load)),
            yields,
            must_begin: None,
            place: Vec::new(),
            spares: Vec::new(),
            runs_from: now,
            left: 0,
        }
    }

    /// A replica of the model that serves or loads, with the time until it serves.
    pub(super) fn replica_for_batches(&self, id: ModelId) -> Option<(ReplicaId, Span)> {
        let replicas = self.models[&id].replicas.iter();
        let live = replicas.filter_map(|id| match self.replicas[id].phase {
            Phase::Ready { .. } => Some((*id, Span::ZERO)),
            Phase::Launching { since, .. } => {
                let passed = self.now.since(since);
                Some((*id, Span(self.loads_in(*id).0.saturating_sub(passed.0))))
            }
            _ => None,
        });
        live.min_by_key(|(id, left)| (*left, *id))
    }

    /// The model's replicas stay, with or without batches.
    pub(super) fn keeps_from_batches(&self, id: ModelId, model: &Model) -> bool {
        let is_wished = model.wish.as_ref().is_some_and(|wish| wish.replicas > 0);
        self.is_protected(id) || is_wished
    }

    /// The memory of a device that batches can never have, and the time until they can have the rest.
    pub(super) fn kept_from_batches(&self, id: DeviceId, may_evict: bool) -> (Bytes, Span) {
        let (mut bytes, mut wait) = (Bytes::ZERO, Span::ZERO);
        for holder in &self.devices[&id].holders {
            let Some(replica) = self.replicas.get(holder) else {
                continue;
            };
            let model = &self.models[&replica.model];
            if self.serves_only_batches(replica, model) {
                continue;
            }
            if self.keeps_from_batches(replica.model, model) {
                bytes = bytes + self.held(*holder, id);
                continue;
            }
            let yields = yields_after(self, model).filter(|_| may_evict);
            let keep_hot = self.keep_hot(replica.model);
            let after = yields.map_or(keep_hot, |yields| yields.min(keep_hot));
            if !(may_evict && may_leave_for_batches(self, replica, model)) {
                wait = wait.max(after);
            }
        }
        (bytes, wait)
    }

    /// Returns true unless the model cannot be loaded for its batches at all.
    pub(super) fn may_load_for_batches(&self, id: ModelId) -> bool {
        let model = &self.models[&id];
        let is_away = model.kept_away() || self.batches.is_kept_away(id);
        !model.removed && !is_away && !self.is_quarantined(model)
    }
}

/// The time of a thousand requests in all seats, guessed from interactive ones.
fn thousand_takes(model: &Model) -> Option<Span> {
    let mean = model.request_times.mean()?;
    let seats = u64::from(model.spec.seats_per_replica.max(1));
    Some(Span(mean.0.saturating_mul(1_000 * CROWDED) / seats))
}
