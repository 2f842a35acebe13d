//! Plans of loads for clients that do not wait for their model. All callers share them: one is made at a time, and it serves the
//! requests for that model for a moment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::handle::{ControllerBusy, Handle};
use pool::{LoadOrder, ModelId, Plan, Span, Time};

/// A plan serves requests for this long.
const VALID_FOR: Span = Span(250);
/// Longest wait for the plans of others.
const WAITS_AT_MOST: Duration = Duration::from_secs(2);

/// A plan with the expected time until the load has ended. `None` if the model is gone.
type Planned = Option<(Plan, Option<Span>)>;

/// The latest plans, and the permit to make one.
pub(super) struct ClientPlans {
    turn: Arc<Semaphore>,
    latest: Mutex<BTreeMap<ModelId, (Time, Planned)>>,
}

impl Default for ClientPlans {
    fn default() -> ClientPlans {
        ClientPlans {
            turn: Arc::new(Semaphore::new(1)),
            latest: Mutex::default(),
        }
    }
}

impl ClientPlans {
    fn latest(&self, now: Time) -> MutexGuard<'_, BTreeMap<ModelId, (Time, Planned)>> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.retain(|_, (made_at, _)| now.since(*made_at) < VALID_FOR);
        latest
    }
}

impl Handle {
    /// Like [`Handle::plan`], shared by all clients. `None` also if too many plans of other models are made.
    pub async fn plan_for_client(&self, load: LoadOrder) -> Result<Planned, ControllerBusy> {
        let (plans, clock, model) = (Arc::clone(&self.client_plans), self.clock, load.model);
        let turn = Arc::clone(&plans.turn).acquire_owned();
        let turn = match timeout(WAITS_AT_MOST, turn).await {
            Ok(Ok(turn)) => turn,
            Ok(Err(_)) | Err(_) => return Ok(None),
        };
        if let Some((_, planned)) = plans.latest(clock.now()).get(&model) {
            return Ok(planned.clone());
        }
        // The turn ends with the work, even if the client has disconnected.
        self.in_copy(move |pool| {
            let planned = pool.preview_with_forecast(clock.now(), &load);
            let now = clock.now();
            plans.latest(now).insert(model, (now, planned.clone()));
            drop(turn);
            planned
        })
        .await
    }
}
