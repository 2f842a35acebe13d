//! Fetches of weights that the pool has ordered: one task each, told to end by dropping it. What has come
//! makes the model's figures anew before the pool hears that it is here.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::control::Control;
use super::handle::Message;
use super::registry::Change;
use pool::{Event, FetchEnd, ModelId, Remedy, Span, Time};
use source::Progress;

/// How often it is told how long a fetch still takes.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Over which its speed is averaged.
const SAMPLES_MAX: usize = 15;

/// A fetch that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub facts: FetchFacts,
    /// Tells fetches of one model apart.
    nth: u64,
    /// Dropped to end it.
    end: Option<oneshot::Sender<()>>,
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

/// Sends how the fetch ended, whatever becomes of its task.
struct FetchEndGuard {
    inbox: mpsc::UnboundedSender<Message>,
    model: ModelId,
    nth: u64,
    outcome: FetchEnd,
}

impl FetchEndGuard {
    fn ends_with(&mut self, outcome: FetchEnd) {
        self.outcome = outcome;
    }
}

impl Drop for FetchEndGuard {
    fn drop(&mut self) {
        let _ = self.inbox.send(Message::FetchEnded {
            model: self.model,
            nth: self.nth,
            outcome: self.outcome.clone(),
        });
    }
}

impl Running {
    /// What is left, at the speed of the last samples; whoever brings the bytes.
    fn left(&self) -> Option<Span> {
        let ((first, had), (last, has)) = (self.samples.front()?, self.samples.back()?);
        let (took, came) = (last.since(*first).0, has.saturating_sub(*had));
        let left = self.facts.progress.total().saturating_sub(*has);
        let left = (u128::from(left) * u128::from(took)).checked_div(u128::from(came))?;
        Some(Span(u64::try_from(left).unwrap_or(u64::MAX)))
    }
}

impl Control {
    /// Starts the download, or says at once why it cannot be started.
    pub(super) fn fetch(&mut self, model: ModelId) -> Option<Event> {
        let facts = self.facts.get(&model);
        let Some(wanted) = facts.and_then(|facts| facts.entry.fetch.clone()) else {
            let message = "the model's file names nothing that could be fetched".to_owned();
            let remedy = Remedy::Time;
            let end = FetchEnd::Failed { message, remedy };
            return Some(Event::FetchEnded { model, end });
        };
        self.fetch_number += 1;
        let nth = self.fetch_number;
        let progress = Arc::new(Progress::default());
        let (end, mut ended) = oneshot::channel::<()>();
        self.fetches.insert(
            model,
            Running {
                facts: FetchFacts {
                    since: self.clock.now(),
                    progress: Arc::clone(&progress),
                    left: None,
                },
                nth,
                end: Some(end),
                samples: VecDeque::new(),
            },
        );
        let sources = Arc::clone(&self.sources);
        let mut told = FetchEndGuard {
            inbox: self.inbox.clone(),
            model,
            nth,
            outcome: FetchEnd::Failed {
                message: "the fetch ended without a word; see the log".to_owned(),
                remedy: Remedy::Time,
            },
        };
        self.tasks.spawn(async move {
            let mut fetching = std::pin::pin!(sources.fetch(&wanted, &progress));
            let outcome = loop {
                tokio::select! {
                    biased;
                    _ = &mut ended => break FetchEnd::Ended,
                    brought = &mut fetching => break match brought {
                        Ok(()) => FetchEnd::Here,
                        Err(fault) => FetchEnd::Failed {
                            remedy: fault.remedy(),
                            message: fault.to_string(),
                        },
                    },
                    () = tokio::time::sleep(TELL_EVERY) => {
                        let _ = told.inbox.send(Message::FetchGoesOn { model });
                    }
                }
            };
            told.ends_with(outcome);
        });
        None
    }

    pub(super) fn fetch_facts(&self) -> BTreeMap<ModelId, FetchFacts> {
        let facts = self.fetches.iter();
        facts
            .map(|(&model, it)| (model, it.facts.clone()))
            .collect()
    }

    pub(super) fn end_fetch(&mut self, model: ModelId) {
        if let Some(running) = self.fetches.get_mut(&model) {
            running.end = None;
        }
    }

    pub(super) fn fetch_goes_on(&mut self, model: ModelId) {
        let now = self.clock.now();
        let Some(running) = self.fetches.get_mut(&model) else {
            return;
        };
        running
            .samples
            .push_back((now, running.facts.progress.done()));
        if running.samples.len() > SAMPLES_MAX {
            running.samples.pop_front();
        }
        running.facts.left = running.left();
        if let Some(left) = running.facts.left {
            self.turn(Event::FetchGoesOn { model, left });
        }
    }

    /// A load failed of a model that the pool fetches: somebody may have deleted its weights.
    pub(super) fn look_for_fetched(&mut self, model: ModelId) {
        let facts = self.facts.get(&model);
        let Some(facts) = facts.filter(|facts| facts.entry.fetch.is_some()) else {
            return;
        };
        let (entry, inbox) = (Arc::clone(&facts.entry), self.inbox.clone());
        self.tasks.spawn(async move {
            let name = entry.name.clone();
            let look = move || {
                entry.fetch.as_ref().is_some_and(|fetch| {
                    fetch.doubt_adopted();
                    fetch.is_here()
                })
            };
            if let Ok(false) = tokio::task::spawn_blocking(look).await {
                let then = Change::Figure;
                let _ = inbox.send(Message::Figure { name, then });
            }
        });
    }

    pub(super) fn fetch_ended(&mut self, model: ModelId, nth: u64, outcome: FetchEnd) {
        if self.fetches.get(&model).is_none_or(|it| it.nth != nth) {
            return;
        }
        self.fetches.remove(&model);
        match (&outcome, self.facts.get(&model)) {
            (FetchEnd::Here, Some(facts)) => {
                let name = facts.entry.name.clone();
                self.changes.push_back(Message::Figure {
                    name,
                    then: Change::Fetched { model },
                });
                self.next_change();
            }
            _ => self.turn(Event::FetchEnded {
                model,
                end: outcome,
            }),
        }
    }
}
