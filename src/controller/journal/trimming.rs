//! Keeps the store within its bounds by deleting old and surplus rows and freeing their space. Runs as short writes between the
//! jobs of the keeper, which delay no wish.

use std::sync::Arc;

use crate::clock::Clock;
use config::LiveConfig;
use pool::{Span, Time};
use store::{ResponseBounds, Retention, Store, StoreError};

/// Pause between rounds.
const ROUND_EVERY: Span = Span::from_secs(600);
/// Pause between two writes of a round, since others use the disk too.
const PAUSE: Span = Span(20);

/// The stages of a round, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    History,
    Audit,
    Votes,
    Usage,
    Ledger,
    Facts,
    Responses,
    Space,
}

#[derive(Debug)]
pub(crate) struct Trimming {
    clock: Clock,
    config: LiveConfig,
    stage: Stage,
    due: Time,
}

impl Trimming {
    /// Creates the state. The first round is due immediately.
    pub fn new(clock: Clock, config: LiveConfig) -> Trimming {
        Trimming {
            config,
            stage: Stage::History,
            due: clock.now(),
            clock,
        }
    }

    /// The time by the machine's clock.
    pub fn wall(&self) -> Time {
        self.clock.wall()
    }

    /// Waits until the next write is due. Cancel safe.
    pub async fn due(&self) {
        tokio::time::sleep_until(self.clock.instant(self.due)).await;
    }

    /// Does one write, or none while the disk accepts none.
    pub async fn turn(&mut self, store: &Arc<Store>) {
        if store.trouble().is_some() {
            self.due = self.clock.now() + ROUND_EVERY;
            return;
        }
        let next = match self.stage {
            Stage::History => Some(Stage::Audit),
            Stage::Audit => Some(Stage::Votes),
            Stage::Votes => Some(Stage::Usage),
            Stage::Usage => Some(Stage::Ledger),
            Stage::Ledger => Some(Stage::Facts),
            Stage::Facts => Some(Stage::Responses),
            Stage::Responses => Some(Stage::Space),
            Stage::Space => None,
        };
        let (stage, pause) = match (self.write(store).await, next) {
            (Ok(true), _) => (self.stage, PAUSE),
            (Ok(false), Some(next)) => (next, PAUSE),
            (Ok(false), None) => (Stage::History, ROUND_EVERY),
            (Err(error), _) => {
                tracing::warn!(%error, "old rows of the store stay for now");
                (Stage::History, ROUND_EVERY)
            }
        };
        (self.stage, self.due) = (stage, self.clock.now() + pause);
    }

    /// Returns true if the stage has more rows to delete.
    async fn write(&self, store: &Store) -> Result<bool, StoreError> {
        let (now, config) = (self.clock.now(), self.config.get());
        let keep = Retention {
            age: config.state.history.keep.0,
            rows: config.state.history.rows_max,
        };
        match self.stage {
            Stage::History => Ok(store.forget_history(now, keep).await? > 0),
            Stage::Audit => Ok(store.forget_audit(now, keep).await? > 0),
            Stage::Votes => Ok(store.forget_votes(now, keep).await? > 0),
            Stage::Usage => Ok(store.forget_usage().await? > 0),
            Stage::Ledger => {
                let wall = self.clock.wall();
                let hour = i64::try_from(wall.0 / 3_600_000).unwrap_or(i64::MAX);
                let days = i64::try_from(config.usage.keep.0.0 / 86_400_000).unwrap_or(i64::MAX);
                let first = config.day(wall).saturating_sub(days);
                Ok(store.forget_ledger(hour, first).await? > 0)
            }
            Stage::Facts => store.forget_facts().await.map(|_| false),
            Stage::Responses => {
                let bounds = ResponseBounds::from_config(&config.state.responses);
                store.forget_responses(now, bounds).await
            }
            Stage::Space => store.give_space_back().await,
        }
    }
}
