//! Holds jobs that could not be written, until they can be. Of two jobs for the same place in the store only the later is kept,
//! which bounds the memory however long the store is unavailable.

use std::collections::{BTreeMap, VecDeque};

use super::keeper::{Job, NamedWish};
use pool::{Record, Time};
use store::{Circumstances, LedgerBatch, UsageMinute};

/// Maximum number of usage minutes that wait.
const MINUTES_MAX: usize = 10_000;
/// Maximum number of parts of the ledger that wait. Further ones are counted as not known.
const LEDGER_MAX: usize = 50_000;

/// The place that a job overwrites in the store. Of two jobs for the same place, only the later one is needed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RecordKey {
    Override(String),
    /// Sorts before loads of single models, which are newer.
    AllLoads,
    Load(String),
    Cordon(String),
    Measurement(Circumstances),
    Remembered(String),
}

/// Jobs that could not be written.
#[derive(Default)]
pub(crate) struct UnwrittenJobs {
    pub records: VecDeque<Record>,
    pub places: BTreeMap<RecordKey, Job>,
    pub minutes: Vec<UsageMinute>,
    pub ledger: LedgerBatch,
    /// The numbered batch whose write has failed. It may have been committed, so it is written again unchanged.
    pub tried_ledger: Option<LedgerBatch>,
    /// Records lost since the last successful write.
    pub lost: u64,
}

impl UnwrittenJobs {
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
            && self.places.is_empty()
            && self.minutes.is_empty()
            && self.ledger.is_empty()
            && self.tried_ledger.is_none()
    }

    /// Adds a job that forgets loads, and drops older waiting loads: they would be written after it.
    fn forgets_loads(&mut self, before: Option<Time>, place: RecordKey, job: Job) {
        self.places.retain(|_, waiting| match waiting {
            Job::Wish {
                wish: NamedWish::Load { wish, .. },
                ..
            } => before.is_some_and(|before| wish.as_ref().is_none_or(|load| load.since > before)),
            _ => true,
        });
        let all_go = self
            .places
            .get(&place)
            .is_some_and(|waiting| forgets(waiting) == Some(None));
        if !all_go {
            self.places.insert(place, job);
        }
    }

    /// Adds a job that needs no acknowledgement.
    pub fn takes(&mut self, job: Job) {
        match job {
            Job::Usage(minutes) => {
                self.minutes.extend(minutes);
                let surplus = self.minutes.len().saturating_sub(MINUTES_MAX);
                self.minutes.drain(..surplus);
            }
            Job::Ledger(batch) if batch.is_numbered() => self.tried_ledger = Some(batch),
            Job::Ledger(batch) => self.ledger.merge(batch, LEDGER_MAX),
            job => {
                for (place, job) in parts(job) {
                    match forgets(&job) {
                        Some(before) => self.forgets_loads(before, place, job),
                        None => {
                            self.places.insert(place, job);
                        }
                    }
                }
            }
        }
    }
}

/// The time up to which the job forgets loads, if it does. `Some(None)` forgets all of them.
fn forgets(job: &Job) -> Option<Option<Time>> {
    match job {
        Job::Wish {
            wish: NamedWish::ForgetLoads { before },
            ..
        } => Some(*before),
        _ => None,
    }
}

/// Splits a job into jobs for a single place each.
fn parts(job: Job) -> Vec<(RecordKey, Job)> {
    let place = match &job {
        Job::Wish { wish, .. } => match wish.clone() {
            NamedWish::Override { model, .. } => RecordKey::Override(model),
            NamedWish::Load { model, .. } => RecordKey::Load(model),
            NamedWish::LoadAndOverride { model, wish, over } => {
                let alone = |wish| Job::Wish { order: None, wish };
                let (name, wish) = (model.clone(), Some(wish));
                let over = NamedWish::Override {
                    model: model.clone(),
                    over,
                };
                return vec![
                    (RecordKey::Override(model.clone()), alone(over)),
                    (
                        RecordKey::Load(name),
                        alone(NamedWish::Load { model, wish }),
                    ),
                ];
            }
            NamedWish::ForgetLoads { .. } => RecordKey::AllLoads,
            NamedWish::Cordon { device, .. } => RecordKey::Cordon(device),
        },
        Job::Measurement { of, .. } => RecordKey::Measurement(of.clone()),
        Job::Remembered { model, .. } => RecordKey::Remembered(model.clone()),
        Job::Usage(_) | Job::Ledger(_) | Job::Record(_) | Job::DeviceNames(_) | Job::Settled(_) => {
            return Vec::new();
        }
    };
    vec![(place, job)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use store::{LedgerAmount, LedgerKey};

    fn batch(hour: i64) -> LedgerBatch {
        let mut batch = LedgerBatch::default();
        let key = LedgerKey {
            hour,
            day: hour / 24,
            device: "gpu0".to_owned(),
            model: String::new(),
            payer: String::new(),
            state: "free".to_owned(),
        };
        batch.add(key, LedgerAmount::default());
        batch
    }

    #[test]
    fn a_batch_whose_write_has_failed_stays_apart_from_later_ones() {
        let mut waiting = UnwrittenJobs::default();
        let tried = batch(1).numbered(7);
        waiting.takes(Job::Ledger(tried.clone()));
        (2..5).for_each(|hour| waiting.takes(Job::Ledger(batch(hour))));
        assert_eq!(waiting.tried_ledger, Some(tried));
        assert_eq!((waiting.ledger.len(), waiting.is_empty()), (3, false));
    }
}
