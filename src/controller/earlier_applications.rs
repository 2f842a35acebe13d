//! Applications of Ray Serve of earlier processes that could not be dealt with at the start: those in a Ray that did not answer
//! are judged when it does, and those through which an earlier process may still stream are removed when that has ended. The
//! task looks; the loop decides.

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
use engine::{Found, Resolved, ServeWriters};
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
        let mut pause = PAUSE;
        while !self.writers.unanswered().is_empty() {
            tokio::select! {
                () = sleep(pause) => {}
                // A load waits for what this look finds.
                () = self.writers.until_heard() => {}
            }
            pause = match self.writers.is_settling() {
                true => PAUSE,
                false => (pause * 2).min(PAUSE_MAX),
            };
            let recipe_of = |model: &str, arguments: &str| {
                let routes = self.routes.load();
                recipe_of_application(model, arguments, &routes.catalog)
            };
            let is_streaming = |replica| self.may_stream(replica);
            let found =
                engine::resolve_unanswered(&self.writers, self.keep, recipe_of, is_streaming);
            self.send(found.await);
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
