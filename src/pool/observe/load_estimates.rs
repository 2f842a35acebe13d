//! Updates the estimates of loads that were never measured when the load of another model was.

use alloc::vec::Vec;

use crate::facts::load_estimates::{LoadEstimates, Source};
use crate::facts::state::{Model, Pool};
use crate::types::ids::{Bytes, Span};

impl LoadEstimates {
    fn new<'a>(models: impl Iterator<Item = &'a Model>) -> LoadEstimates {
        let mut estimates = LoadEstimates::default();
        let mut swaps = Vec::new();
        for model in models {
            if let Some(took) = model.load_times.expected() {
                estimates.add(model.source(), model.total_bytes(), took);
                swaps.push(took + model.stop_takes);
            }
        }
        swaps.sort_unstable();
        estimates.median_swap = swaps.get(swaps.len() / 2).copied();
        estimates
    }

    /// Returns `None` if the model's load is not a guess, or no load with its engine was measured.
    pub(crate) fn guess(&self, model: &Model) -> Option<Span> {
        let guess = self.expected(model.source(), model.total_bytes());
        guess.filter(|_| model.load_is_guessed())
    }
}

impl Pool {
    /// A load was measured: estimates of the others change. Visits every model once.
    pub(crate) fn learn_load_times(&mut self) {
        self.load_estimates = LoadEstimates::new(self.models.values());
        let mut changed = Vec::new();
        for (&id, model) in &mut self.models {
            if model.load_is_guessed() {
                model.learned_load = self.load_estimates.guess(model);
                changed.extend(self.waited_for.contains(&id).then_some(id));
            }
        }
        // Turns of replicas in their way end earlier or later.
        for &id in &changed {
            self.touch_model(id);
        }
        if !changed.is_empty() {
            self.grows_everywhere();
        }
    }

    /// The time until the model is ready once there is room, for rules that let requests wait in proportion to it. No request
    /// waits in proportion to a guess that is longer than the usual swap of this pool.
    pub(crate) fn ready_in(&self, model: &Model) -> Span {
        let expected = self.return_time(model);
        match self.load_estimates.median_swap {
            Some(median) if model.load_is_guessed() => expected.min(median),
            _ => expected,
        }
    }
}

impl Model {
    /// Its load was never measured, and its expected time follows from its size.
    pub(crate) fn load_is_guessed(&self) -> bool {
        self.spec.reload_is_guess && self.load_times.expected().is_none()
    }

    fn source(&self) -> Source {
        let loader = self.spec.loader.map(|loader| loader.loader);
        (self.spec.engine, loader)
    }

    fn total_bytes(&self) -> Bytes {
        let devices = u64::from(self.spec.devices_per_replica.max(1));
        Bytes(self.spec.bytes_per_device.0.saturating_mul(devices))
    }
}
