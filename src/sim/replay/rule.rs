//! What a rival's rule sees, and what it may answer. Rules decide; `rival` carries out.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::scene::Scene;
use pool::{Bytes, DeviceId, ModelId, Span, Time};

/// A model that is loaded, loading or leaving, as a rule sees it.
#[derive(Clone, Debug)]
pub struct Resident {
    pub model: ModelId,
    pub devices: Vec<DeviceId>,
    pub loaded: Time,
    pub last_used: Time,
    pub in_flight: u32,
    pub loading: bool,
    pub leaving: bool,
}

/// What a rule may look at.
pub struct Facts<'a> {
    pub scene: &'a Scene,
    pub now: Time,
    pub residents: &'a BTreeMap<ModelId, Resident>,
    /// Free bytes of each device, what leaves not counted.
    pub free: &'a BTreeMap<DeviceId, Bytes>,
    pub capacity: &'a BTreeMap<DeviceId, Bytes>,
    pub waiting: &'a BTreeMap<ModelId, VecDeque<Queued>>,
}

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub struct Queued {
    pub at: Time,
    pub service: Span,
}

/// What a rule wants done for a model that somebody waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Load it there once these have left; those with requests in flight are cut if `cut`.
    Load {
        devices: Vec<DeviceId>,
        victims: Vec<ModelId>,
        cut: bool,
    },
    /// Nothing can be done now.
    Wait,
    /// Whoever waits is turned away.
    Refuse(&'static str),
}

/// A peer's published algorithm.
pub trait Rule {
    fn name(&self) -> &'static str;
    fn wish(&mut self, facts: &Facts<'_>, model: ModelId) -> Wish;
    /// After which idle time a model leaves by itself: as the pool is configured, unless the peer
    /// has a time of its own.
    fn keep_hot(&self, facts: &Facts<'_>, model: ModelId) -> Option<Span> {
        Some(facts.scene.models[model.0 as usize].keep_hot)
    }
    /// The models somebody waits for, in the order in which they are served.
    fn order(&self, facts: &Facts<'_>) -> Vec<ModelId> {
        let mut order: Vec<ModelId> = facts.waiting.keys().copied().collect();
        order.sort_by_key(|model| (facts.waiting[model][0].at, *model));
        order
    }
    /// While the first in line cannot be served, nobody behind it is.
    fn strict(&self) -> bool {
        false
    }
    /// A model was used, or is about to be; for rules that keep counts.
    fn used(&mut self, _model: ModelId, _now: Time) {}
    fn loaded(&mut self, _model: ModelId, _now: Time) {}
    /// `victim` leaves for something else.
    fn evicted(&mut self, _victim: ModelId) {}
}

impl Facts<'_> {
    pub fn needs(&self, model: ModelId) -> (u32, Bytes) {
        let spec = &self.scene.models[model.0 as usize];
        (spec.devices_per_replica.max(1), spec.bytes_per_device)
    }

    pub fn free_on(&self, device: DeviceId) -> u64 {
        // Below zero while victims of a decided load have not left.
        let free = self.free[&device].0;
        if free > u64::MAX / 2 { 0 } else { free }
    }

    /// Idle, loaded models that hold a part of a device.
    pub fn idle_on(&self, device: DeviceId) -> impl Iterator<Item = &Resident> {
        self.residents.values().filter(move |it| {
            it.in_flight == 0 && !it.loading && !it.leaving && it.devices.contains(&device)
        })
    }
}
