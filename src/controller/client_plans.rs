//! Plans of loads for clients that do not wait for their model. A plan serves all requests for its model for a moment.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::handle::{ControllerBusy, Handle};
use pool::{LoadOrder, ModelId, Plan, Span, Time};

/// A plan serves requests for this long.
const VALID_FOR: Span = Span(250);

/// A plan with the expected time until the load has ended. `None` if the model is gone.
type Planned = Option<(Plan, Option<Span>)>;

/// The latest plans.
#[derive(Default)]
pub(super) struct ClientPlans {
    latest: Mutex<BTreeMap<ModelId, (Time, Planned)>>,
}

impl ClientPlans {
    fn latest(&self, now: Time) -> MutexGuard<'_, BTreeMap<ModelId, (Time, Planned)>> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        latest.retain(|_, (made_at, _)| now.since(*made_at) < VALID_FOR);
        latest
    }

    fn valid(&self, model: ModelId, now: Time) -> Option<Planned> {
        let latest = self.latest(now);
        latest.get(&model).map(|(_, planned)| planned.clone())
    }
}

impl Handle {
    /// Like [`Handle::plan`], shared by all clients. A new plan is made once `turn` resolves, which bounds the plans made at a time.
    /// Returns `None` also if `turn` resolves to `None`.
    pub async fn plan_for_client<T: Send + 'static>(
        &self,
        load: LoadOrder,
        turn: impl Future<Output = Option<T>>,
    ) -> Result<Planned, ControllerBusy> {
        let (plans, clock, model) = (Arc::clone(&self.client_plans), self.clock, load.model);
        if let Some(planned) = plans.valid(model, clock.now()) {
            return Ok(planned);
        }
        let Some(turn) = turn.await else {
            return Ok(None);
        };
        // An earlier turn may have planned for the same model.
        if let Some(planned) = plans.valid(model, clock.now()) {
            return Ok(planned);
        }
        // The turn ends with the work, even if the client has disconnected.
        self.in_copy(move |pool| {
            let planned = pool.preview_with_forecast(clock.now(), &load);
            let planned = planned.map(|(preview, expected)| (preview.plan, expected));
            let now = clock.now();
            plans.latest(now).insert(model, (now, planned.clone()));
            drop(turn);
            planned
        })
        .await
    }
}
