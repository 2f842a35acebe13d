//! A load's claim to memory: its requirements, with what every device and every holder of memory is compared with. A plan
//! looks at thousands of them, so that this is looked up once.

use crate::facts::device::Device;
use crate::facts::state::{Model, Pool};
use crate::types::ids::{Bytes, DeviceId, Span};
use crate::types::obstacle::Unfit;
use crate::types::requirements::Requirements;

pub(crate) struct Claim<'a> {
    pub requirements: &'a Requirements,
    pub model: &'a Model,
    /// The time until its model is ready once there is room.
    pub ready_in: Span,
    /// How long its requests may wait for the turns of others.
    pub patience: Span,
}

impl<'a> Claim<'a> {
    pub(crate) fn of(pool: &'a Pool, requirements: &'a Requirements) -> Claim<'a> {
        let model = &pool.models[&requirements.model];
        Claim {
            requirements,
            model,
            ready_in: pool.return_time(model),
            patience: model.patience(),
        }
    }

    /// What it needs on the device, if the device can ever hold a part of it.
    pub(crate) fn needs_on(
        &self,
        pool: &Pool,
        id: DeviceId,
        device: &Device,
    ) -> Result<Bytes, Unfit> {
        self.requirements.needs_of(pool, self.model, id, device)
    }

    /// Whether the model's file lets it use the device.
    pub(crate) fn may_use(&self, device: DeviceId) -> bool {
        let allowed = self.model.spec.allowed.as_ref();
        allowed.is_none_or(|allowed| allowed.contains(&device))
    }
}
