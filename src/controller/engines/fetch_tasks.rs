//! Carries out the fetches of weights that the pool orders, in one task each that ends when its handle is dropped. After a fetch,
//! the model's figures are recomputed before the pool gets the event. Damaged weights on this machine are checked again instead.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use crate::control::Control;
use crate::messages::{Change, Message};

use catalog::Entry;
use pool::{Event, FetchEnd, ModelId, Remedy};
use source::{Progress, Sources};

/// Interval at which a fetch reports its remaining time.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Reports the end of a fetch, even if its task panics or is aborted.
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
    /// Starts the download, or returns the reason it cannot start.
    pub(crate) fn fetch(&mut self, model: ModelId) -> Option<Event> {
        let Some(entry) = self.models.entry(model) else {
            let message = "the model left the catalogue".to_owned();
            let remedy = Remedy::Time;
            let end = FetchEnd::Failed { message, remedy };
            return Some(Event::FetchEnded { model, end });
        };
        let (end, mut ended) = oneshot::channel::<()>();
        let (nth, progress) = self.fetches.begin(model, self.clock.now(), end);
        let sources = Arc::clone(&self.fetches.sources);
        let mut end_guard = FetchEndGuard {
            inbox: self.background.inbox(),
            model,
            nth,
            outcome: FetchEnd::Failed {
                message: "the fetch ended without a result; see the log".to_owned(),
                remedy: Remedy::Time,
            },
        };
        self.background.spawn(async move {
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

    pub(crate) fn fetch_progressed(&mut self, model: ModelId) {
        if let Some(left) = self.fetches.sample(model, self.clock.now()) {
            self.turn(Event::FetchProgressed { model, left });
        }
    }

    pub(crate) fn fetch_ended(&mut self, model: ModelId, nth: u64, outcome: FetchEnd) {
        if !self.fetches.finish(model, nth) {
            return;
        }
        match (&outcome, self.models.get(model)) {
            (FetchEnd::Complete, Some(facts)) => {
                let name = facts.entry.name.clone();
                self.models.queue(Message::Figure {
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

/// Fetches the weights from the source in the model's file. Weights on this machine are checked again: they may have been read as
/// damaged while they were being copied.
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
