//! Handles Ray Serve applications of earlier processes that were left over at the start. Applications in a Ray cluster that did not
//! respond are judged when it does; applications through which an earlier process may still stream are removed after the streams
//! have ended. This task inspects them; the loop decides.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::application_adoption::recipe_of_application;
use crate::clock::Clock;
use crate::gates::{EarlierSeats, Routes};
use crate::messages::Message;
use engine::{AdoptionResult, PendingQueries, ServeWriters, UnadoptedEngine};
use pool::ReplicaId;

/// The first pause between queries of Ray clusters that do not respond.
const PAUSE: Duration = Duration::from_secs(2);
/// A query is one call, to which a Ray cluster that is gone for good never responds.
const PAUSE_MAX: Duration = Duration::from_secs(10);
const RELEASE_EVERY: Duration = Duration::from_secs(1);

pub(crate) struct EarlierApplications {
    pub writers: Arc<ServeWriters>,
    /// The current routes, with the catalogue at the time of use.
    pub routes: Arc<ArcSwap<Routes>>,
    pub seats: EarlierSeats,
    pub inbox: mpsc::UnboundedSender<Message>,
    pub clock: Clock,
    /// `pool.on_restart: adopt`.
    pub keep: bool,
}

/// Runs as long as the loop.
pub(crate) async fn run(applications: EarlierApplications) {
    tokio::join!(applications.judge(), applications.release());
}

impl EarlierApplications {
    /// Ends when every Ray cluster has responded.
    async fn judge(&self) {
        let recipe_of = |model: &str, arguments: &str| {
            let routes = self.routes.load();
            recipe_of_application(model, arguments, &routes.catalog)
        };
        let is_streaming = |replica: ReplicaId| self.may_stream(replica);
        let mut looks = PendingQueries::new(&self.writers, self.keep);
        let mut pause = PAUSE;
        let mut due = pin!(sleep(pause));
        while !self.writers.without_response().is_empty() {
            let look = tokio::select! {
                Some(look) = looks.looked() => Some(look),
                () = due.as_mut() => None,
                // A load waits for the result of this query.
                () = self.writers.until_heard() => None,
            };
            if let Some(look) = look {
                self.send(looks.judge(look, &recipe_of, &is_streaming).await);
                continue;
            }
            looks.begin(&recipe_of);
            pause = if self.writers.is_settling() {
                PAUSE
            } else {
                (pause * 2).min(PAUSE_MAX)
            };
            due.set(sleep(pause));
        }
    }

    async fn release(&self) {
        loop {
            sleep(RELEASE_EVERY).await;
            let others: Vec<UnadoptedEngine> =
                self.writers.release(|replica| self.may_stream(replica));
            self.send(AdoptionResult {
                others,
                ..AdoptionResult::default()
            });
        }
    }

    fn may_stream(&self, replica: ReplicaId) -> bool {
        self.seats.may_stream(replica, self.clock.now())
    }

    fn send(&self, found: AdoptionResult) {
        if !found.applications.is_empty() || !found.others.is_empty() {
            // Fails only while the process ends.
            let _ = self.inbox.send(Message::Applications(found));
        }
    }
}
