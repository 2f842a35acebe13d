//! Updates the estimates of loads that were never measured when the load of another model was.

use alloc::vec::Vec;

use crate::facts::load_estimates::LoadEstimates;
use crate::facts::state::Pool;

impl Pool {
    /// A load was measured: estimates of the others change. Visits every model once.
    pub(crate) fn learn_load_times(&mut self) {
        self.load_estimates = LoadEstimates::new(self.models.values());
        let mut changed = Vec::new();
        for (id, model) in self.models.iter_mut() {
            if model.load_is_guessed() {
                model.learned_load = self.load_estimates.guess(model);
                changed.extend(self.queues.wait_for(id).then_some(id));
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
}
