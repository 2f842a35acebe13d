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
    /// The loads of the step that were recorded before.
    loads_before: usize,
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
                loads_before: self.loads.len(),
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
            // A load is recorded after the replicas that leave for it, and a step may have several loads of a model.
            let (before, after) = loads.split_at(leaving.loads_before);
            let mut by = after.iter().chain(before.iter().rev());
            let by = by.find(|(name, _)| is_taker(&leaving.reason, name));
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

#[cfg(test)]
mod tests {
    use super::super::stay::Stay;
    use super::*;
    use pool::Bytes;

    const OUTSIDE: &str = "B7: no deadline requires the load";

    fn load(nth: u64, cause: &'static str) -> Record {
        Record {
            replica: Some(ReplicaId(nth)),
            cause: Some(cause),
            ..Record::new(Time(0), RecordKind::Load, Some("a".into()), String::new())
        }
    }

    fn eviction(nth: u64) -> Record {
        let reason = String::from("yields after 9 min idle: a waits (P3)");
        Record {
            replica: Some(ReplicaId(nth)),
            cause: Some("yielded"),
            ..Record::new(Time(0), RecordKind::Evict, Some("b".into()), reason)
        }
    }

    /// The broken rules of a step with these records, outside of the hours.
    fn judged(records: &[Record]) -> Vec<String> {
        let stay = Stay::new(ModelId(1), Vec::new(), Bytes(1), Time(0));
        let idle = Live::new(ModelId(1), stay);
        let mut referee = BatchReferee::default();
        for record in records {
            referee.recorded(record, Some(&idle));
        }
        let names = BTreeMap::from([("a".into(), ModelId(0)), ("b".into(), ModelId(1))]);
        let terms = Terms {
            now: Time(0),
            may_evict: false,
            names: &names,
        };
        referee.step_ends(&terms, &[], |_| Priority(0))
    }

    #[test]
    fn a_replica_that_leaves_is_judged_by_the_load_after_it_in_a_step_with_several() {
        let broken = judged(&[eviction(1), load(2, "batch")]);
        assert!(
            broken.len() == 1 && broken[0].starts_with(OUTSIDE),
            "{broken:?}"
        );
        let broken = judged(&[load(2, "batch"), eviction(1), load(3, "requests")]);
        assert_eq!(broken, Vec::<String>::new());
        let broken = judged(&[load(3, "requests"), eviction(1), load(2, "batch")]);
        assert!(
            broken.len() == 1 && broken[0].starts_with(OUTSIDE),
            "{broken:?}"
        );
        let broken = judged(&[load(2, "batch"), eviction(1)]);
        assert_eq!(broken.len(), 1, "a load that was recorded before");
    }
}
