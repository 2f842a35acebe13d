//! Fetches of weights that the pool has ordered: one task each, told to end by dropping it. What has come
//! makes the model's figures anew before the pool hears that it is here.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::control::Control;
use super::handle::Message;
use super::registry::Change;
use crate::pool::{Event, FetchEnd, ModelId, Remedy, Span, Time};
use crate::source::Progress;

/// How often it is told how long a fetch still takes.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// A fetch that runs.
#[derive(Debug)]
pub(super) struct Running {
    pub facts: FetchFacts,
    /// Tells fetches of one model apart.
    nth: u64,
    /// Dropped to end it.
    end: Option<oneshot::Sender<()>>,
}

/// What readers see of a fetch.
#[derive(Clone, Debug)]
pub struct FetchFacts {
    pub since: Time,
    /// Goes on while it is looked at.
    pub progress: Arc<Progress>,
}

impl FetchFacts {
    /// What is left at the speed so far; `None` while that is not known.
    pub fn left(&self, now: Time) -> Option<Span> {
        let (took, came) = (now.since(self.since).0, self.progress.came());
        let left = self.progress.total().saturating_sub(self.progress.done());
        let left = u128::from(left) * u128::from(took);
        let left = left.checked_div(u128::from(came))?;
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
                },
                nth,
                end: Some(end),
            },
        );
        let (sources, inbox) = (Arc::clone(&self.sources), self.inbox.clone());
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
                        let _ = inbox.send(Message::FetchGoesOn { model });
                    }
                }
            };
            let _ = inbox.send(Message::FetchEnded {
                model,
                nth,
                outcome,
            });
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
        let running = self.fetches.get(&model);
        if let Some(left) = running.and_then(|it| it.facts.left(now)) {
            self.turn(Event::FetchGoesOn { model, left });
        }
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
