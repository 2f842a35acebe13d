//! Turns the list of batch work into facts (B4). Makes no choices.

use alloc::vec::Vec;

use crate::facts::state::Pool;
use crate::types::batch::BatchDemand;
use crate::types::ids::{ModelId, Time};

impl Pool {
    pub(crate) fn batches_set(&mut self, demands: &[BatchDemand]) {
        for (model, has_begun_or_ended) in self.batches.set(demands, self.now) {
            if has_begun_or_ended {
                // Its replicas are kept from now on, or no longer. Its idle ones may leave for other batches, or no longer.
                self.touch_model(model);
                self.grows_at_model(model);
            } else {
                self.demand_index.touch(model);
            }
        }
        let due: Vec<(ModelId, Time)> = self.batches.due_later(self.now).collect();
        for (model, at) in due {
            self.look_again(at, model);
        }
    }
}
