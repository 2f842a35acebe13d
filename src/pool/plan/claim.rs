//! A load's claim to memory: its requirements with what they are compared to. A plan compares a claim with thousands of devices and
//! holders, so the model's figures are looked up only once.

use crate::facts::models::Model;
use crate::facts::state::Pool;
use crate::types::ids::{DeviceId, OrderId, Span, Time};
use crate::types::requirements::Requirements;

pub(crate) struct Claim<'a> {
    pub requirements: &'a Requirements,
    pub model: &'a Model,
    /// The time until its model is ready once there is room.
    pub ready_in: Span,
    /// The time since which its requests have waited for the turns of others.
    pub waits_since: Time,
    /// The time that its requests may wait for an idle model.
    pub patience: Span,
    /// The time to the first token that its requests should have.
    pub target: Option<Span>,
    /// The administrator's forced load for whose end an additional replica waits (S1).
    pub waits_for: Option<OrderId>,
}

impl<'a> Claim<'a> {
    pub(crate) fn new(pool: &'a Pool, requirements: &'a Requirements) -> Claim<'a> {
        let model = &pool.models[&requirements.model];
        Claim {
            requirements,
            model,
            ready_in: pool.ready_in(model),
            waits_since: model.rent.since(requirements.since),
            patience: model.patience(),
            target: pool.limits.targets.get(&requirements.priority).copied(),
            waits_for: pool.forced_load().filter(|_| requirements.is_gentle),
        }
    }

    /// Returns true if the model's file allows the device.
    pub(crate) fn may_use(&self, device: DeviceId) -> bool {
        let allowed = self.model.spec.allowed.as_ref();
        allowed.is_none_or(|allowed| allowed.contains(&device))
    }
}
