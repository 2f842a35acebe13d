//! The input of a baseline's rule, and its possible decisions. Rules decide; `baseline` carries out.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::scenario::Scenario;
use pool::{Bytes, DeviceId, KeyId, ModelId, Span, Time};

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

/// The facts that a rule may use.
pub struct Facts<'a> {
    pub scenario: &'a Scenario,
    pub now: Time,
    pub residents: &'a BTreeMap<ModelId, Resident>,
    /// The free bytes of each device, without the memory of leaving models.
    pub free: &'a BTreeMap<DeviceId, Bytes>,
    pub capacity: &'a BTreeMap<DeviceId, Bytes>,
    pub waiting: &'a BTreeMap<ModelId, VecDeque<Queued>>,
}

/// A waiting request.
#[derive(Clone, Copy, Debug)]
pub struct Queued {
    pub key: KeyId,
    pub at: Time,
    pub service: Span,
}

/// The rule's decision for a model with waiting requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Loads it there after these victims have left. `cut` cuts the requests in flight on them.
    Load {
        devices: Vec<DeviceId>,
        victims: Vec<ModelId>,
        cut: bool,
    },
    /// No action is possible now.
    Wait,
    /// Refuses its waiting requests.
    Refuse(&'static str),
}

/// The published algorithm of a comparable system.
pub trait Rule {
    fn name(&self) -> &'static str;
    fn wish(&mut self, facts: &Facts<'_>, model: ModelId) -> Wish;
    /// The idle time after which a model leaves on its own: the pool's configuration, unless the system has its own.
    fn keep_hot(&self, facts: &Facts<'_>, model: ModelId) -> Option<Span> {
        Some(facts.scenario.models[model.0 as usize].keep_hot)
    }
    /// The system empties itself at the evening cleanup of the scenario.
    fn keeps_evening(&self) -> bool {
        true
    }
    /// The models with waiting requests, in the order in which they are served.
    fn order(&self, facts: &Facts<'_>) -> Vec<ModelId> {
        let mut order: Vec<ModelId> = facts.waiting.keys().copied().collect();
        order.sort_by_key(|model| (facts.waiting[model][0].at, *model));
        order
    }
    /// If the first model in the queue cannot be served, the models behind it wait too.
    fn strict(&self) -> bool {
        false
    }
    /// A model was used or is about to be, for rules that keep counts.
    fn used(&mut self, _model: ModelId, _now: Time) {}
    fn loaded(&mut self, _model: ModelId, _now: Time) {}
    /// `victim` is evicted for another model.
    fn evicted(&mut self, _victim: ModelId) {}
}

impl Facts<'_> {
    pub fn needs(&self, model: ModelId) -> (u32, Bytes) {
        let spec = &self.scenario.models[model.0 as usize];
        (spec.devices_per_replica.max(1), spec.bytes_per_device)
    }

    /// The devices that could hold this much if they were empty.
    pub fn large_enough(&self, needs: Bytes) -> Vec<DeviceId> {
        let all = self.capacity.iter();
        let large = all.filter(|(_, capacity)| **capacity >= needs);
        large.map(|(&device, _)| device).collect()
    }

    pub fn free_on(&self, device: DeviceId) -> u64 {
        // Below zero while victims of a planned load have not left.
        let free = self.free[&device].0;
        if free > u64::MAX / 2 { 0 } else { free }
    }

    /// Idle, loaded models that hold a part of a device.
    pub fn idle_on(&self, device: DeviceId) -> impl Iterator<Item = &Resident> {
        self.residents.values().filter(move |resident| {
            resident.in_flight == 0
                && !resident.loading
                && !resident.leaving
                && resident.devices.contains(&device)
        })
    }
}
