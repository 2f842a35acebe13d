//! Fetches of weights in progress, with their remaining time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::oneshot;

use pool::{ModelId, Span, Time};
use source::{Progress, Sources};

/// Number of samples that the speed is averaged over.
const SAMPLES_MAX: usize = 15;

#[derive(Debug)]
pub(crate) struct Fetches {
    pub sources: Arc<Sources>,
    running: BTreeMap<ModelId, RunningFetch>,
    /// The number of the latest fetch.
    last: u64,
}

/// A fetch in progress.
#[derive(Debug)]
struct RunningFetch {
    facts: FetchFacts,
    /// Distinguishes fetches of the same model.
    nth: u64,
    /// Dropped to end the fetch.
    end: Option<oneshot::Sender<()>>,
    /// Total bytes present, sampled once a second.
    samples: VecDeque<(Time, u64)>,
}

/// The state of a fetch, for readers.
#[derive(Clone, Debug)]
pub struct FetchFacts {
    pub since: Time,
    /// Keeps changing while the fetch runs.
    pub progress: Arc<Progress>,
    /// Remaining time at the recent speed; `None` while unknown.
    pub left: Option<Span>,
}

impl Fetches {
    pub fn new(sources: Arc<Sources>) -> Fetches {
        Fetches {
            sources,
            running: BTreeMap::new(),
            last: 0,
        }
    }

    /// Registers a new fetch and returns its number and progress. Dropping `end` cancels the fetch.
    pub fn begin(
        &mut self,
        model: ModelId,
        now: Time,
        end: oneshot::Sender<()>,
    ) -> (u64, Arc<Progress>) {
        self.last += 1;
        let progress = Arc::new(Progress::default());
        let facts = FetchFacts {
            since: now,
            progress: Arc::clone(&progress),
            left: None,
        };
        self.running.insert(
            model,
            RunningFetch {
                facts,
                nth: self.last,
                end: Some(end),
                samples: VecDeque::new(),
            },
        );
        (self.last, progress)
    }

    /// Cancels a fetch, which then ends.
    pub fn cancel(&mut self, model: ModelId) {
        if let Some(running) = self.running.get_mut(&model) {
            running.end = None;
        }
    }

    /// Records the progress of a fetch at `now`. Returns its remaining time.
    pub fn sample(&mut self, model: ModelId, now: Time) -> Option<Span> {
        self.running.get_mut(&model)?.sample(now)
    }

    /// Removes a fetch that has ended. Returns false if this is not the model's latest fetch.
    pub fn finish(&mut self, model: ModelId, nth: u64) -> bool {
        let running = self.running.get(&model);
        let is_latest = running.is_some_and(|running| running.nth == nth);
        if is_latest {
            self.running.remove(&model);
        }
        is_latest
    }

    pub fn facts(&self) -> BTreeMap<ModelId, FetchFacts> {
        let facts = self.running.iter();
        facts
            .map(|(&model, running)| (model, running.facts.clone()))
            .collect()
    }
}

impl RunningFetch {
    /// Records the progress at `now`. Returns the remaining time.
    fn sample(&mut self, now: Time) -> Option<Span> {
        self.samples.push_back((now, self.facts.progress.done()));
        if self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.facts.left = self.left();
        self.facts.left
    }

    /// The remaining time at the speed of the last samples, whichever process downloads.
    fn left(&self) -> Option<Span> {
        let ((first, had), (last, has)) = (self.samples.front()?, self.samples.back()?);
        let (took, came) = (last.since(*first).0, has.saturating_sub(*had));
        let left = self.facts.progress.total().saturating_sub(*has);
        let left = (u128::from(left) * u128::from(took)).checked_div(u128::from(came))?;
        Some(Span(u64::try_from(left).unwrap_or(u64::MAX)))
    }
}
