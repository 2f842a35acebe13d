//! Carries out the fetches of weights that the pool orders: one task each, which ends when its handle is dropped. After
//! a fetch the model's figures are calculated anew, before the pool gets the event. Weights that lie on this machine and
//! are damaged are looked at instead.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::catalog_change::Change;
use super::control::Control;
use super::message::Message;

use catalog::{Entry, Warning};
use engine::missing_program;
use pool::{Event, FetchEnd, ModelId, Remedy};
use source::{Progress, Sources};

/// How often a fetch reports how long it still takes.
const TELL_EVERY: Duration = Duration::from_secs(1);

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

impl Control {
    /// Starts the download, or says at once why it cannot be started.
    pub(super) fn fetch(&mut self, model: ModelId) -> Option<Event> {
        let facts = self.models.facts.get(&model);
        let Some(entry) = facts.map(|facts| Arc::clone(&facts.entry)) else {
            let message = "the model left the catalogue".to_owned();
            let remedy = Remedy::Time;
            let end = FetchEnd::Failed { message, remedy };
            return Some(Event::FetchEnded { model, end });
        };
        let (end, mut ended) = oneshot::channel::<()>();
        let (nth, progress) = self.fetches.begin(model, self.clock.now(), end);
        let sources = Arc::clone(&self.fetches.sources);
        let mut end_guard = FetchEndGuard {
            inbox: self.inbox.clone(),
            model,
            nth,
            outcome: FetchEnd::Failed {
                message: "the fetch ended without a word; see the log".to_owned(),
                remedy: Remedy::Time,
            },
        };
        self.tasks.spawn(async move {
            let mut fetching = std::pin::pin!(bring(&sources, &entry, &progress));
            let outcome = loop {
                tokio::select! {
                    biased;
                    _ = &mut ended => break FetchEnd::Cancelled,
                    outcome = &mut fetching => break outcome,
                    () = tokio::time::sleep(TELL_EVERY) => {
                        let _ = end_guard.inbox.send(Message::FetchProgressed { model });
                    }
                }
            };
            end_guard.ends_with(outcome);
        });
        None
    }

    pub(super) fn end_fetch(&mut self, model: ModelId) {
        if let Some(running) = self.fetches.running.get_mut(&model) {
            running.end = None;
        }
    }

    pub(super) fn fetch_progressed(&mut self, model: ModelId) {
        let now = self.clock.now();
        let Some(running) = self.fetches.running.get_mut(&model) else {
            return;
        };
        if let Some(left) = running.sample(now) {
            self.turn(Event::FetchProgressed { model, left });
        }
    }

    /// Weights on this machine that were damaged when they were last looked at.
    pub(super) fn damaged_weights(&self) -> Vec<Warning> {
        let snapshot = self.publishing.snapshot.load();
        let damaged = snapshot.pool.models.iter().filter_map(|it| {
            let facts = self.models.facts.get(&it.model)?;
            Some(Warning {
                origin: facts.entry.source.to_string(),
                line: None,
                key: None,
                message: it.damage.clone()?,
            })
        });
        damaged.collect()
    }

    /// A load failed: the weights may have been deleted that the pool has fetched, others on this machine may be damaged, and
    /// the program may be gone.
    pub(super) fn look_for_weights_again(&mut self, model: ModelId) {
        let Some(facts) = self.models.facts.get(&model) else {
            return;
        };
        let (entry, inbox) = (Arc::clone(&facts.entry), self.inbox.clone());
        self.tasks.spawn(async move {
            let name = entry.name.clone();
            let look = move || {
                let has_weights = match &entry.fetch {
                    Some(fetch) => {
                        fetch.doubt_adopted();
                        fetch.is_here()
                    }
                    None => entry.damage().is_none(),
                };
                has_weights && missing_program(&entry.name, &entry.recipe).is_none()
            };
            if let Ok(false) = tokio::task::spawn_blocking(look).await {
                let then = Change::Figure;
                let _ = inbox.send(Message::Figure { name, then });
            }
        });
    }

    pub(super) fn fetch_ended(&mut self, model: ModelId, nth: u64, outcome: FetchEnd) {
        if self
            .fetches
            .running
            .get(&model)
            .is_none_or(|it| it.nth != nth)
        {
            return;
        }
        self.fetches.running.remove(&model);
        match (&outcome, self.models.facts.get(&model)) {
            (FetchEnd::Complete, Some(facts)) => {
                let name = facts.entry.name.clone();
                self.models.changes.push_back(Message::Figure {
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

/// Brings the weights from where the model's file says. Those that lie on this machine may have been damaged only while they
/// were copied there.
async fn bring(sources: &Sources, entry: &Arc<Entry>, progress: &Arc<Progress>) -> FetchEnd {
    if let Some(wanted) = &entry.fetch {
        return match sources.fetch(wanted, progress).await {
            Ok(()) => FetchEnd::Complete,
            Err(fault) => FetchEnd::Failed {
                remedy: fault.remedy(),
                message: fault.to_string(),
            },
        };
    }
    let looked_at = Arc::clone(entry);
    let damage = tokio::task::spawn_blocking(move || looked_at.damage()).await;
    let damage =
        damage.unwrap_or_else(|error| Some(format!("reading its weights failed: {error}")));
    match damage {
        None => FetchEnd::Complete,
        Some(message) => FetchEnd::Failed {
            message,
            remedy: Remedy::Time,
        },
    }
}
