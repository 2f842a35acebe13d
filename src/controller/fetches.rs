//! Fetches of weights that are under way: their progress and how long they still take.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::oneshot;

use pool::{ModelId, Span, Time};
use source::{Progress, Sources};

/// Over which its speed is averaged.
const SAMPLES_MAX: usize = 15;

#[derive(Debug)]
pub(super) struct Fetches {
    pub sources: Arc<Sources>,
    pub running: BTreeMap<ModelId, Running>,
    /// The number of the last one.
    last: u64,
}

/// A fetch that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub facts: FetchFacts,
    /// Tells fetches of one model apart.
    pub nth: u64,
    /// Dropped to end it.
    pub end: Option<oneshot::Sender<()>>,
    /// Bytes that were there, once a second.
    samples: VecDeque<(Time, u64)>,
}

/// What readers see of a fetch.
#[derive(Clone, Debug)]
pub struct FetchFacts {
    pub since: Time,
    /// Goes on while it is looked at.
    pub progress: Arc<Progress>,
    /// At its speed of late; `None` while that is not known.
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

    /// Notes a fetch that starts now, and gives its number and its progress. It ends when `end` is dropped.
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
            Running {
                facts,
                nth: self.last,
                end: Some(end),
                samples: VecDeque::new(),
            },
        );
        (self.last, progress)
    }

    pub fn facts(&self) -> BTreeMap<ModelId, FetchFacts> {
        let facts = self.running.iter();
        facts
            .map(|(&model, it)| (model, it.facts.clone()))
            .collect()
    }
}

impl Running {
    /// Counts what has come, and gives how long the rest takes.
    pub fn sample(&mut self, now: Time) -> Option<Span> {
        self.samples.push_back((now, self.facts.progress.done()));
        if self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.facts.left = self.left();
        self.facts.left
    }

    /// What is left, at the speed of the last samples, whichever process downloads.
    fn left(&self) -> Option<Span> {
        let ((first, had), (last, has)) = (self.samples.front()?, self.samples.back()?);
        let (took, came) = (last.since(*first).0, has.saturating_sub(*had));
        let left = self.facts.progress.total().saturating_sub(*has);
        let left = (u128::from(left) * u128::from(took)).checked_div(u128::from(came))?;
        Some(Span(u64::try_from(left).unwrap_or(u64::MAX)))
    }
}
