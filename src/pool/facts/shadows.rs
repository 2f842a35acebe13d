//! What two rules for eviction would have loaded, had they served the same uses on the same devices: the pool's own, and
//! least recently used. Each is simulated without engines: which models it would hold, and what it would have paid.
//! Chooses nothing for the pool but which of them its plans follow (P5).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::types::ids::{Bytes, DeviceId, ModelId, Span};
use crate::types::lead::Lead;

#[derive(Clone, Debug, Default)]
pub(crate) struct Shadows {
    pub own: Shadow,
    pub simple: Shadow,
    pub lead: Lead,
    /// One in this many models and devices is played.
    pub sample: u64,
}

impl Shadows {
    /// Plays another part of the models and devices from now on: what the shadows hold is of no use for it.
    pub fn resample(&mut self, sample: u64) {
        if self.sample != sample {
            (self.own, self.simple) = (Shadow::default(), Shadow::default());
            self.sample = sample;
        }
    }
}

/// What one rule would hold.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shadow {
    held: BTreeMap<ModelId, Held>,
    devices: BTreeMap<DeviceId, OnDevice>,
    /// The time it would take to load all of it.
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

    /// On each of its devices.
    pub fn bytes_of(&self, model: ModelId) -> Bytes {
        self.held.get(&model).map_or(Bytes::ZERO, |it| it.bytes)
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
