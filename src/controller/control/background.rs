//! Tasks that work for the loop and report to its inbox. They are aborted when the loop ends.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::messages::{Change, Message};
use catalog::{Entry, Fetch};
use engine::{Report, missing_program};
use pool::ReplicaId;
use source::Sources;

pub(crate) struct Background {
    tasks: JoinSet<()>,
    inbox: mpsc::UnboundedSender<Message>,
}

impl Background {
    pub fn new(inbox: mpsc::UnboundedSender<Message>) -> Background {
        Background {
            tasks: JoinSet::new(),
            inbox,
        }
    }

    pub fn inbox(&self) -> mpsc::UnboundedSender<Message> {
        self.inbox.clone()
    }

    /// Sends a message to the loop itself, for a later turn.
    pub fn send(&self, message: Message) {
        // The loop holds the receiver.
        let _ = self.inbox.send(message);
    }

    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task);
    }

    /// Forgets the tasks that have ended.
    pub fn reap(&mut self) {
        while self.tasks.try_join_next().is_some() {}
    }

    /// Aborts all tasks and waits for their end.
    pub async fn shutdown(&mut self) {
        self.tasks.shutdown().await;
    }

    /// Carries the reports of an engine to the loop.
    pub fn reports(&self, replica: ReplicaId) -> impl Fn(Report) + Send + Sync + 'static + use<> {
        let inbox = self.inbox();
        move |report| {
            let _ = inbox.send(Message::Report { replica, report });
        }
    }

    /// Checks whether the weights are in the page cache: then the load leaves the disk free for others (M1).
    pub fn look_for_weights(&mut self, replica: ReplicaId, path: PathBuf) {
        let inbox = self.inbox();
        self.spawn(async move {
            let look = move || (engine::tier_of(&path), engine::weights_mark(&path));
            if let Ok((tier, weights)) = tokio::task::spawn_blocking(look).await {
                let _ = inbox.send(Message::LoadsFrom {
                    replica,
                    tier,
                    weights,
                });
            }
        });
    }

    /// Checks after a failed load whether fetched weights were deleted, weights on this machine are damaged, or the program is
    /// gone.
    pub fn look_for_weights_again(&mut self, entry: Arc<Entry>) {
        let inbox = self.inbox();
        self.spawn(async move {
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

    /// Queries the hub for the size of absent weights, by model name. Computes each model's needs again after the hub has
    /// responded.
    pub fn describe(&mut self, fetches: Vec<(String, Fetch)>, sources: Arc<Sources>) {
        if fetches.is_empty() {
            return;
        }
        let inbox = self.inbox();
        self.spawn(async move {
            for (name, fetch) in fetches {
                // Weights that another program has downloaded on this machine show their size on disk.
                let looked = fetch.clone();
                let is_unknown =
                    move || looked.snapshot_of_others().is_none() && looked.is_unknown();
                let is_unknown = tokio::task::spawn_blocking(is_unknown).await;
                if !matches!(is_unknown, Ok(true)) {
                    continue;
                }
                match sources.describe(&fetch).await {
                    Ok(_) if fetch.description().join("bytes").is_file() => {
                        let then = Change::Figure;
                        let _ = inbox.send(Message::Figure { name, then });
                    }
                    Ok(_) => {}
                    Err(error) => {
                        tracing::info!(model = name, %error, "the size is estimated until the weights are here");
                    }
                }
            }
        });
    }
}
