//! The referee of batches in a replay: B4, B5 and B7, checked by its own record of the replicas that were loaded for batches and used by
//! requests. Of the pool it trusts the priorities only.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use super::run::Live;
use pool::{BatchDemand, ModelId, Priority, Record, RecordKind, ReplicaId, Time};

/// The present permission to evict for batches.
pub(super) struct Terms<'a> {
    pub now: Time,
    pub may_evict: bool,
    pub names: &'a BTreeMap<String, ModelId>,
}

/// A replica that leaves for a load.
#[derive(Clone, Debug)]
struct Leaving {
    replica: ReplicaId,
    model: ModelId,
    in_flight: u32,
    was_used: bool,
    reason: String,
    cause: Option<&'static str>,
}

#[derive(Debug, Default)]
pub(super) struct BatchReferee {
    for_batches: BTreeSet<ReplicaId>,
    leaving: Vec<Leaving>,
    /// The loads of the step, each with whether it is for batches.
    loads: Vec<(String, bool)>,
}

impl BatchReferee {
    /// A record of the history, with the replica as it is then.
    pub fn recorded(&mut self, record: &Record, live: Option<&Live>) {
        let Some(replica) = record.replica else {
            return;
        };
        match record.kind {
            RecordKind::Load => {
                let is_for_batches = record.cause == Some("batch");
                if is_for_batches {
                    self.for_batches.insert(replica);
                }
                let name = record.model.clone().unwrap_or_default();
                self.loads.push((name, is_for_batches));
            }
            RecordKind::Evict => self.leaving.extend(live.map(|live| Leaving {
                replica,
                model: live.model,
                in_flight: live.in_flight,
                was_used: live.entered > 0,
                reason: record.reason.clone(),
                cause: record.cause,
            })),
            RecordKind::Gone => {
                self.for_batches.remove(&replica);
            }
            _ => {}
        }
    }

    /// Judges the evictions of a step. Returns the broken rules.
    pub fn step_ends(
        &mut self,
        terms: &Terms<'_>,
        demands: &[BatchDemand],
        priority: impl Fn(ModelId) -> Priority,
    ) -> Vec<String> {
        let mut broken = Vec::new();
        let loads = core::mem::take(&mut self.loads);
        for leaving in core::mem::take(&mut self.leaving) {
            let only_batches = self.for_batches.contains(&leaving.replica) && !leaving.was_used;
            if leaving.cause == Some("batch_yielded") && !only_batches {
                broken.push(format!("B5: a request has used {leaving:?}"));
            }
            let by = loads
                .iter()
                .find(|(name, _)| is_taker(&leaving.reason, name));
            let Some((name, true)) = by else {
                continue;
            };
            let has_open = demands.iter().any(|demand| demand.model == leaving.model);
            if has_open {
                broken.push(format!(
                    "B4: batches evict a model with batches: {leaving:?}"
                ));
            }
            if only_batches {
                continue;
            }
            if leaving.in_flight > 0 || priority(leaving.model) > Priority(0) {
                broken.push(format!("B4: batches evict {leaving:?}"));
            }
            let model = terms.names.get(name);
            let lines = demands.iter().find(|lines| model == Some(&lines.model));
            let for_deadline = lines.is_some_and(|lines| {
                lines.deadline_evicts && lines.must_begin.is_some_and(|by| by <= terms.now)
            });
            if !terms.may_evict && !for_deadline {
                broken.push(format!(
                    "B7: no deadline requires the load for which this leaves: {leaving:?}"
                ));
            }
        }
        broken
    }
}

/// Returns true if a replica leaves for this model.
fn is_taker(reason: &str, name: &str) -> bool {
    let idle = format!(" idle: {name} waits");
    let only_batches = format!("and {name} needs its memory");
    reason.contains(&idle) || reason.contains(&only_batches)
}
