//! Simulates what two eviction rules would have loaded for the same uses on the same devices: the pool's own rule and least
//! recently used. There are no engines: each shadow tracks the models it would hold and the load time it would have paid. For the
//! pool it only decides which rule plans follow (P5).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::facts::shadow_sample::Sample;
use crate::types::ids::{Bytes, DeviceId, ModelId, Span};
use crate::types::lead::Lead;
use crate::types::shadow_costs::ShadowCosts;

#[derive(Clone, Debug, Default)]
pub(crate) struct Shadows {
    pub own: Shadow,
    pub simple: Shadow,
    pub lead: Lead,
    /// The costs of both rules since they began.
    pub costs: ShadowCosts,
    /// The part of the pool that is simulated.
    pub sample: Sample,
    /// False if a device has joined, left or changed its size since the sample was taken.
    pub is_current: bool,
}

impl Shadows {
    /// Switches to another part of the pool and drops everything outside it.
    pub fn resample(&mut self, sample: Sample) {
        for shadow in [&mut self.own, &mut self.simple] {
            shadow.keep(&sample);
        }
        self.sample = sample;
        self.is_current = true;
    }
}

/// The models that a rule would hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shadow {
    held: BTreeMap<ModelId, Held>,
    devices: BTreeMap<DeviceId, OnDevice>,
    /// The total load time of all held models.
    pub reload: Span,
}

#[derive(Clone, Debug)]
struct Held {
    devices: Vec<DeviceId>,
    bytes: Bytes,
    reload: Span,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct OnDevice {
    pub used: Bytes,
    pub models: BTreeSet<ModelId>,
}

impl Shadow {
    pub fn holds(&self, model: ModelId) -> bool {
        self.held.contains_key(&model)
    }

    pub fn on(&self, device: DeviceId) -> Option<&OnDevice> {
        self.devices.get(&device)
    }

    /// The bytes of the model on each of its devices.
    pub fn bytes_of(&self, model: ModelId) -> Bytes {
        self.held.get(&model).map_or(Bytes::ZERO, |held| held.bytes)
    }

    pub fn load(&mut self, model: ModelId, devices: Vec<DeviceId>, bytes: Bytes, reload: Span) {
        for device in &devices {
            let on = self.devices.entry(*device).or_default();
            on.used = on.used + bytes;
            on.models.insert(model);
        }
        self.reload = self.reload + reload;
        let held = Held {
            devices,
            bytes,
            reload,
        };
        self.held.insert(model, held);
    }

    /// Evicts models and devices outside the sample.
    fn keep(&mut self, sample: &Sample) {
        let leaves = |model: &ModelId, held: &Held| {
            !sample.has_model(*model)
                || !held.devices.iter().all(|device| sample.has_device(*device))
        };
        let held = self.held.iter();
        let leaving: Vec<ModelId> = held
            .filter(|(model, held)| leaves(model, held))
            .map(|(model, _)| *model)
            .collect();
        for model in leaving {
            self.evict(model);
        }
        self.devices.retain(|device, _| sample.has_device(*device));
    }

    pub fn evict(&mut self, model: ModelId) {
        let Some(held) = self.held.remove(&model) else {
            return;
        };
        self.reload = Span(self.reload.0.saturating_sub(held.reload.0));
        for device in held.devices {
            if let Some(on) = self.devices.get_mut(&device) {
                on.used = on.used.saturating_sub(held.bytes);
                on.models.remove(&model);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ids::NodeId;

    fn sample(devices: impl IntoIterator<Item = u32>) -> Sample {
        let device = |number| (DeviceId(number), NodeId(number), Bytes(10));
        Sample::new(devices.into_iter().map(device))
    }

    #[test]
    fn a_shadow_holds_no_memory_on_removed_devices() {
        let mut shadows = Shadows::default();
        shadows.resample(sample([1, 2]));
        let reload = Span::from_secs(10);
        let both = [DeviceId(1), DeviceId(2)].to_vec();
        shadows.own.load(ModelId(1), both, Bytes(3), reload);
        let one = [DeviceId(1)].to_vec();
        shadows.own.load(ModelId(2), one, Bytes(4), reload);
        shadows.resample(sample([1]));
        assert!(!shadows.own.holds(ModelId(1)) && shadows.own.holds(ModelId(2)));
        assert_eq!(shadows.own.reload, reload);
        let used = shadows.own.on(DeviceId(1)).map(|on| on.used);
        assert_eq!(used, Some(Bytes(4)));
        assert!(shadows.own.on(DeviceId(2)).is_none());
    }
}
