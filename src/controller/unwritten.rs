//! What could not be written, until it can be: of two jobs for the same place in the store the later one is kept, so that
//! it stays small however long the store is away.

use std::collections::{BTreeMap, VecDeque};

use super::keeper::{Job, NamedWish};
use pool::{Record, Time};
use store::{Circumstances, UsageMinute};

/// Minutes of use that wait meanwhile.
const MINUTES_MAX: usize = 10_000;

/// What a job replaces in the store: of two that wait for the same place the later one is enough.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Override(String),
    /// Before those of single models, which are newer.
    AllLoads,
    Load(String),
    Cordon(String),
    Measurement(Circumstances),
    Remembered(String),
}

/// What could not be written.
#[derive(Default)]
pub(super) struct Waiting {
    pub records: VecDeque<Record>,
    pub places: BTreeMap<Place, Job>,
    pub minutes: Vec<UsageMinute>,
    /// Records lost since the last one was written.
    pub lost: u64,
}

impl Waiting {
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.places.is_empty() && self.minutes.is_empty()
    }

    /// What waits for one model is written after it, and so must not be older than it.
    fn forgets_loads(&mut self, before: Option<Time>, place: Place, job: Job) {
        self.places.retain(|_, waiting| match waiting {
            Job::Wish {
                wish: NamedWish::Load { wish, .. },
                ..
            } => before.is_some_and(|before| wish.as_ref().is_none_or(|it| it.since > before)),
            _ => true,
        });
        let all_go = self
            .places
            .get(&place)
            .is_some_and(|it| forgets(it) == Some(None));
        if !all_go {
            self.places.insert(place, job);
        }
    }

    /// A job without an acknowledgement.
    pub fn takes(&mut self, job: Job) {
        match job {
            Job::Usage(minutes) => {
                self.minutes.extend(minutes);
                let surplus = self.minutes.len().saturating_sub(MINUTES_MAX);
                self.minutes.drain(..surplus);
            }
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

/// Up to which moment the job forgets loads, if it does; `None` within: all of them.
fn forgets(job: &Job) -> Option<Option<Time>> {
    match job {
        Job::Wish {
            wish: NamedWish::ForgetLoads { before },
            ..
        } => Some(*before),
        _ => None,
    }
}

/// Each with the one place that it is for.
fn parts(job: Job) -> Vec<(Place, Job)> {
    let place = match &job {
        Job::Wish { wish, .. } => match wish.clone() {
            NamedWish::Override { model, .. } => Place::Override(model),
            NamedWish::Load { model, .. } => Place::Load(model),
            NamedWish::LoadAndOverride { model, wish, over } => {
                let alone = |wish| Job::Wish { order: None, wish };
                let (name, wish) = (model.clone(), Some(wish));
                let over = NamedWish::Override {
                    model: model.clone(),
                    over,
                };
                return vec![
                    (Place::Override(model.clone()), alone(over)),
                    (Place::Load(name), alone(NamedWish::Load { model, wish })),
                ];
            }
            NamedWish::ForgetLoads { .. } => Place::AllLoads,
            NamedWish::Cordon { device, .. } => Place::Cordon(device),
        },
        Job::Measurement { of, .. } => Place::Measurement(of.clone()),
        Job::Remembered { model, .. } => Place::Remembered(model.clone()),
        Job::Usage(_) | Job::Record(_) | Job::DeviceNames(_) => return Vec::new(),
    };
    vec![(place, job)]
}
