//! Applications of Ray Serve of earlier processes that could not be dealt with at the start: those in a Ray that did not answer
//! are judged when it does, and those through which an earlier process may still stream are removed when that has ended. The
//! task looks; the loop decides.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::adopting_applications::recipe_of_application;
use super::clock::Clock;
use super::earlier_seats::EarlierSeats;
use super::message::Message;
use super::routing::Routes;
use engine::{Found, LateLooks, Resolved, ServeWriters};
use pool::ReplicaId;

/// The first pause between looks at Rays that do not answer.
const PAUSE: Duration = Duration::from_secs(2);
/// A look is one call, which a Ray that is gone for good never answers.
const PAUSE_MAX: Duration = Duration::from_secs(10);
const RELEASE_EVERY: Duration = Duration::from_secs(1);

pub(super) struct EarlierApplications {
    pub writers: Arc<ServeWriters>,
    /// With the catalogue as it is by then.
    pub routes: Arc<ArcSwap<Routes>>,
    pub seats: EarlierSeats,
    pub inbox: mpsc::UnboundedSender<Message>,
    pub clock: Clock,
    /// `pool.on_restart: adopt`.
    pub keep: bool,
}

/// Lives as long as the loop.
pub(super) async fn run(it: EarlierApplications) {
    tokio::join!(it.judge(), it.release());
}

impl EarlierApplications {
    /// Until every Ray has answered.
    async fn judge(&self) {
        let recipe_of = |model: &str, arguments: &str| {
            let routes = self.routes.load();
            recipe_of_application(model, arguments, &routes.catalog)
        };
        let is_streaming = |replica: ReplicaId| self.may_stream(replica);
        let mut looks = LateLooks::new(&self.writers, self.keep);
        let mut pause = PAUSE;
        let mut due = pin!(sleep(pause));
        while !self.writers.unanswered().is_empty() {
            let look = tokio::select! {
                Some(look) = looks.looked() => Some(look),
                () = due.as_mut() => None,
                // A load waits for what this look finds.
                () = self.writers.until_heard() => None,
            };
            if let Some(look) = look {
                self.send(looks.judge(look, &recipe_of, &is_streaming).await);
                continue;
            }
            looks.begin(&recipe_of);
            pause = match self.writers.is_settling() {
                true => PAUSE,
                false => (pause * 2).min(PAUSE_MAX),
            };
            due.set(sleep(pause));
        }
    }

    async fn release(&self) {
        loop {
            sleep(RELEASE_EVERY).await;
            let others: Vec<Found> = self.writers.release(|replica| self.may_stream(replica));
            self.send(Resolved {
                others,
                ..Resolved::default()
            });
        }
    }

    fn may_stream(&self, replica: ReplicaId) -> bool {
        self.seats.may_stream(replica, self.clock.now())
    }

    fn send(&self, found: Resolved) {
        if !found.applications.is_empty() || !found.others.is_empty() {
            // The loop is gone when the process ends.
            let _ = self.inbox.send(Message::Applications(found));
        }
    }
}
